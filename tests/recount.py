"""Counts every figure of README.md, docs/results.md and zoom's table again from the files: `python tests/recount.py`.

Plain Python that knows the files and nothing of certmask. What the paper printed is read from the columns of
docs/appendix/tables.md; all else is counted from rows, one per photo or attempt.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from functools import lru_cache
from itertools import zip_longest
from math import comb, sqrt
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REPRODUCE = ROOT / "results" / "reproduce"
NETWORKS = {"deit_tiny": "DeiT-Tiny", "resnet50": "ResNet-50", "resnetv2_50": "ResNetV2-50", "resmlp_24": "ResMLP-S24",
            "efficientnet": "EfficientNet-Lite0", "resnet26": "ResNet-26", "resnet26w3": "ResNet-26 w3"}  # fmt: skip
DATA = {"imagenet": "ImageNet", "imagenette": "Imagenette", "cifar10": "CIFAR-10"}
CLEANSER, CHALLENGER, GRID = "PatchCleanser 6×6", "PatchCleanser 6×6, challenger", "PatchCleanser 6×6 on a token grid"
CHANCE = 0.05
PAGES = (ROOT / "README.md", ROOT / "docs/results.md", ROOT / "docs/appendix/zoom.md")
SOURCE = "be08e8290868beba"
"""The digest of the program that ran again what others had run."""
TEST, ONCE = "published k=6", "published, exact minimum k=1"
Row = dict[str, Any]


@lru_cache
def lines(path: Path) -> tuple[Row, ...]:
    """Header and rows of a results file, packed or not; the first format said scheme for defence."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    text = text.replace('"schemes":', '"defences":').replace('"scheme":', '"defence":')
    return tuple(json.loads(line) for line in text.splitlines())


def experiment(name: str, *defences: str) -> dict[str, tuple[Row, ...]]:
    """The rows of an experiment's runs that have these defences, by file; those of a handful of photos are left out."""
    paths = [path for path in sorted((REPRODUCE / name).glob("*.jsonl.gz")) if "-few." not in path.name]
    return {path.name: lines(path)[1:] for path in paths if {*defences} <= {*lines(path)[0]["defences"]}}


def certified(row: Row, defence: str) -> bool:
    return row["defences"][defence]["certified"] is True


def right(row: Row, defence: str) -> bool:
    return row["defences"][defence]["label"] == row["label"] and not row["defences"][defence]["alert"]


def alert(row: Row, defence: str) -> bool:
    return bool(row["defences"][defence]["alert"])


def mean(rows: Any, defence: str, field: str) -> float:
    numbers = [float(row["defences"][defence][field]) for row in rows]
    return sum(numbers) / len(numbers)


def answer(rows: Any, defence: str) -> float:
    return mean(rows, defence, "passes")


def proof(rows: Any, defence: str) -> float:
    """Passes of a completed proof."""
    return mean([row for row in rows if certified(row, defence)], defence, "certificate_passes")


def share(held: Any) -> str:
    """In percent with one place, halves rounded up."""
    flags = list(held)
    tenths = (2000 * sum(flags) + len(flags)) // (2 * len(flags))
    return f"{tenths // 10}.{tenths % 10}"


def passes(number: float) -> str:
    return f"{number:.1f}" if number < 100 else f"{number:,.0f}"


def span(values: Any, form: str = ".0f") -> str:
    ordered = sorted(values)
    return f"{ordered[0]:{form}} to {ordered[-1]:{form}}".replace("-", "−")


def points(rows: Any, first: str, second: str, holds: Any = certified) -> float:
    return float(100 * sum(holds(row, first) - holds(row, second) for row in rows) / len(rows))


def signed(rows: Any, first: str, second: str) -> str:
    """Points of certificates with one place and a sign, halves rounded away from 0."""
    gained, lost = split(rows, first, second)
    tenths = (2000 * abs(gained - lost) + len(rows)) // (2 * len(rows))
    return f"{'+' if gained >= lost else '−'}{tenths // 10}.{tenths % 10}"


def percent(rows: Any, defence: str) -> float:
    return 100 * sum(certified(row, defence) for row in rows) / len(rows)


def with_half(rows: Any, first: str, second: str) -> str:
    """Points of certificates and half of the 95 % interval of their mean over photos."""
    apart = [certified(row, first) - certified(row, second) for row in rows]
    middle = sum(apart) / len(apart)
    half = 1.96 * (sum((one - middle) ** 2 for one in apart) / len(apart)) ** 0.5 / len(apart) ** 0.5
    return f"{100 * middle:+.1f} ± {100 * half:.1f}".replace("-", "−")


def split(rows: Any, first: str, second: str, holds: Any = certified) -> tuple[int, int]:
    sides = [(holds(row, first), holds(row, second)) for row in rows]
    return sides.count((True, False)), sides.count((False, True))


def chance(split_: tuple[int, int]) -> float:
    """McNemar's exact test."""
    few, count = min(split_), sum(split_)
    return min(1.0, 2.0 * sum(comb(count, k) for k in range(few + 1)) / float(2**count))


def adjusted(splits: list[tuple[int, int]]) -> list[float]:
    """Chances of all splits, with Holm's correction."""
    chances, found, most = [chance(split_) for split_ in splits], [1.0] * len(splits), 0.0
    for step, number in enumerate(sorted(range(len(splits)), key=chances.__getitem__)):
        most = max(most, min(1.0, chances[number] * (len(splits) - step)))
        found[number] = most
    return found


def beyond_chance(splits: list[tuple[int, int]]) -> list[bool]:
    return [after < CHANCE for after in adjusted(splits)]


def cells(table: str) -> list[list[str]]:
    """The rows of a Markdown table, without heading and rule, names without stars."""
    return [[cell.strip() for cell in line.strip("| ").replace("**", "").split(" | ")]
            for line in table.splitlines() if line.startswith("|")][2:]  # fmt: skip


def block(page: Path, kind: str) -> list[list[str]]:
    (found,) = re.findall(rf"<!-- figures: {kind} \S+ -->\n(.*?)<!-- end -->", page.read_text(), re.DOTALL)
    return cells(found)


def called(path: Path) -> str:
    """How a page calls the network of a run."""
    model, data, _ = path.name.split("--")
    known = sorted((name for name in NETWORKS if name in model), key=len)
    enlarged = data == "cifar10" and lines(path)[0]["model"]["size"] == [224, 224]
    return f"{NETWORKS[known[-1]]}, {DATA[data]}{' at 224' if enlarged else ''}" if known else model


def run_of(network: str, defence: str) -> tuple[Row, tuple[Row, ...]]:
    """What the header says of a defence, and the rows of the run of a network at 2 %, or 2.4 %, that has it.

    Those beside zoom come first; the published rule is in Table 1.
    """
    for place in ("zoom", "table1"):
        paths = [path for path in (REPRODUCE / place).glob("*.jsonl.gz") if re.search(r"--patch3[25]\.", path.name)]
        for path in sorted(paths, key=lambda path: ("zoom" not in lines(path)[0]["defences"], path.name)):
            about, name = lines(path)[0]["defences"], path.name.split("--")[0]
            if network in (called(path), name) and defence in about:
                return about[defence], lines(path)[1:]
    raise SystemExit(f"expected a run of {network} with {defence}, got none")


def overview_row(network: str, defence: str) -> list[str]:
    """A row of the table of results.md; every promise has a column of its own."""
    about, rows = run_of(network, defence)
    kind, held = about["rule"]["guarantee"], share(certified(row, defence) for row in rows)
    recovery, detection = (held if kind == name else "–" for name in ("recovery", "detection"))
    return [
        network, defence, share(right(row, defence) for row in rows), recovery, detection,
        share(alert(row, defence) for row in rows), passes(answer(rows, defence)),
        passes(proof(rows, defence)) if kind in ("recovery", "detection") else "–",
    ]  # fmt: skip


def zoom_row(network: str, defence: str) -> list[str]:
    """A row of the first table of docs/appendix/zoom.md."""
    _, rows = run_of(network, defence)
    lead = with_half(rows, defence, CLEANSER) if defence not in ("undefended", CLEANSER) else "–"
    proves = defence != "undefended"
    return [
        network, defence, share(right(row, defence) for row in rows),
        share(certified(row, defence) for row in rows) if proves else "–", lead, passes(answer(rows, defence)),
        passes(proof(rows, defence)) if proves else "–",
        passes(mean(rows, defence, "certificate_passes")) if proves else "–",
    ]  # fmt: skip


def brief_row(network: str) -> list[str]:
    """A row of the table of README.md."""
    _, rows = run_of(network, "zoom")
    both = (CLEANSER, "zoom")
    found = (
        [share(certified(row, name) for row in rows) for name in both],
        [share(right(row, name) for row in rows) for name in both],
        [passes(answer(rows, name)) for name in both],
        [passes(proof(rows, name)) for name in both],
    )
    return [network, *(" → ".join(pair) for pair in found)]


def zoom_figures() -> dict[str, str]:
    paths = sorted((REPRODUCE / "zoom").glob("*.jsonl.gz"))
    runs = {called(path): lines(path)[1:] for path in paths}
    deit, every = runs["DeiT-Tiny, ImageNet"], list(runs.values())
    mirrored = lines(ROOT / "results/mirror/deit-tiny.jsonl.gz")[1:]
    untrained = [rows for name, rows in runs.items() if name.endswith(", ImageNet")]
    aligned = [lines(path)[0]["defences"]["zoom"]["cover"].get("align", 1) > 1 for path in paths]
    on_grid = [rows for rows, whole in zip(every, aligned, strict=True) if whole]
    middle = [rows for rows, path in zip(every, paths, strict=True) if "--patch32" in path.name]
    asked = [("zoom", CLEANSER), ("zoom", GRID), ("zoom", "jury recovery k=4, aligned"), ("zoom, tuned", CLEANSER),
             ("zoom detection", "6×6 agreement")]  # fmt: skip
    both = [(pair, rows) for pair in asked for rows in every if {*pair} <= {*rows[0]["defences"]}]
    compared = [(pair, rows) for pair, rows in both if pair[1] != GRID or rows in middle]
    splits = [split(rows, *pair) for pair, rows in compared]
    told = list(zip(compared, splits, adjusted(splits), strict=True))
    won = [(pair, a > b, after < CHANCE) for (pair, _), (a, b), after in told]
    lost = [(rows, counts, after) for (pair, rows), counts, after in told if pair == asked[0] and counts[0] < counts[1]]
    field = "certificate_passes"
    cleaner = [split(rows, "zoom", CLEANSER, right) for rows in every]

    def ahead(pair: tuple[str, str]) -> tuple[str, str]:
        own = [(more, sure) for asked_pair, more, sure in won if asked_pair == pair]
        return f"{sum(more for more, _ in own)} of {len(own)}", str(sum(more and sure for more, sure in own))

    return {
        "zoom ahead": ahead(asked[0])[0],
        "zoom ahead beyond chance": ahead(asked[0])[1],
        "zoom grid": ahead(asked[1])[0],
        "zoom grid beyond chance": ahead(asked[1])[1],
        "zoom points": span((points(rows, "zoom", CLEANSER) for rows in every), "+.1f"),
        "zoom grid gains": span((points(rows, GRID, CLEANSER) for rows in on_grid), "+.1f"),
        "zoom clean beyond chance": str(sum(beyond_chance(cleaner))),
        "zoom proof part": span(100 * proof(rows, "zoom") / proof(rows, CLEANSER) for rows in every),
        "zoom all proofs": f"{sum(mean(r, 'zoom', field) < mean(r, CLEANSER, field) for r in every)} of {len(every)}",
        "zoom all proofs zoom": passes(mean(deit, "zoom", "certificate_passes")),
        "zoom all proofs cleanser": passes(mean(deit, CLEANSER, "certificate_passes")),
        "zoom challenger answer": span(answer(rows, CHALLENGER) for rows in every),
        "zoom behind": ", ".join(with_half(rows, "zoom", CLEANSER) for rows, _, _ in lost),
        "zoom behind chance": ", ".join(f"{chance(counts):.2f}" for _, counts, _ in lost),
        "zoom behind adjusted": ", ".join(f"{after:.2f}" for _, _, after in lost),
        "overview challenger": span((percent(rows, CHALLENGER) for rows in untrained), ".1f"),
        "overview challenger answers": span(answer(rows, CHALLENGER) for rows in untrained),
        "overview challenger zoom": span((percent(rows, "zoom") for rows in untrained), ".1f"),
        "overview challenger zoom answers": span(answer(rows, "zoom") for rows in untrained),
        "overview tuned": share(certified(row, "zoom, tuned") for row in runs["DeiT-Tiny, Imagenette"]),
        "zoom mirror cleanser": share(certified(row, CLEANSER) for row in mirrored),
        "zoom mirror zoom": share(certified(row, "zoom") for row in mirrored),
        "overview test": span(percent(run_of(name, TEST)[1], TEST) for name in runs),
        "overview detection clean": span((points(r, "zoom detection", "undefended", right) for r in every), "+.1f"),
        "overview recovery": span((percent(rows, "zoom") for rows in every), ".1f"),
        "overview detection answers": span(answer(rows, "zoom detection") for rows in every),
        "overview answers": span(answer(rows, "zoom") for rows in every),
        "overview clean": span((points(rows, "zoom", "undefended", right) for rows in every), "+.1f"),
        "overview detection": span(percent(rows, "zoom detection") for rows in every),
        "overview alerts": span(100 * sum(alert(r, "zoom detection") for r in rows) / len(rows) for rows in every),
        "overview deit": share(certified(row, "zoom") for row in deit),
        "overview deit cleanser": share(certified(row, CLEANSER) for row in deit),
    }


def size_figures() -> dict[str, str]:
    """Zoom beside PatchCleanser at every patch of Table 1."""
    runs = experiment("sizes", "zoom", CLEANSER)
    every, small = list(runs.values()), [rows for file, rows in runs.items() if "--patch23." in file]
    asked = [(pair, rows) for pair in (("zoom", CLEANSER), ("zoom detection", "6×6 agreement")) for rows in every]
    splits = [split(rows, *pair) for pair, rows in asked]
    own = list(zip(splits, beyond_chance(splits), strict=True))[: len(every)]
    return {
        "sizes ahead": f"{sum(a > b for (a, b), _ in own)} of {len(own)}",
        "sizes ahead beyond chance": str(sum(a > b and sure for (a, b), sure in own)),
        "sizes small": f"{sum(points(rows, 'zoom', CLEANSER) > 0 for rows in small)} of {len(small)}",
        "sizes behind beyond chance": str(sum(a < b and sure for (a, b), sure in own)),
    }


def further_figures() -> dict[str, str]:
    """Zoom beside PatchCleanser where zoom is in Table 1 alone: other networks at 2 or 2.4 %, CIFAR-10 at 0.4 %."""
    known = {path.name.split("--")[0] for path in (REPRODUCE / "zoom").glob("*.jsonl.gz")}
    leads = {file: signed(rows, "zoom", CLEANSER) for file, rows in experiment("table1", "zoom", CLEANSER).items()}
    others = [file for file in leads if re.search(r"--patch3[25]\.", file) and file.split("--")[0] not in known]
    names = {file: called(REPRODUCE / "table1" / file).replace(", ", " on ") for file in others}
    others.sort(key=lambda file: ("--imagenette--" not in file, file))
    return {
        "overview further": ", ".join(f"{names[file]} {leads[file]}" for file in others),
        "overview smallest": " and ".join(lead for file, lead in leads.items() if "--patch14." in file),
    }


def again_figures() -> dict[str, str]:
    """What one program made of photos that earlier ones had run, where both call a defence the same."""
    verdicts = others = 0
    for folder in ("again", "before"):
        for path in sorted((ROOT / "results" / folder).glob("*/*.jsonl.gz")):
            twin = lines(REPRODUCE / path.parent.name / path.name)
            sources = [header["versions"].get("certmask source") for header in (lines(path)[0], twin[0])]
            if sources.count(SOURCE) != 1 or sources.index(SOURCE) != (folder == "before"):
                raise SystemExit(f"expected {SOURCE} beside an earlier source in {path}, got {sources}")
            there = {row["image"]: row["defences"] for row in twin[1:]}
            for row in lines(path)[1:]:
                for name in row["defences"].keys() & there[row["image"]].keys():
                    verdicts += 1
                    others += row["defences"][name]["certified"] != there[row["image"]][name]["certified"]
    return {"again verdicts": f"{verdicts:,}", "again certificates": str(others)}


def attack_figures() -> dict[str, str]:
    """Attempts on certified photos, and on networks without a defence."""
    found: dict[str, list[Row]] = {"none": [], "published test": [], "proved": []}
    photos: dict[tuple[str, str, str], bool] = {}
    for path in sorted((ROOT / "results").glob("*/*-attempts.jsonl*")):
        header, *rows = lines(path)
        for row in rows:
            kind = header["defences"][row["defence"]]["rule"]["guarantee"]
            found[kind if kind in found else "proved"].append(row)
            if kind == "published test":
                key = (path.name, row["defence"], row["image"])
                photos[key] = photos.get(key, False) or row["broken"]
    fell = sum(row["answer"] != row["label"] for row in found["none"])
    broken = sum(row["broken"] for row in found["published test"])
    return {
        "overview attempts": f"{len(found['proved']):,}",
        "overview broken": str(sum(row["broken"] for row in found["proved"])),
        "overview bare": f"{fell:,} of {len(found['none']):,}",
        "overview published": f"{broken:,} of {len(found['published test']):,}",
        "overview published photos": f"{sum(photos.values())} of {len(photos)}",
    }


def starts(mask: int, patch: int, fold: int) -> list[int]:
    """Where Offset Tiling's masks begin along an axis of 224 pixels; they wrap around."""
    return [i * (mask - patch) // fold - mask // 2 for i in range(-(-fold * 224 // (mask - patch)))]


def geometry_figures() -> dict[str, str]:
    """Masks at the settings of the paper's Table 1 on 224 pixels: its formulas, exact counts, and masks in a row."""
    settings = ((14, 16), (23, 32), (32, 48), (35, 56), (39, 56))
    offsets = [-(-2 * 224 // (mask - patch)) * -(-3 * 224 // (mask - patch)) for patch, mask in settings]
    patch, mask = settings[2]
    per_axis = -(-(224 - patch + 1) // (mask - patch + 1))
    folds = [[sum((place - start) % 224 <= mask - patch for start in starts(mask, patch, fold))
              for place in range(224 - patch + 1)] for fold in (2, 3)]  # fmt: skip
    return {
        "overview line paper": str(-(-224 // (mask - patch))),
        "overview line": str(per_axis),
        "overview bound": f"{6 * -(-(224 * 224) // (mask - patch) ** 2):,}",
        "overview minimum": f"{6 * per_axis**2:,}",
        "overview covered": f"{min(folds[0]) * min(folds[1])} to {max(folds[0]) * max(folds[1])}",
        "overview offset": f"{offsets[2]:,}",
        "overview offsets": f"{min(offsets):,} to {max(offsets):,}",
        "overview tiny": f"{offsets[0]:,}",
    }


def card_figures() -> dict[str, str]:
    """From the cards of trained networks, and from a run by the clock."""

    def told(name: str, field: str) -> str:
        numbers = json.loads((ROOT / f"results/models/{name}.json").read_text())["metrics"]
        count = round(numbers[field] * numbers["images"])
        return share([True] * count + [False] * (numbers["images"] - count))

    clock = json.loads((ROOT / "results/speed/zoom-h200.json").read_text())["rows"]
    best = {
        name: max(row["photos_per_second"] for row in clock if row["defence"] == name) for name in ("zoom", CLEANSER)
    }
    two, zoomed = "certified_recovery_two_masks", "certified_recovery_zoom"
    enlarged = lines(ROOT / "results/recipes/imagenette-kept-reported-greedy-384.jsonl.gz")[1:]
    return {
        "overview enlarged": share(certified(row, "patchcleanser") for row in enlarged),
        "overview enlarged zoom": share(certified(row, "zoom") for row in enlarged),
        "overview untrained": told("cifar10-resnet26w2-none", two),
        "overview trained": told("cifar10-resnet26w2-greedy", two),
        "overview wide": told("cifar10-resnet26w3-pairs", zoomed),
        "overview wide cleanser": told("cifar10-resnet26w3-pairs", two),
        "overview pairs": told("cifar10-deit_tiny-pairs", zoomed),
        "overview pairs cleanser": told("cifar10-deit_tiny-pairs", two),
        "overview rate": f"{best['zoom']:.0f}",
        "overview rate cleanser": f"{best[CLEANSER]:.0f}",
    }


def printed_by_the_paper() -> dict[tuple[str, str], tuple[float, float]]:
    """Clean and robust as the paper printed them, by title of a table and defence, of Table 1 alone."""
    page = (ROOT / "docs/appendix/tables.md").read_text()
    first = page[page.index("## Table 1") : page.index("## Table 2")]
    found = {}
    for title, head, body in re.findall(r"\*\*(.+?)\*\*\n\n(\|.*\n)\|.*\n((?:\|.*\n)+)", first):
        columns = [cell.strip() for cell in head.strip("| \n").split(" | ")]
        for line in body.splitlines():
            row = dict(zip(columns, (cell.strip() for cell in line.strip("| ").split(" | ")), strict=True))
            if row.get("robust, paper", "–") != "–" and "so few" not in title:
                found[title, row["defence"]] = (float(row["clean, paper"]), float(row["robust, paper"]))
    return found


def rows_of_title(title: str, defence: str) -> tuple[Row, ...]:
    """The run of Table 1 that a title is about."""
    model, data, side = re.findall(r"(\S+) on (\w+), .*?(\d+)×\d+ px", title)[0]
    for file, rows in experiment("table1", defence).items():
        about = lines(REPRODUCE / "table1" / file)[0]["defences"][defence]
        own = about["cover"]["patch"][0] if "cover" in about else about["threat"]["height"]
        if file.startswith(f"{model}--{data}--") and own == int(side):
            return rows
    raise SystemExit(f"expected a run of {title} with {defence}, got none")


def wilson(count: int, of: int) -> tuple[float, float]:
    z, part = 1.959964, count / of
    half = z * sqrt(part * (1 - part) / of + z * z / (4 * of * of))
    return (part + z * z / (2 * of) - half) / (1 + z * z / of), (part + z * z / (2 * of) + half) / (1 + z * z / of)


def paper_figures() -> dict[str, str]:
    """What is said of the paper's Tables 1 and 3."""
    told = printed_by_the_paper()
    both = list(experiment("table1", TEST, CLEANSER).values())
    apart, low = [], []
    for (title, defence), (_, robust) in told.items():
        if defence in (TEST, CLEANSER):
            rows = rows_of_title(title, defence)
            low.append(100 * sum(certified(row, defence) for row in rows) / len(rows) < robust)
        if defence == TEST and (title, CLEANSER) in told:
            each = [certified(row, TEST) - certified(row, CLEANSER) for row in rows_of_title(title, TEST)]
            middle = sum(each) / len(each)
            half = 1.96 * sqrt(sum((one - middle) ** 2 for one in each)) / len(each)
            apart.append(abs(middle - (robust - told[title, CLEANSER][1]) / 100) <= half)
    bands = [(key, *told[key]) for key in told if key[0].startswith("smoothed_deit_tiny-cifar10")]
    within = []
    for (title, defence), clean, robust in bands:
        rows = rows_of_title(title, defence)
        for printed, holds in ((clean, right), (robust, certified)):
            ends = wilson(sum(holds(row, defence) for row in rows), len(rows))
            within.append(ends[0] <= printed / 100 <= ends[1])
    many, once, offset = "published, Replicated k=6", "published, Replicated k=1", "published, Offset k=6"
    tilings = experiment("table3", many, offset)
    copies = [row for rows in tilings.values() for row in rows]
    gain: dict[str, list[int]] = {}
    for rows in both:
        for row in rows:
            more = certified(row, "jury detection k=6") - certified(row, "jury detection, exact minimum k=1")
            gain.setdefault(row["input_sha256"], []).append(more)
    count = sum(map(len, gain.values()))
    middle = sum(map(sum, gain.values())) / count
    half = 1.96 * sqrt(sum((sum(one) - len(one) * middle) ** 2 for one in gain.values())) / count
    missing = block(ROOT / "docs/appendix/missing.md", "missing")
    return {
        "table1 test ahead": f"{sum(points(rows, TEST, CLEANSER) > 0 for rows in both)} of {len(both)}",
        "table1 distance within": f"{sum(apart)} of {len(apart)}",
        "table1 robust below": f"{sum(low)} of {len(low)}",
        "table1 cleanser passes": span(answer(rows, CLEANSER) for rows in experiment("table1", CLEANSER).values()),
        "table1 published times": span(answer(rows, TEST) / answer(rows, CLEANSER) for rows in both),
        "table1 detection gain": f"{100 * middle:+.1f} ± {100 * half:.1f}",
        "table1 times": span(answer(rows, "jury detection k=6") / answer(rows, "jury detection, exact minimum k=1")
                             for rows in both),
        "tilings test ahead": f"{sum(points(r, many, offset) > 0 for r in tilings.values())} of {len(tilings)}",
        "tilings clean behind": f"{sum(points(r, many, offset, right) < 0 for r in tilings.values())} of "
                                f"{len(tilings)}",
        "tilings same": f"{sum(certified(r, many) == certified(r, once) for r in copies):,} of {len(copies):,}",
        "others smoothed cifar10 within": f"{sum(within)} of {len(within)}",
        "overview missing": str(len(missing)),
    }  # fmt: skip


@lru_cache
def figures() -> dict[str, str]:
    return {
        **zoom_figures(),
        **size_figures(),
        **further_figures(),
        **again_figures(),
        **attack_figures(),
        **geometry_figures(),
        **card_figures(),
        **paper_figures(),
    }


def differences(readme: Path, results: Path, beside: Path) -> tuple[int, list[str]]:
    """How many figures the two pages and zoom's table print, and where one is not what the files say."""
    odd, count = [], 0
    rows = [(cells_, overview_row(*cells_[:2])) for cells_ in block(results, "overview")]
    rows += [(cells_, zoom_row(*cells_[:2])) for cells_ in block(beside, "zoom")]
    rows += [(cells_, brief_row(cells_[0])) for cells_ in block(readme, "zoom-brief")]
    for printed, counted in rows:
        count += len(counted)
        cell_pairs = zip_longest(printed, counted, fillvalue="no cell")
        odd += [f"{printed[0]}, {printed[1]}: expected {want}, got {said}" for said, want in cell_pairs if said != want]
    known = figures()
    for page in (readme, results):
        for name, said in re.findall(r"<!--=(.+?)-->(.*?)<!--=-->", page.read_text()):
            count += 1
            if known.get(name) != said:
                odd.append(
                    f"{page.name}, {name}: expected {known.get(name, 'a figure that is counted here')}, got {said}"
                )
    return count, odd


def main() -> int:
    count, odd = differences(*PAGES)
    sys.stdout.writelines(f"{line}\n" for line in odd)
    sys.stdout.write(
        f"{count} figures in README.md, docs/results.md and zoom's table, {len(odd)} of which differ from the files\n"
    )
    return int(bool(odd))


if __name__ == "__main__":
    raise SystemExit(main())
