"""The page of measured results: its blocks against their files, its figures by brute force, its readings borne out."""

from __future__ import annotations

import gzip
import importlib
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import certmask

from certmask import Patch, default_cover
from certmask.errors import CertmaskError
from certmask.experiments import EXPERIMENTS
from certmask.experiments.experiment import family
from certmask.results.statistics import holm, mcnemar

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "reproduce"
FOLDERS = [RESULTS / name for name in EXPERIMENTS if any((RESULTS / name).glob("*.jsonl.gz"))]
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
sys.path.insert(0, str(ROOT / "docs"))
generate: Any = importlib.import_module("generate")
tables: Any = importlib.import_module("experiment_tables")
runs: Any = importlib.import_module("experiment_runs")
BLOCKS = [(found[2], found[3], found[0]) for found in generate.BLOCK.finditer(PAGE)]
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """What was read is remembered by path; tests change files."""
    tables.runs_of.cache_clear()
    yield
    tables.runs_of.cache_clear()


def rows_of(path: Path) -> list[Row]:
    """The rows of a packed results file, read without certmask."""
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()][1:]


def held(rows: list[Row], defence: str, field: str = "certified") -> int:
    return sum(row["defences"][defence][field] is True for row in rows)


def clean(rows: list[Row], defence: str) -> int:
    return sum(
        row["defences"][defence]["label"] == row["label"] and not row["defences"][defence]["alert"] for row in rows
    )


def passes(rows: list[Row], defence: str) -> float:
    return float(np.mean([row["defences"][defence]["certificate_passes"] for row in rows]))


def measured(name: str, *defences: str, data: str = "*") -> dict[str, list[Row]]:
    """The runs of an experiment that have these defences; those of a handful of images are left out."""
    found = {path.name: rows_of(path) for path in sorted((RESULTS / name).glob(f"*--{data}--*.jsonl.gz"))}
    chosen = {f: rows for f, rows in found.items() if "-few" not in f and {*defences} <= {*rows[0]["defences"]}}
    assert chosen, f"no runs of {name}"
    return chosen


def grids(markdown: str) -> dict[str, list[dict[str, str]]]:
    """Titles of Markdown tables, and their rows by heading."""
    found: dict[str, list[dict[str, str]]] = {}
    for title, body in re.findall(r"\*\*(.+?)\*\*\n\n((?:\|.*\n?)+)", markdown):
        head, _, *lines = ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in body.splitlines())
        found[title] = [dict(zip(head, line, strict=True)) for line in lines]
    return found


def shown(cell: str) -> float | None:
    return None if cell == "–" else float(cell.split(maxsplit=1)[0])


def share(count: int, rows: list[Row]) -> Any:
    """In percent, to the digit that is printed."""
    return pytest.approx(100 * count / len(rows), abs=0.0501)


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository: the results of one experiment and an empty page."""
    shutil.copytree(RESULTS / "fold", tmp_path / "results" / "reproduce" / "fold")
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("")
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    return tmp_path


def page(kind: str, path: str) -> str:
    return f"<!-- figures: {kind} {path} -->\n<!-- end -->"


@pytest.mark.parametrize(("kind", "path", "block"), BLOCKS, ids=[f"{kind}-{path}" for kind, path, _ in BLOCKS])
def test_every_block_says_what_the_files_say(kind: str, path: str, block: str) -> None:
    named = generate.SECTION.findall(PAGE)
    kinds = {**generate.KINDS, "others": lambda folder: runs.other_sections(folder, named)}
    assert block == f"<!-- figures: {kind} {path} -->\n{kinds[kind](ROOT / path)}\n<!-- end -->"


def test_every_experiment_with_results_is_on_the_page() -> None:
    for folder in FOLDERS:
        title = next(iter(grids(tables.measured_tables(folder))))
        assert f"**{title}**" in PAGE
        assert all(f"{folder.name}/{path.name}" in PAGE for path in folder.glob("*.jsonl.gz"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_figure_by_brute_force(folder: Path) -> None:
    found = grids(tables.measured_tables(folder))
    kinds = {"published test": "published test", "detection": "certified detection", "recovery": "certified recovery"}
    assert len(found) == len(list(folder.glob("*.jsonl.gz")))
    for path in folder.glob("*.jsonl.gz"):
        header, rows = json.loads(gzip.decompress(path.read_bytes()).splitlines()[0]), rows_of(path)
        model, data, patch = path.name.removesuffix(".jsonl.gz").split("--")
        side = header["defences"][next(iter(header["defences"]))]["cover"]["patch"][0]
        wanted = re.compile(rf"{re.escape(f'{model} on {data}')}(, .*\b{side} px\)?)?; {len(rows):,} ")
        (title,) = [t for t in found if wanted.match(t) and ("so few" in t) == patch.endswith("-few")]
        assert [line["defence"] for line in found[title]] == list(header["defences"])
        for line in found[title]:
            name = line["defence"]
            assert shown(line["clean"]) == share(clean(rows, name), rows)
            guarantee = header["defences"][name]["rule"]["guarantee"]
            for kind, column in kinds.items():
                assert shown(line.get(column, "–")) == (share(held(rows, name), rows) if kind == guarantee else None)
            alerts = share(held(rows, name, "alert"), rows) if guarantee in ("detection", "recovery") else None
            assert shown(line.get("false alerts", "–")) == alerts


def test_the_papers_figures_keep_columns_of_their_own() -> None:
    for title, lines in grids(tables.measured_tables(RESULTS / "table1")).items():
        model, data = title.split(",")[0].split(" on ")
        for line in lines:
            if line["defence"] not in ("published k=6", "PatchCleanser 6×6") or not family(model):
                assert line.get("robust, paper", "–") == "–"
        if (model, data) == ("deit_tiny_patch16_224", "imagenet") and "2 % (" in title:
            by_name = {line["defence"]: line for line in lines}
            assert (by_name["published k=6"]["clean, paper"], by_name["published k=6"]["robust, paper"]) == (
                "84.5",
                "75.5",
            )
            assert by_name["PatchCleanser 6×6"]["robust, paper"] == "62.1"


@pytest.mark.parametrize("name", [name for name in ("table1", "fold") if (RESULTS / name).is_dir()])
def test_paired_tables_and_their_summaries_by_brute_force(name: str) -> None:
    markdown = tables.paired_tables(RESULTS / name)
    found = grids(markdown)
    summaries = re.findall(r"in (\d+) of (\d+) runs, on fewer in (\d+); .* in (\d+)\.", markdown)
    assert len(found) == len(summaries) == len(EXPERIMENTS[name].comparisons)
    for comparison, counts in zip(EXPERIMENTS[name].comparisons, summaries, strict=True):
        splits = []
        for rows in measured(name, comparison.first, comparison.second).values():
            sides = [{r["image"] for r in rows if r["defences"][d]["certified"]}
                     for d in (comparison.first, comparison.second)]  # fmt: skip
            splits.append((len(sides[0] - sides[1]), len(sides[1] - sides[0])))
        lines = found[comparison.question]
        counted = [
            tuple(int(line[c].replace(",", "")) for c in ("only the first", "only the second")) for line in lines
        ]
        assert sorted(counted) == sorted(splits)
        more, fewer = sum(a > b for a, b in splits), sum(a < b for a, b in splits)
        sure = sum(float(line["p, Holm"]) < 0.05 for line in lines)
        assert tuple(map(int, counts)) == (more, len(splits), fewer, sure)


def test_gaps_are_means_of_paired_differences() -> None:
    lines = grids(tables.gaps_table(RESULTS / "table1"))["The paper's robust accuracy, difference"]
    expected = []
    for file, rows in measured("table1", "published k=6", "PatchCleanser 6×6").items():
        if family(file.split("--")[0]):
            apart = [
                row["defences"]["published k=6"]["certified"] - row["defences"]["PatchCleanser 6×6"]["certified"]
                for row in rows
            ]
            half = 196 * np.std(apart) / np.sqrt(len(apart))
            middle = 100 * np.mean(apart)
            expected.append(f"{middle:+.1f} ({middle - half:+.1f} to {middle + half:+.1f})")
    assert sorted(line["measured"] for line in lines) == sorted(expected)
    printed = {(line["model"], line["data"], line["patch"]): line["paper"] for line in lines}
    assert printed["deit_tiny_patch16_224", "imagenet", "2 %"] == "+13.4"


def split(rows: list[Row], first: str, second: str, holds: Callable[[Row, str], bool]) -> tuple[int, int]:
    """On how many images it holds for the first defence alone, and for the second alone."""
    sides = [(holds(row, first), holds(row, second)) for row in rows]
    return sides.count((True, False)), sides.count((False, True))


def certified(row: Row, defence: str) -> bool:
    return row["defences"][defence]["certified"] is True


def right(row: Row, defence: str) -> bool:
    return clean([row], defence) == 1


def beyond_chance(splits: dict[str, tuple[int, int]]) -> set[str]:
    """The runs whose split is too uneven for chance, corrected for their number."""
    corrected = holm([mcnemar(*counts) for counts in splits.values()])
    return {file for file, chance in zip(splits, corrected, strict=True) if chance < 0.05}


def test_the_counted_runs_of_table_1_are_as_the_page_says() -> None:
    six, juries, cleanser = "published k=6", "jury recovery k=4, aligned", "PatchCleanser 6×6"
    found = measured("table1", juries)
    assert (len(found), len(measured("table1", six))) == (16, 15)
    kept = {file: split(rows, juries, cleanser, certified) for file, rows in found.items()}
    assert sum(a > b for a, b in kept.values()) == 13
    answered = {file: split(rows, juries, cleanser, right) for file, rows in found.items()}
    assert sum(a < b for a, b in answered.values()) == 13
    assert beyond_chance(answered) == {
        "deit_tiny_patch16_224--imagenet--patch23.jsonl.gz",
        *(f"resnet50_v1--imagenet--patch{side}.jsonl.gz" for side in (23, 32, 39)),
    }
    points = [100 * (b - a) / len(found[file]) for file, (a, b) in answered.items()]
    assert max(points) == pytest.approx(2.4)
    gained = [kept[f"resnet50_v1--imagenet--patch{side}.jsonl.gz"] for side in (23, 32, 39)]
    assert abs(sum(a - b for a, b in gained)) < 5, "hardly gains certificates"
    more = {file: split(rows, "jury detection k=6", "jury detection, exact minimum k=1", certified)
            for file, rows in measured("table1", six).items()}  # fmt: skip
    assert len(beyond_chance(more)) == 2
    lines = grids(tables.gaps_table(RESULTS / "table1"))["The paper's robust accuracy, difference"]
    within = 0
    for line in lines:
        low, high = map(float, re.findall(r"\((.*) to (.*)\)", line["measured"])[0])
        within += low <= float(line["paper"]) <= high
    assert (within, len(lines)) == (4, 12)


def most(count: int, of: int) -> bool:
    return 2 * count > of


def test_the_readings_of_table_1_are_borne_out() -> None:
    """What the page says in words; where a later run makes a sentence false, the sentence has to go."""
    found = measured("table1", "published k=6")
    six, one, cleanser, juries = (
        "published k=6", "published, exact minimum k=1", "PatchCleanser 6×6", "jury recovery k=4, aligned",
    )  # fmt: skip
    detection, once = "jury detection k=6", "jury detection, exact minimum k=1"
    assert all(held(rows, six) > held(rows, cleanser) for rows in found.values())
    assert all(held(rows, one) > held(rows, six) for rows in found.values())
    assert most(sum(clean(rows, one) < clean(rows, six) for rows in found.values()), len(found))
    assert most(sum(held(rows, detection) > held(rows, once) for rows in found.values()), len(found))
    assert all(passes(rows, detection) > 3 * passes(rows, once) for rows in found.values())
    assert most(sum(held(rows, juries) > held(rows, cleanser) for rows in found.values()), len(found))
    assert most(sum(clean(rows, juries) < clean(rows, cleanser) for rows in found.values()), len(found))
    assert all(passes(rows, juries) > passes(rows, cleanser) for rows in found.values())
    for rows in found.values():
        for row in rows:
            assert row["defences"][detection]["certified"] or not row["defences"][six]["certified"]


def test_the_readings_about_imagenet_and_the_paper_are_borne_out() -> None:
    found = measured("table1", data="imagenet")
    juries, reports = "jury detection k=6", "Minority Reports k=6"
    alerts = [100 * held(rows, juries, "alert") / len(rows) for rows in found.values()]
    assert (round(min(alerts)), round(max(alerts))) == (33, 51)
    for rows in found.values():
        assert held(rows, reports) < held(rows, juries)
        assert held(rows, reports, "alert") < held(rows, juries, "alert")
        assert len({row["label"] for row in rows}) == len(rows), "no two photos of one class"
    for _, found_entries in tables.runs_of(RESULTS / "table1"):
        for entry in found_entries:
            if entry.reported and not entry.few:
                assert 100 * entry.measured.clean.value < entry.reported.clean
                assert 100 * entry.measured.certified.value < entry.reported.robust


def test_the_readings_of_the_fold_are_borne_out() -> None:
    for rows in measured("fold").values():
        unanimous, pairs, everything, aligned, detected = (
            {k: held(rows, f"{name} k={k}{end}") for k in (1, 2, 4, 6, 9)}
            for name, end in (("published", ""), ("PatchCleanser's rule", ""), ("jury recovery", ", all"),
                              ("jury recovery", ", aligned"), ("jury detection", ""))
        )  # fmt: skip
        for k in (2, 4, 6, 9):
            assert unanimous[k] < unanimous[1]
            assert pairs[k] < pairs[1]
            assert everything[k] > everything[1]
            assert aligned[k] > aligned[1]
        for recovered in (everything, aligned):
            assert most(recovered[4] - recovered[1], recovered[9] - recovered[1])
        assert 100 * (detected[9] - detected[1]) / len(rows) == pytest.approx(2.7, abs=0.05)
        assert mcnemar(*split(rows, "jury detection k=9", "jury detection k=1", certified)) > 0.05
        assert abs(everything[9] - aligned[9]) < 0.02 * len(rows)
        assert passes(rows, "jury recovery k=9, aligned") < passes(rows, "jury recovery k=9, all") / 4


def test_the_reading_of_75_264_masks_is_borne_out() -> None:
    (path,) = (RESULTS / "table1").glob("*-few.jsonl.gz")
    rows = rows_of(path)
    header = json.loads(gzip.decompress(path.read_bytes()).splitlines()[0])
    cover, exact = (header["defences"][name]["cover"] for name in ("published k=6", "published, exact minimum k=1"))
    assert (cover["placed"], cover["masks"], exact["masks"], len(rows)) == (75264, 50176, 5041, 10)
    for many, few in (("published k=6", "published, exact minimum k=1"),
                      ("jury detection k=6", "jury detection, exact minimum k=1")):  # fmt: skip
        for row in rows:
            one, other = row["defences"][many], row["defences"][few]
            assert (one["certified"], one["alert"]) == (other["certified"], other["alert"])


def test_the_readings_of_tables_3_and_4_are_borne_out() -> None:
    replicated, offset = "published, Replicated k=6", "published, Offset k=6"
    for file, rows in measured("table3").items():
        juries = split(rows, "jury detection, Offset k=6", "jury detection, Replicated k=6", certified)
        assert (juries[0] > juries[1]) == ("imagenette" not in file)
        assert (mcnemar(*split(rows, replicated, offset, right)) > 0.05) == ("imagenette" in file)
        assert held(rows, replicated) > held(rows, offset)
        assert clean(rows, replicated) < clean(rows, offset)
        for row in rows:
            assert row["defences"][replicated]["certified"] == row["defences"]["published, Replicated k=1"]["certified"]
    for rows in measured("table4").values():
        assert clean(rows, "published k=6") > clean(rows, "published k=1")
        assert held(rows, "published k=6") < held(rows, "published k=1")
        assert held(rows, "jury detection k=6") >= held(rows, "jury detection k=1")


def test_the_readings_of_the_mask_sizes_are_borne_out() -> None:
    for rows in measured("figure-mask-size").values():
        lost = held(rows, "published, mask 40") - held(rows, "published, mask 120")
        assert 0.10 < lost / len(rows) < 0.18, "about 14 points"
        small, medium = "jury detection, mask 40", "jury detection, mask 64"
        assert held(rows, medium) > held(rows, small) - 0.02 * len(rows)
        assert passes(rows, medium) < passes(rows, small) / 10
    points = {"resnet50_v1": (14, 60), "deit_tiny_patch16_224": (10, 18)}
    for file, rows in measured("appendix-d").items():
        small, large = "published, mask 56", "published, mask 120"
        lost = held(rows, small) - held(rows, large)
        low, high = points[file.split("--")[0]]
        assert low < 100 * lost / len(rows) < high
        blurred = 100 * (clean(rows, small) - clean(rows, large)) / len(rows)
        assert blurred > 2 if file.startswith("resnet50") else abs(blurred) < 1
        assert held(rows, "jury detection, mask 56") - held(rows, "jury detection, mask 120") < lost / 2
        assert 10 < passes(rows, small) / passes(rows, large) < 21


def test_the_readings_of_the_patch_sizes_are_borne_out() -> None:
    found = {int(file.split("--patch")[1].removesuffix(".jsonl.gz")): rows
             for file, rows in measured("figure-patch-size").items()}  # fmt: skip
    six, detection, cleanser, juries = (
        "published k=6", "jury detection k=6", "PatchCleanser 6×6", "jury recovery k=4, aligned",
    )  # fmt: skip
    for rows in found.values():
        assert held(rows, six) > held(rows, cleanser) > 0
        assert held(rows, detection) >= held(rows, six)
        assert held(rows, juries) >= held(rows, cleanser)
    assert most(held(found[30], six) - held(found[130], six), held(found[30], six))
    alerts = [held(found[side], detection, "alert") for side in sorted(found)]
    assert alerts == sorted(alerts)


def proved(rows: list[Row], defence: str) -> float:
    """Passes of a proof that was completed."""
    counts = [row["defences"][defence]["certificate_passes"] for row in rows if row["defences"][defence]["certified"]]
    return float(np.mean(counts))


DEFAULT = "jury recovery k=4, mask 80, aligned"


def test_the_default_cover_is_the_one_that_the_page_chooses() -> None:
    """On the measured front, and what an engineer gets who asks for nothing."""
    (path,) = (RESULTS / "pareto").glob("*.jsonl.gz")
    header, rows = json.loads(gzip.decompress(path.read_bytes()).splitlines()[0]), rows_of(path)
    assert header["defences"][DEFAULT]["cover"]["digest"] == default_cover(224, Patch(32, 32)).digest
    assert header["defences"][DEFAULT]["rule"]["pairs"] == "aligned"
    affordable = [name for name in header["defences"] if proved(rows, name) <= 1000]
    assert DEFAULT in affordable
    assert len(affordable) > 5
    assert all(held(rows, name) < held(rows, DEFAULT) for name in affordable if name != DEFAULT)


def test_the_readings_of_the_front_are_borne_out() -> None:
    for rows in measured("pareto").values():
        names = list(rows[0]["defences"])
        grids = [name for name in names if name.startswith("PatchCleanser")]
        assert all(held(rows, name) < held(rows, DEFAULT) for name in grids)
        assert (held(rows, DEFAULT), max(held(rows, name) for name in grids)) == (79, 73)
        assert (proved(rows, DEFAULT), proved(rows, "PatchCleanser 12×12")) == (881, 10440)
        for cheap in ("PatchCleanser 3×3", "PatchCleanser 4×4"):
            assert all(held(rows, n) <= held(rows, cheap) for n in names if proved(rows, n) <= proved(rows, cheap))
        sixes = [held(rows, f"PatchCleanser {n}×{n}") for n in (6, 9, 12)]
        assert max(sixes) - min(sixes) <= 0.01 * len(rows)
        smaller = "jury recovery k=4, mask 64, aligned"
        assert held(rows, smaller) - held(rows, DEFAULT) == 1
        assert 4 < proved(rows, smaller) / proved(rows, DEFAULT) < 5
        for name, more, times in (("k=9, mask 80, aligned", 1, 2.6), ("k=4, mask 80, all", 0, 3.8),
                                  ("k=9, mask 80, all", 3, 22)):  # fmt: skip
            assert held(rows, f"jury recovery {name}") - held(rows, DEFAULT) == more
            assert proved(rows, f"jury recovery {name}") / proved(rows, DEFAULT) == pytest.approx(times, rel=0.02)
        for size in (112, 96, 80, 64):
            mean, logs, labels = (held(rows, f"jury recovery k=4, mask {size}, aligned{end}")
                                  for end in ("", ", mean log-probability", ", label majority"))  # fmt: skip
            assert abs(mean - logs) <= 0.02 * len(rows)
            assert labels < mean


def test_nowhere_is_the_default_cover_behind_beyond_chance() -> None:
    lines = grids(tables.paired_tables(RESULTS / "table1"))[
        "juries at fold 2×2 against PatchCleanser, at most 881 and 666 passes"
    ]
    assert len({line["model"] for line in lines}) == 6
    for line in lines:
        if int(line["only the second"]) > int(line["only the first"]):
            assert float(line["p"]) > 0.05
    (chosen_on,) = measured("pareto").values()
    seen = {row["image"] for row in chosen_on}
    rows = measured("table1")["deit_tiny_patch16_224--imagenet--patch32.jsonl.gz"]
    rest = [row for row in rows if row["image"] not in seen]
    assert len(rest) == 800
    assert split(rest, "jury recovery k=4, aligned", "PatchCleanser 6×6", certified) == (36, 11)
    corrected = re.findall(r"after Holm\) in (\d)\.", tables.paired_tables(RESULTS / "pareto"))
    assert (len(corrected), corrected.count("1")) == (8, 1)


def test_another_process_came_to_the_same_verdicts() -> None:
    """What the page says of compiling: equal without timed kernels, not with them."""
    lines = grids(generate.KINDS["twice"](ROOT / "results" / "twice"))[
        "The same defences on the same photos in two processes"
    ]
    (fixed,) = [line for line in lines if line["compiled"] == "deterministic"]
    assert (fixed["verdicts"], fixed["other answer"], fixed["other certificate"]) == ("4,320", "0", "0")
    timed = [line for line in lines if line["compiled"] == "kernels timed"]
    assert len(timed) == 3
    assert sum(int(line["other certificate"]) for line in timed) > 0
    for path in RESULTS.glob("*/*.jsonl.gz"):
        model = json.loads(gzip.decompress(path.read_bytes()).splitlines()[0])["model"]
        assert model["compile_options"] == {"deterministic": True}


def test_a_changed_row_makes_the_page_stale(copy: Path, capsys: pytest.CaptureFixture[str],
                                             monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    text = generate.filled(page("experiment", "results/reproduce/fold"))
    (copy / "docs" / "results.md").write_text(text)
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    assert generate.main() == 0
    (path,) = (copy / "results" / "reproduce" / "fold").glob("*.jsonl.gz")
    header, *rows = (json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines())
    row = next(r for r in rows if r["defences"]["published k=1"]["certified"])
    row["defences"]["published k=1"]["certified"] = False
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, [header, *rows])).encode() + b"\n"))
    tables.runs_of.cache_clear()
    assert generate.main() == 1
    assert "results.md does not agree" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["experiment", "paired", "tally"])
def test_packed_and_unpacked_results_give_the_same_block(copy: Path, kind: str) -> None:
    folder = copy / "results" / "reproduce" / "fold"
    before = generate.KINDS[kind](folder)
    (path,) = folder.glob("*.jsonl.gz")
    path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    tables.runs_of.cache_clear()
    with pytest.raises(CertmaskError, match="got both"):
        generate.KINDS[kind](folder)
    path.unlink()
    assert generate.KINDS[kind](folder) == before


def spoil_gzip(folder: Path) -> None:
    next(folder.glob("*.jsonl.gz")).write_bytes(b"nonsense")


def rename(folder: Path) -> None:
    path = next(folder.glob("*.jsonl.gz"))
    path.rename(path.with_name("a--b--patch40.jsonl.gz"))


def empty(folder: Path) -> None:
    shutil.rmtree(folder)


def untouched(folder: Path) -> None:
    return None


@pytest.mark.parametrize(
    ("kind", "path", "spoil", "expected"),
    [
        ("nonsense", "fold", untouched, "expected a block of"),
        ("experiment", "fold", empty, "expected results of fold"),
        ("experiment", "fold", spoil_gzip, "expected a gzip file"),
        ("paired", "fold", rename, "expected MODEL--DATA--PATCH"),
        ("experiment", "table9", untouched, "expected a folder called"),
        ("experiment", "table1", untouched, "expected results of table1"),
        ("gaps", "fold", untouched, "expected runs with two figures of the paper"),
        ("tally", "table2", untouched, "expected an experiment with tallied questions"),
        ("plots", "table1", untouched, "expected an experiment with a plot"),
        ("setting", ".", empty, "expected results of experiments"),
        ("missing", "nowhere", untouched, "expected results of experiments"),
    ],
)
def test_wrong_blocks_are_told(
    copy: Path, kind: str, path: str, spoil: Callable[[Path], None], expected: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    spoil(copy / "results" / "reproduce" / "fold")
    (copy / "docs" / "results.md").write_text(page(kind, f"results/reproduce/{path}"))
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    assert generate.main() == 1
    error = capsys.readouterr().err
    assert error.startswith(expected)
    assert ", got " in error


def test_an_experiment_without_a_section_gets_one(copy: Path) -> None:
    others = page("others", "results/reproduce")
    alone = generate.filled(others)
    assert "## Beyond the paper: Recovery and detection against the fold" in alone
    assert tables.measured_tables(copy / "results/reproduce/fold") in alone
    assert "(images/fold--deit_tiny_patch16_224--imagenet--patch32.png)" in alone
    both = generate.filled(f"{page('experiment', 'results/reproduce/fold')}\n{others}")
    assert both.endswith("<!-- figures: others results/reproduce -->\n\n<!-- end -->")


def test_plots_are_drawn_where_the_page_looks_for_them(copy: Path) -> None:
    runs.draw_plots(copy / "results" / "reproduce", copy / "docs" / "images")
    for target in re.findall(r"\]\((images/[^)]+)\)", runs.plots(copy / "results" / "reproduce" / "fold")):
        assert (copy / "docs" / target).stat().st_size > 10_000
        assert (ROOT / "docs" / target).is_file()


def test_what_is_missing_is_what_no_run_stands_beside(copy: Path) -> None:
    lines = runs.missing(copy / "results" / "reproduce").splitlines()
    assert [line.split(": ")[0] for line in lines if line.endswith(": no run.")] == [
        f"- {e.place}".split(": ")[0] for e in EXPERIMENTS.values() if e.reported
    ]
    now = dict(line.removeprefix("- ").split(": ", 1) for line in runs.missing(RESULTS).splitlines())
    files = [
        path.name.removesuffix(".jsonl.gz").removesuffix("-few").split("--")
        for path in (RESULTS / "table1").glob("*.jsonl.gz")
        if "published k=6" in rows_of(path)[0]["defences"]
    ]
    there = {(family(model), data, patch) for model, data, patch in files}
    for reported in EXPERIMENTS["table1"].reported:
        if reported.model:
            threats = EXPERIMENTS["table1"].threats[reported.data]
            slug = next(threat.slug for threat in threats if threat.label == reported.threat)
            listed = re.search(rf"{reported.data} {re.escape(reported.threat)} \(([^)]*)\)", now.get("Table 1", ""))
            absent = listed is not None and reported.model in listed[1].split(", ")
            assert absent == ((reported.model, reported.data, slug) not in there)


def test_the_command_lines_can_be_typed(tmp_path: Path) -> None:
    """One per experiment; checkpoints of one's own would have to be there."""
    lines = [shlex.split(line) for line in runs.commands(RESULTS).splitlines()]
    typed = {words[2]: words[1:] for words in reversed(lines) if ".safetensors" not in " ".join(words)}
    assert typed.keys() == {folder.name for folder in FOLDERS}
    for name, words in typed.items():
        plan = certmask(*words, "--dry-run", cwd=tmp_path).stdout
        model, data = (words[words.index(option) + 1].split("=")[0] for option in ("--model", "--data"))
        assert f"{name}/{model}--{data}--patch" in plan
    every = {(words[2], words[4].split("=")[0].removesuffix(".safetensors")) for words in lines}
    files = [path for path in RESULTS.glob("*/*.jsonl.gz") if "-few" not in path.name]
    assert every == {(path.parent.name, path.name.split("--")[0]) for path in files}
