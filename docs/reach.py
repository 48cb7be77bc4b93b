"""Blocks and figures about threats beyond one square: two patches, any rectangle, unknown size, in the photo."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from statistics import median

import matplotlib as mpl
from experiment_tables import lined, measured_tables, trials_in
from zoom import DEIT, IMAGENETTE, NETWORKS, by_name, certificates, passes, percent, proved

from certmask.certificate import Guarantee
from certmask.errors import ResultsError
from certmask.experiments.zooming import SHIPPED, SHIPPED_DETECTION
from certmask.report.drawing import save_figure
from certmask.report.plots import STYLE, size_figure
from certmask.results.clusters import difference, is_certified
from certmask.results.columns import Figures, attack_figures, figures
from certmask.results.file import Row
from certmask.results.kinds import NOTHING
from certmask.results.run import Run, read_run
from certmask.results.statistics import Share
from certmask.rules.jury import bars_of
from certmask.threat import Patch

FOLDERS = ("reach", "two-patches")
"""The experiments that have such threats, some of which may not have been run."""

SHAPES, SIZES = "zoom, any rectangle", "zoom, unknown size"
SHAPES_DETECTION, SIZES_DETECTION = "zoom detection, any rectangle", "zoom detection, unknown size"
TWO_DETECTION, PAIR_DETECTION = "zoom detection, two patches", "pair detection, two patches"
PLACES = {"imagenette": IMAGENETTE, "imagenet": DEIT}
"""How the data sets are called in figures, and the network that has it."""

ATTACKED = {"imagenet": "", "imagenette": "", "photo60": ", patch in the photo"}
PICTURE = "unknown-size.png"
KINDS = (Guarantee.RECOVERY, Guarantee.DETECTION)


def folders(folder: Path) -> list[Path]:
    """The experiments under ``folder`` that have results."""
    return [folder / name for name in FOLDERS if any((folder / name).glob("*.jsonl.gz"))]


def runs_in(folder: Path) -> dict[str, Run]:
    """The run of each network, in the order in which pages name them."""
    found = {trial.model: trial.run for trial in trials_in(folder)}
    if found.keys() != {*PLACES.values()}:
        raise ResultsError(f"expected runs of {', '.join(PLACES.values())} in {folder}, got {', '.join(found)}")
    return {model: found[model] for model in NETWORKS if model in found}


def both_kinds(own: Figures) -> str:
    """Certified recovery and certified detection, which never share a column."""
    return " | ".join(percent(own.certified_as(kind)) for kind in KINDS)


def prices(own: Figures) -> str:
    return f"{passes(own.answer_passes)} | {passes(own.proved_passes)} | {passes(own.proof_passes)}"


PRICES = "passes to answer | passes of a completed proof | passes to prove, all photos"


def threats_table(folder: Path) -> str:
    """Every defence on both networks, and what it holds off."""
    lines = []
    for model, run in runs_in(folder).items():
        for own in figures(run):
            alerts = percent(own.false_alerts) if own.guarantee is Guarantee.DETECTION else NOTHING
            lines.append(
                f"{NETWORKS[model][0]} | {own.threat.label} | {own.defence} | {percent(own.clean)} | "
                f"{both_kinds(own)} | {alerts} | {prices(own)}"
            )
    return lined(
        "network | patch | defence | clean, % | certified recovery, % | certified detection, % | false alerts, % | "
        f"{PRICES}", lines, words=3,
    )  # fmt: skip


def recoveries(paths: Sequence[Path]) -> dict[str, list[tuple[Run, Figures]]]:
    """Every setting of recovery from several patches by network, from cheap to dear proofs: its last experiment's."""
    found = {
        trial.model: [
            (trial.run, own)
            for own in figures(trial.run)
            if isinstance(own.threat, Patch) and own.threat.count > 1 and own.guarantee is Guarantee.RECOVERY
        ]
        for path in paths
        for trial in trials_in(path)
    }
    if not found:
        raise ResultsError("expected recovery from several patches, got none")
    return {m: sorted(found[m], key=lambda each: proved(each[1])) for m in NETWORKS if m in found}


def recoveries_table(folder: Path) -> str:
    lines = []
    for model, each in recoveries(folders(folder)).items():
        for run, own in each:
            lines.append(
                f"{NETWORKS[model][0]} | {own.defence} | {masks_by_level(run, own.defence)} | "
                f"{leads(run, own.defence)} | {own.images:,} | {percent(own.clean)} | {percent(own.certified)} | "
                f"{prices(own)}"
            )
    return lined(
        f"network | defence | masks | lead that settles | photos | clean, % | certified recovery, % | {PRICES}",
        lines, words=3,
    )  # fmt: skip


def masks_by_level(run: Run, defence: str) -> str:
    cover = run.cover(defence) or {}
    return " → ".join(str(level["masks"]) for level in cover["levels"])


def leads(run: Run, defence: str) -> str:
    """The leads that settle a duel before the last level; those of claims behind a bar where they are others."""
    told, levels = run.defences[defence], (run.cover(defence) or {})["levels"]
    bars = [told["rule"][key] for key in ("thresholds", "claim_thresholds")]
    said = (bars_of(tuple(own) if isinstance(own, list) else own, levels) for own in bars)
    return " / ".join(dict.fromkeys(", ".join(f"{bar:g}" for bar in own) for own in said)) or NOTHING


def shapes_table(folder: Path) -> str:
    """A square of its area, and any rectangle."""
    lines = []
    for model, run in runs_in(folder).items():
        found = by_name(run)
        for name in (SHIPPED, SHAPES, SHIPPED_DETECTION, SHAPES_DETECTION):
            own = found[name]
            lines.append(
                f"{NETWORKS[model][0]} | {own.threat.label} | {name} | {own.masks} | {masks_by_level(run, name)} | "
                f"{both_kinds(own)} | {passes(own.answer_passes)} | {passes(own.proved_passes)}"
            )
    return lined(
        "network | patch | defence | masks | by level | certified recovery, % | certified detection, % | "
        "passes to answer | passes of a completed proof", lines, words=3,
    )  # fmt: skip


def sizes_table(folder: Path) -> str:
    """The share that is certified up to each size, from one run of one defence."""
    lines = []
    for model, run in runs_in(folder).items():
        found = by_name(run)
        for one, two in zip(found[SIZES].sizes, found[SIZES_DETECTION].sizes, strict=True):
            lines.append(
                f"{NETWORKS[model][0]} | {one.side}×{one.side} | {percent(one.certified)} | {percent(two.certified)}"
            )
    return lined("network | patch up to | certified recovery, % | certified detection, %", lines, words=2)


def draw_sizes(folder: Path, images: Path) -> None:
    """The curves of that table, a panel for each guarantee and a line for each network."""
    lines = [
        replace(by_name(run)[name], defence=NETWORKS[model][0])
        for model, run in runs_in(folder).items()
        for name in (SIZES, SIZES_DETECTION)
    ]
    with mpl.rc_context(STYLE):
        save_figure(size_figure(lines), images / PICTURE)


@lru_cache
def by_side(path: Path) -> dict[int, list[Row]]:
    """The rows of a run against a patch in the photo, by the shorter side of the stored photo."""
    found = defaultdict(list)
    for row in read_run(path).rows:
        found[min(row["photo"]["size"])].append(row)
    return dict(sorted(found.items()))


def held(rows: Sequence[Row], defence: str) -> Share:
    return Share(sum(is_certified(row, defence) for row in rows), len(rows))


def with_interval(share: Share) -> str:
    low, high = share.interval
    return rf"{share.percent} \[{100 * low:.1f}, {100 * high:.1f}\]"


def one_size(rows: Sequence[Row], key: str) -> str:
    """What the patch is in the input, in all these photos."""
    ((height, width),) = {tuple(row["photo"][key]) for row in rows}
    return f"{height}×{width}"


def photo_table(path: Path) -> str:
    lines = []
    for side, rows in by_side(path).items():
        alerts = Share(sum(row["defences"]["zoom-detection"]["alert"] for row in rows), len(rows))
        covered = median(row["photo"]["side"] for row in rows)
        lines.append(
            f"{side} | {len(rows)} | {one_size(rows, 'reach')} | {one_size(rows, 'threat')} | {covered:g} | "
            f"{with_interval(held(rows, 'zoom'))} | {with_interval(held(rows, 'zoom-detection'))} | {alerts.percent}"
        )
    return lined(
        "shorter side of the photo, px | photos | patch in the input | certified against | covers in the photo, px | "
        "certified recovery, % | certified detection, % | false alerts, %", lines, words=0,
    )  # fmt: skip


@lru_cache
def attacked(folder: Path) -> dict[str, Run]:
    return {name: read_run(folder / f"{name}-attempts.jsonl.gz") for name in ATTACKED}


def attacks_table(folder: Path) -> str:
    """One row per defence, also where a run was cut off before it was reached."""
    lines, budgets = [], set()
    for name, run in attacked(folder).items():
        budget = run.header["budget"]
        budgets.add(tuple(budget[key] for key in ("steps", "views", "images", "locations")))
        for own in attack_figures(run):
            lines.append(
                f"{NETWORKS[run.model['name']][0]}{ATTACKED[name]} | {run.threat(own.defence).label} | {own.defence} | "
                f"{own.guarantee.value} | {own.attempts} | {own.label_changed} | {own.alerted} | "
                f"{NOTHING if own.broken is None else own.broken} | {own.images_lost} of {own.images}"
            )
    ((steps, views, images, places),) = budgets
    table = lined(
        "network | patch | defence | certificate | attempts | label changed | alerted | certificate broken | "
        "photos lost", lines, words=4,
    )  # fmt: skip
    head = f"{steps} steps with {views} masked views each, up to {images} photos of each defence at {places} places"
    return f"{head}\n\n{table}"


def every_table(folder: Path) -> str:
    """The wide tables of the experiments that have results."""
    return "\n\n".join(map(measured_tables, folders(folder)))


def is_strip(attempt: Row) -> bool:
    """Whether a patch of an attempt is at least four times as long as it is wide."""
    return any(max(own["size"]) >= 4 * min(own["size"]) for own in attempt.get("patches", ()))


def check_photos(results: Path) -> None:
    """An error if a photo for choosing is among those of figures."""
    shown, chosen = (
        {row["input_sha256"] for path in folders(results / name) for trial in trials_in(path) for row in trial.run.rows}
        for name in ("reproduce", "choosing")
    )
    if shown & chosen:
        raise ResultsError(
            f"expected other photos for choosing than those of figures, got {len(shown & chosen)} of them"
        )


def most(each: Iterable[tuple[Run, Figures]]) -> Figures:
    """What certifies the most photos; of equals the cheapest."""
    return max((own for _, own in each), key=lambda own: own.certified.value if own.certified else 0.0)


def two(results: Path) -> dict[str, str]:
    """Recovery from two patches: the cheapest setting and the one that certifies most.

    Those of figures are of the experiment that has all threats on the same photos.
    """
    said = {}
    for use, paths in (("", [results / "reproduce/reach"]), (" choosing", folders(results / "choosing"))):
        found = recoveries(paths)
        for data, model in PLACES.items():
            (_, cheap), *_ = found[model]
            for what, own in (("cheapest", cheap), ("best", most(found[model]))):
                said[f"two{use} {data} {what}"] = percent(own.certified)
                said[f"two{use} {data} {what} passes"] = passes(own.proved_passes)
    return said


def threats(results: Path) -> dict[str, str]:
    """One patch beside detection of two, any rectangle and unknown size, by data set."""
    said: dict[str, str] = {}
    runs = runs_in(results / "reproduce/reach")
    for data, model in PLACES.items():
        run, found = runs[model], by_name(runs[model])
        once = {"one": found[SHIPPED], "pair": found[PAIR_DETECTION], "two detection": found[TWO_DETECTION],
                "shapes": found[SHAPES], "shapes detection": found[SHAPES_DETECTION], "sizes": found[SIZES],
                "one detection": found[SHIPPED_DETECTION], "sizes detection": found[SIZES_DETECTION]}  # fmt: skip
        own = {what: percent(one.certified) for what, one in once.items()} | {
            "pair alerts": percent(found[PAIR_DETECTION].false_alerts),
            "pair answer": passes(found[PAIR_DETECTION].answer_passes),
            "two detection answer": passes(found[TWO_DETECTION].answer_passes),
            "shapes points": str(difference([run], SHAPES, SHIPPED)),
            "shapes detection points": str(difference([run], SHAPES_DETECTION, SHIPPED_DETECTION)),
            "shapes times": f"{proved(found[SHAPES]) / proved(found[SHIPPED]):.1f}",
            "sizes as told": percent(up_to(found[SIZES], found[SHIPPED])),
            "sizes detection as told": percent(up_to(found[SIZES_DETECTION], found[SHIPPED])),
            "sizes largest": Share(certificates(found[SIZES]), found[SIZES].sizes[0].certified.count).percent,
            "sizes alerted": str(alerted(run, SIZES_DETECTION)),
        }
        said |= {f"{data} {what}": text for what, text in own.items()}
    return said | {"shapes masks": str(found[SHAPES].masks), "square masks": str(found[SHIPPED].masks)}


def up_to(untold: Figures, told: Figures) -> Share:
    """What a defence that is not told the size certifies up to the size that another one is told."""
    (share,) = [size.certified for size in untold.sizes if (size.side, size.side) == told.patch]
    return share


def alerted(run: Run, defence: str) -> int:
    """Photos that are certified and raise an alert though they are clean."""
    return sum(is_certified(row, defence) and row["defences"][defence]["alert"] for row in run.rows)


def in_photo(path: Path) -> dict[str, str]:
    """The smallest photos and the largest ones, and what certificates cover in the median photo."""
    found, sides, said = by_name(read_run(path)), by_side(path), {}
    for what, side in (("small", min(sides)), ("large", max(sides))):
        said[f"photo {what}"] = str(side)
        said[f"photo {what} input"] = one_size(sides[side], "reach")
        said[f"photo {what} recovery"] = held(sides[side], "zoom").percent
        said[f"photo {what} detection"] = held(sides[side], "zoom-detection").percent
    return said | {
        "photo photos": str(found["zoom"].images),
        "photo each": " or ".join(sorted({str(len(rows)) for rows in sides.values()})),
        "photo sides": ", ".join(map(str, sides)),
        "photo median": f"{found['zoom'].photo_share or 0:.1f}",
        "photo median detection": f"{found['zoom-detection'].photo_share or 0:.1f}",
    }


def attacks(folder: Path) -> dict[str, str]:
    runs = attacked(folder).values()
    found = [own for run in runs for own in attack_figures(run)]
    bare = [own for own in found if own.guarantee is Guarantee.NONE]
    rows = [row for run in runs for row in run.rows if run.guarantee(row["defence"]).proved]
    return {
        "attempts": f"{len(rows):,}",
        "attempts two": f"{sum(len(row.get('patches', ())) > 1 for row in rows):,}",
        "attempts strips": f"{sum(map(is_strip, rows)):,}",
        "attempts photo": f"{sum('photo' in row for row in rows):,}",
        "attempts broken": str(sum(own.broken or 0 for own in found)),
        "attempts bare": str(sum(own.attempts for own in bare)),
        "attempts bare fell": str(sum(own.label_changed for own in bare)),
        "attempts bare lost": f"{sum(own.images_lost for own in bare)} of {sum(own.images for own in bare)}",
    }


def reach(results: Path) -> dict[str, str]:
    """Figures in sentences about these threats."""
    check_photos(results)
    folder = results / "threats"
    return {**two(results), **threats(results), **in_photo(folder / "photo60.jsonl.gz"), **attacks(folder)}
