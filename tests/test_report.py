"""``certmask report``: every figure recomputed from the file, a page that needs nothing, hostile names, bad files."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import os
import pickle
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from commands import Done, certmask
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation
from PIL import Image
from scipy.stats import binomtest

from certmask.attacks.pictures import save_picture
from certmask.certificate import BASES, Guarantee
from certmask.covers import offset_cover, patchcleanser_cover, spread_cover, zoom_cover
from certmask.covers.costs import certificate_passes, cover_choice
from certmask.data import load_dataset, pixel_digest, to_tensor
from certmask.defences import MaskedDefence
from certmask.errors import ResultsError
from certmask.report.drawing import (
    RED,
    draw_cover,
    draw_curves,
    jury,
    middle,
    paint_votes,
    patches_in,
    thumbnail,
    with_frames,
    with_jury,
)
from certmask.report.gallery import (
    CERTIFIED,
    FATES,
    drawn_place,
    fate,
    photo_exhibition,
    picked,
    read_album,
    seen_photo,
)
from certmask.report.glossary import TERMS
from certmask.report.plots import (
    BLUE,
    PALETTE,
    STYLE,
    dissent_figure,
    dissent_range,
    frontier,
    price_caption,
    price_figure,
    rings,
    share_figure,
    svg_plot,
)
from certmask.report.reasons import attack_outcome, shortfall
from certmask.report.report import read_report
from certmask.report.tables import latex_text, markdown_text
from certmask.results.columns import COLUMNS, Column, Figures, figures
from certmask.results.file import picture_folder, read_results
from certmask.results.kinds import AMOUNT
from certmask.results.run import Run, read_runs, short_names
from certmask.results.statistics import Share
from certmask.rules import JuryDetection, JuryRecovery, MinorityReports, PatchCleanser, Published, Undefended
from certmask.threat import Patch

Lines = list[dict[str, Any]]
DEMO = Path(__file__).parent.parent / "results" / "demo.jsonl"
SIZE, PATCH = 32, Patch(8, 8)
FOURFOLD = spread_cover(SIZE, PATCH, 20, 2)
DEFENCES = [
    MaskedDefence(FOURFOLD, Undefended(), "undefended"),
    MaskedDefence(offset_cover(SIZE, PATCH, 16, (2, 3)), Published(), "published k=6"),
    MaskedDefence(FOURFOLD, JuryDetection(margin=0.02), "jury detection"),
    MaskedDefence(FOURFOLD, MinorityReports(0.5, 0.02), "minority reports"),
    MaskedDefence(FOURFOLD, JuryRecovery("aligned", margin=0.01), "jury recovery"),
    MaskedDefence(patchcleanser_cover(SIZE, PATCH, 3), PatchCleanser(margin=0.01), "PatchCleanser"),
]
ZOOMED = MaskedDefence(zoom_cover(SIZE, PATCH, (2, 3, 5)), JuryRecovery(margin=0.01), "jury recovery")
KIND = {"recovery": "certified_recovery", "detection": "certified_detection", "published test": "published_test"}
EVIL = "<script>alert(1)</script>\"'&|_%$#{}\\~^[x](y)`*"


def outcome(guarantee: str, label: int, chance: random.Random) -> dict[str, Any]:
    """An invented outcome that keeps its promise."""
    certified = chance.random() < 0.4 if guarantee != "none" else None
    alert = chance.random() < 0.3 and guarantee not in ("none", "published test")
    answer = label if chance.random() < 0.7 else (label + 1) % 10
    if certified:
        alert = alert and guarantee == "detection"
        answer = answer if alert else label
    prices = {
        "passes": chance.randrange(1, 50),
        "certificate_passes": 0 if certified is None else chance.randrange(9, 99),
    }
    return {"label": answer, "alert": alert, "certified": certified, "dissent": chance.randrange(9), **prices}


def made_lines(images: int = 30, seed: int = 0) -> Lines:
    """The lines of an invented results file with every kind of guarantee."""
    chance = random.Random(seed)
    defences = json.loads(json.dumps({defence.name: defence.describe() for defence in DEFENCES}))
    model = {"name": "tiny", "precision": "fp32", "size": [SIZE, SIZE], "classes": 10, "batch": 4, "device": "cpu"}
    data = {"name": "squares", "images": images, "digest": "d", "crop": 1.0}
    lines: Lines = [{"certmask_results": 1, "kind": "certify", "model": model, "data": data, "defences": defences}]
    for number in range(images):
        label = number % 10
        found = {name: outcome(s["rule"]["guarantee"], label, chance) for name, s in defences.items()}
        row = {"image": f"{label}/{number:03d}.png", "label": label, "passes": 200, "seconds": 0.5, "batch": 4}
        lines.append({**row, "defences": found, "input_sha256": f"{number:016x}"})
    return lines


def saved(path: Path, lines: Lines) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return saved(tmp_path / "run.jsonl", made_lines())


@pytest.fixture
def photographed(tmp_path: Path) -> Path:
    """A results file whose photos exist: coloured squares under ``photos``."""
    lines = made_lines()
    for row in lines[1:]:
        number = int(row["image"][2:5])
        pixels = np.random.default_rng(number).integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8)
        (tmp_path / "photos" / row["image"]).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "photos" / row["image"])
        row["input_sha256"] = pixel_digest(to_tensor(Image.fromarray(pixels)))
    return saved(tmp_path / "run.jsonl", lines)


DRAWN: dict[bytes, bytes] = {}


@pytest.fixture(autouse=True)
def plots_of_the_same_figures_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most pages here show one of a few runs; what they say around their plots is made anew each time."""

    def drawn(draw: Callable[..., Figure], *shown: Any) -> bytes:
        figures = pickle.dumps((draw.__name__, shown))
        if figures not in DRAWN:
            DRAWN[figures] = svg_plot(draw, *shown)
        return DRAWN[figures]

    monkeypatch.setattr("certmask.report.page.svg_plot", drawn)


def report(*arguments: str | Path, cwd: Path, code: int = 0) -> Done:
    return certmask("report", *arguments, "--out", "page.html", cwd=cwd, code=code)


class Page(HTMLParser):
    """Reads a page strictly: every element is closed in order, attributes and texts are collected."""

    ALONE = ("meta", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: Counter[str] = Counter()
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.classes: Counter[str] = Counter()
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] += 1
        for name, value in attrs:
            assert not name.startswith("on")
            self.addresses += [str(value)] if name in ("src", "href", "srcset", "action", "data") else []
            self.ids += [str(value)] if name == "id" else []
            self.classes += Counter(str(value).split()) if name == "class" else Counter()
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in self.ALONE:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += (" " if self.open[-1] == "small" else "") + data

    @property
    def text(self) -> str:
        return "".join(self.texts)


def page_of(folder: Path) -> Page:
    return Page((folder / "page.html").read_text(encoding="utf-8"))


def test_every_figure_is_recomputed_from_the_file(run: Path) -> None:
    """Counts by plain loops over the lines, intervals by scipy."""
    report(run, "--csv", cwd=run.parent)
    header, *rows = made_lines()
    records = list(csv.DictReader((run.parent / "page.csv").open(encoding="utf-8")))
    assert [record["defence"] for record in records] == list(header["defences"])
    for record in records:
        defence = header["defences"][record["defence"]]
        found = [(row["label"], row["defences"][record["defence"]]) for row in rows]
        counts = {
            "clean_accuracy": sum(o["label"] == label and not o["alert"] for label, o in found),
            "false_alerts": sum(o["alert"] for _, o in found),
        }
        guarantee = defence["rule"]["guarantee"]
        if guarantee != "none":
            counts[KIND[guarantee]] = sum(o["certified"] for _, o in found)
        if guarantee == "detection":
            right = [o for label, o in found if o["label"] == label and not o["alert"]]
            counts["certified_and_quiet"] = sum(o["certified"] for o in right)
        for name in ("clean_accuracy", "false_alerts", "certified_and_quiet", *KIND.values()):
            check_share(record, name, counts.get(name))
        proofs = [o["certificate_passes"] for _, o in found if o["certified"]]
        assert record["passes_to_prove_if_proved"] == (str(sum(proofs) / len(proofs)) if proofs else "")
        assert float(record["passes_to_prove_if_proved_median"] or -1) == (np.median(proofs) if proofs else -1)
        mean = sum(o["passes"] for _, o in found) / len(found)
        assert float(record["passes_to_answer"]) == pytest.approx(mean)
        assert float(record["estimated_milliseconds_to_answer"]) == pytest.approx(mean * 500 / 200)
        assert record["masks"] == ("" if guarantee == "none" else str(defence["cover"]["masks"]))


def check_share(record: dict[str, str], name: str, count: int | None) -> None:
    if count is None:
        assert [record[f"{name}{end}"] for end in ("", "_count", "_low", "_high")] == [""] * 4
        return
    interval = binomtest(count, 30).proportion_ci(method="wilson")
    assert record[f"{name}_count"] == str(count)
    assert float(record[name]) == pytest.approx(count / 30)
    assert float(record[f"{name}_low"]) == pytest.approx(interval.low, abs=1e-12)
    assert float(record[f"{name}_high"]) == pytest.approx(interval.high, abs=1e-12)


def test_the_page_agrees_with_the_table_command_on_the_demo(tmp_path: Path) -> None:
    report(DEMO, "--csv", cwd=tmp_path)
    records = csv.DictReader((tmp_path / "page.csv").open(encoding="utf-8"))
    (printed,) = json.loads(certmask("table", DEMO, "--json").stdout)
    for record, line in zip(records, printed["lines"], strict=True):
        names = "clean_accuracy", "certified_recovery", "certified_detection", "certified_and_quiet", "published_test"
        for name in (*names, "false_alerts"):
            assert record[name] == ("" if line[name] is None else str(line[name]))
        assert float(record["passes_to_prove"] or 0) == pytest.approx(line["certificate_passes"])
        assert float(record["passes_to_answer"]) == pytest.approx(line["passes"])
    assert "PatchCleanser 6×6 proves it for 18 of 20 images (90.0 %" in page_of(tmp_path).text


def test_guarantees_never_share_a_column(run: Path) -> None:
    report(run, cwd=run.parent)
    upper, lower, *rows = page_of(run.parent).tables[0]
    assert upper == ["defence", "share of images, %", "masks", "passes per image", "ms per image, estimated", "images"]
    assert lower[:6] == [
        "clean accuracy",
        "certified recovery",
        "certified detection",
        "certified and quiet",
        "false alerts",
        "published test",
    ]
    filled = {row[0]: [cell != "–" for cell in (*row[2:5], row[6])] for row in rows}
    assert filled == {
        "undefended": [False, False, False, False],
        "published k=6": [False, False, False, True],
        "jury detection": [False, True, True, False],
        "minority reports": [False, True, True, False],
        "jury recovery": [True, False, False, False],
        "PatchCleanser": [True, False, False, False],
    }
    assert all(re.fullmatch(r"\d+\.\d \[\d+\.\d, \d+\.\d\]", cell) for row in rows for cell in (row[1], row[5]))


def test_the_page_stands_alone(photographed: Path) -> None:
    report(photographed, "--photos", "photos", cwd=photographed.parent)
    page = page_of(photographed.parent)
    assert all(address.startswith(("data:image/", "#")) for address in page.addresses)
    anchors = {address[1:] for address in page.addresses if address.startswith("#")}
    assert anchors <= set(page.ids)
    assert len(set(page.ids)) == len(page.ids)
    assert not {"script", "link", "iframe", "object", "embed", "form", "base"} & set(page.seen)
    text = (photographed.parent / "page.html").read_text(encoding="utf-8")
    assert "default-src 'none'; img-src data:" in text.replace("&#x27;", "'")
    assert not re.search(r"https?:|url\(|@import", text)
    assert page.seen["figure"] >= 4


def test_names_from_files_do_nothing_but_stand_there(tmp_path: Path) -> None:
    """A hostile name is text in the page, in Markdown and in LaTeX, wherever it comes from."""
    lines = made_lines()
    lines[0]["model"] |= {"name": EVIL, "precision": EVIL, "device": EVIL, EVIL: EVIL}
    lines[0]["data"]["name"] = EVIL
    lines[0]["defences"][EVIL] = {**lines[0]["defences"].pop("jury recovery"), "name": EVIL}
    for row in lines[1:]:
        row["image"] += EVIL
        row["defences"][EVIL] = row["defences"].pop("jury recovery")
    path = saved(tmp_path / "<script>alert(2)<_script>.jsonl", lines)
    report(path, "--markdown", "--latex", "--csv", cwd=tmp_path)
    page = page_of(tmp_path)
    assert "script" not in page.seen
    assert page.text.count(EVIL) >= 6
    assert any(row["defence"] == EVIL for row in csv.DictReader((tmp_path / "page.csv").open(encoding="utf-8")))
    assert "<script" not in (tmp_path / "page.md").read_text(encoding="utf-8")
    latex = (tmp_path / "page.tex").read_text(encoding="utf-8")
    assert latex_text(EVIL) in latex
    check_latex(latex)


def check_latex(text: str) -> None:
    """Braces balance, and every row of a tabular has as many cells as it has columns."""
    bare = re.sub(r"\\[\\&%$#_{}]", "", text.replace(r"\\", ""))
    assert bare.count("{") == bare.count("}")
    for columns, body in re.findall(r"\\begin{tabular}{([lr]+)}(.*?)\\end{tabular}", text, re.DOTALL):
        rows = [line for line in body.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
        assert len(rows) >= 2
        assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} == {len(columns)}


def test_names_that_are_hard_to_draw(tmp_path: Path) -> None:
    """Nothing, control characters, right-to-left, formulas and half a novel as names of defences: every plot is XML."""
    lines = made_lines()
    for old, new in zip(
        list(lines[0]["defences"]), ("", "\0\x1b\n", "\u202eevil", "$\\frac{", "x" * 500, "--> "), strict=True
    ):
        for line in lines:
            line["defences"][new] = line["defences"].pop(old)
    report(saved(tmp_path / "run.jsonl", lines), cwd=tmp_path)
    plots = [address for address in page_of(tmp_path).addresses if address.startswith("data:image/svg")]
    assert len(plots) >= 3
    for plot in plots:
        ElementTree.fromstring(base64.b64decode(plot.partition(",")[2]))


@given(st.text(max_size=20))
def test_escaped_text_has_no_markup_left(text: str) -> None:
    assert not re.search(r"(?<!\\)[&%$#_{}~^](?!})", re.sub(r"\\text\w+{}|\\dots{}|\$\\times\$", "", latex_text(text)))
    plain = re.sub(r"\\[\\|*_`\[\]#]|&(lt|gt|amp);|(?<=[^\W_])_(?=[^\W_])", "", markdown_text(text))
    assert not set("|*_`[]#<>&\\\n") & set(plain)


def test_markdown_and_latex_say_what_the_page_says(run: Path) -> None:
    report(run, "--markdown", "--latex", cwd=run.parent)
    page = page_of(run.parent)
    markdown = (run.parent / "page.md").read_text(encoding="utf-8")
    latex = (run.parent / "page.tex").read_text(encoding="utf-8")
    check_latex(latex)
    for row in page.tables[0][2:]:
        cells = [markdown_text(cell) for cell in row]
        assert f"| {' | '.join(cells)} |" in markdown
        assert f"{{{latex_text(row[0])}}} & {{{row[1].split()[0]}}}" in latex
    grids = [line for line in markdown.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in grids[:8]} == {15}


def test_the_same_input_gives_the_same_bytes(photographed: Path) -> None:
    """Also in another process, with another order of hashes."""
    report(photographed, "--photos", "photos", cwd=photographed.parent)
    first = (photographed.parent / "page.html").read_bytes()
    DRAWN.clear()
    report(photographed, "--photos", "photos", cwd=photographed.parent)
    assert (photographed.parent / "page.html").read_bytes() == first
    command = [
        sys.executable,
        "-c",
        "from certmask.cli import main; main()",
        "report",
        "run.jsonl",
        "--photos",
        "photos",
    ]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    subprocess.run([*command, "--out", "other.html"], cwd=photographed.parent, env=environment, check=True)
    assert (photographed.parent / "other.html").read_bytes() == first


def test_paired_rows_by_brute_force(tmp_path: Path) -> None:
    """Only one guarantee, one patch and the same pixels are compared; counts by loops over both files."""
    here, there = made_lines(seed=1), made_lines(seed=2)
    for row in there[1:11]:
        row["input_sha256"] = "other pixels"
    there[0]["defences"]["PatchCleanser"]["cover"]["patch"] = [9, 9]
    paths = [saved(tmp_path / "a.jsonl", here), saved(tmp_path / "b.jsonl", there)]
    report(*paths, "--csv", cwd=tmp_path)
    found = {
        (row["first"], row["second"]): row
        for row in csv.DictReader((tmp_path / "page-paired.csv").open(encoding="utf-8"))
    }
    recovery = {"a.jsonl: jury recovery", "a.jsonl: PatchCleanser", "b.jsonl: jury recovery"}
    detection = {
        f"{run}: {defence}" for run in ("a.jsonl", "b.jsonl") for defence in ("jury detection", "minority reports")
    }
    published = {"a.jsonl: published k=6", "b.jsonl: published k=6"}
    expected = [{a, b} for kind in (recovery, detection, published) for a in kind for b in kind if a < b]
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))
    row = found["a.jsonl: jury recovery", "b.jsonl: jury recovery"]
    sides = [
        (a["defences"]["jury recovery"]["certified"], b["defences"]["jury recovery"]["certified"])
        for a, b in zip(here[11:], there[11:], strict=True)
    ]
    assert (row["images"], row["only_first"], row["only_second"], row["both"]) == (
        "20", str(sides.count((True, False))), str(sides.count((False, True))), str(sides.count((True, True))),
    )  # fmt: skip
    differing = sides.count((True, False)) + sides.count((False, True))
    assert float(row["p_mcnemar"]) == pytest.approx(binomtest(sides.count((True, False)), differing).pvalue)
    assert all(float(other["p_holm"]) >= float(other["p_mcnemar"]) for other in found.values())
    assert "All runs" in page_of(tmp_path).text


def test_runs_without_pixel_hashes_are_not_paired_across(tmp_path: Path) -> None:
    paths = []
    for name in "ab":
        lines = made_lines(seed=ord(name))
        for row in lines[1:]:
            del row["input_sha256"]
        paths.append(saved(tmp_path / f"{name}.jsonl", lines))
    contests = read_report(paths).contests
    assert contests
    assert all(contest.first.split(":")[0] == contest.second.split(":")[0] for contest in contests)


def cut(lines: Lines) -> None:
    del lines[6:]


def nothing_proved(lines: Lines) -> None:
    for row in lines[1:]:
        for found in row["defences"].values():
            found["certified"] = found["certified"] and None if found["certified"] is None else False


def other_batch(lines: Lines) -> None:
    for row in lines[1:4]:
        row["batch"] = 2


def only_undefended(lines: Lines) -> None:
    lines[0]["defences"] = {"undefended": lines[0]["defences"]["undefended"]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (cut, ("5 of 30 images of squares", "25 images are still to come")),
        (nothing_proved, ("Certified recovery: none of 2 defences proves it for any image.", "on 0 of 30 images")),
        (other_batch, ("3 images ran with batch 2, not 4: their certificates are for that function.",)),
        (only_undefended, ("No defence of this run has a proved guarantee.",)),
        (lambda lines: None, ("no number that a rule reads moves by more than 0.005",
                              "no guarantee against an adaptive attacker",
                              "the true class is answered or an alert raised, whatever the patch shows",
                              "one 8×8 patch (6.2 % of 32×32)", "Nothing here speaks of another threat: more patches")),
    ],
)  # fmt: skip
def test_the_summary_in_words(change: Callable[[Lines], None], words: tuple[str, ...], tmp_path: Path) -> None:
    lines = made_lines()
    change(lines)
    report(saved(tmp_path / "run.jsonl", lines), "--markdown", cwd=tmp_path)
    for sentence in words:
        assert sentence in page_of(tmp_path).text
        assert sentence.split(" (")[0] in (tmp_path / "page.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("change", [cut, other_batch, lambda lines: None])
def test_the_table_cautions_as_the_page_does(change: Callable[[Lines], None], tmp_path: Path) -> None:
    lines = made_lines()
    change(lines)
    path = saved(tmp_path / "run.jsonl", lines)
    (chapter,) = read_report([path]).chapters
    assert chapter.cautions
    (printed,) = json.loads(certmask("table", path, "--json").stdout)
    assert printed["cautions"] == chapter.cautions
    report(path, cwd=tmp_path)
    for caution in chapter.cautions:
        assert caution in " ".join(certmask("table", path).stdout.split())
        assert markdown_text(caution) in certmask("table", path, "--markdown").stdout
        assert caution in page_of(tmp_path).text


def test_a_column_is_one_row(run: Path) -> None:
    """A row in the table of columns is a column of every form."""
    answer = Column[Figures]("answer", AMOUNT, lambda f: 42 * f.images, "the answer", "to everything", "answer\nhere")
    COLUMNS.append(answer)
    try:
        report(run, "--csv", "--markdown", "--latex", cwd=run.parent)
        terminal, markdown, printed = (
            certmask("table", run, *form).stdout for form in ([], ["--markdown"], ["--json"])
        )
    finally:
        COLUMNS.remove(answer)
    upper, lower, *rows = page_of(run.parent).tables[0]
    assert (upper[-1], lower[-1]) == ("to everything", "the answer")
    assert {row[-1] for row in rows} == {"1,260"}
    assert all(record["answer"] == "1260" for record in csv.DictReader((run.parent / "page.csv").open()))
    assert "the answer (to everything)" in (run.parent / "page.md").read_text(encoding="utf-8")
    assert r"\textbf{the answer}" in (run.parent / "page.tex").read_text(encoding="utf-8")
    assert all(line["answer"] == 1260 for line in json.loads(printed)[0]["lines"])
    assert "| answer here |" in markdown
    assert terminal.count("1,260") == len(DEFENCES)
    assert "answer" not in certmask("table", run, "--markdown").stdout.replace("passes, answer", "")


def test_a_defence_without_masks(photographed: Path) -> None:
    """Its threat is its own; it is tabled, drawn and shown like the others, without masks."""
    lines = [json.loads(line) for line in photographed.read_text(encoding="utf-8").splitlines()]
    lines[0]["certmask_results"] = 2
    threat = {"kind": "patch", "height": 8, "width": 8}
    for name, cover in (("jury detection", {}), ("jury recovery", {"cover": None})):
        rule = {"rule": "evidence", "guarantee": name.removeprefix("jury ")}
        lines[0]["defences"][name] = {"name": name, "threat": threat, "image": [SIZE, SIZE], "rule": rule, **cover}
        for row in lines[1:]:
            row["defences"][name] |= {"evidence": 3.5}
            del row["defences"][name]["dissent"]
    saved(photographed, lines)
    (printed,) = json.loads(certmask("table", photographed, "--json").stdout)
    line = next(line for line in printed["lines"] if line["defence"] == "jury recovery")
    assert (line["masks"], line["mask"], line["cover"]) == (None, None, None)
    assert (line["patch"], line["image"]) == ([8, 8], [SIZE, SIZE])
    assert "jury recovery:" not in certmask("table", photographed).stdout
    report("run.jsonl", "--photos", "photos", "--csv", "--markdown", "--latex", cwd=photographed.parent)
    (shown,) = (row for row in page_of(photographed.parent).tables[0] if row[0] == "jury recovery")
    assert shown[6] == "–"
    pairs = list(csv.DictReader((photographed.parent / "page-paired.csv").open(encoding="utf-8")))
    assert {(row["first"], row["second"]) for row in pairs} >= {("jury recovery", "PatchCleanser")}


def test_nothing_loads_torch(photographed: Path) -> None:
    """Neither the imports nor the commands, not even for photos; the demo's are CIFAR-10's, with class names."""
    code = (
        "import sys, certmask.results, certmask.report\n"
        "import certmask.results.columns, certmask.report.page\n"
        "assert 'torch' not in sys.modules\n"
        "from certmask.cli import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    assert 'torch' not in sys.modules\n"
    )
    for arguments in (
        ["report", "run.jsonl", "--photos", "photos", "--csv", "--markdown", "--latex"],
        ["report", str(DEMO), "--photos", "demo-cifar10"],
        ["table", "run.jsonl"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=photographed.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_provenance_shows_every_field_of_the_header(run: Path) -> None:
    def leaves(fields: Any) -> Iterator[str]:
        if isinstance(fields, dict):
            for value in fields.values():
                yield from leaves(value)
        else:
            yield fields if isinstance(fields, str) else json.dumps(fields, ensure_ascii=False)

    report(run, cwd=run.parent)
    facts = Counter(row[1] for row in page_of(run.parent).tables[-1])
    missing = Counter(leaves(made_lines()[0])) - facts
    assert not missing


def test_the_gallery_shows_at_most_what_is_asked_for(photographed: Path) -> None:
    for count in (0, 5, 100):
        report(photographed, "--photos", "photos", "--gallery", str(count), cwd=photographed.parent)
        assert page_of(photographed.parent).classes["card"] == min(count, 30)
    report(photographed, cwd=photographed.parent)
    assert page_of(photographed.parent).classes["card"] == 0


def test_every_fate_is_picked_and_no_image_twice(run: Path) -> None:
    (found,), _ = read_runs([run])
    for count in range(40):
        chosen = picked(found, count)
        assert len(chosen) == min(count, 30)
        assert len({row["image"] for row, _, _ in chosen}) == len(chosen)
        assert all(fate(row["defences"][defence], row["label"]) == kind for row, defence, kind in chosen)
        if count >= 8:
            assert {kind for _, _, kind in chosen} == set(FATES)


def test_a_changed_or_missing_photo_is_refused_by_name(photographed: Path) -> None:
    folder = photographed.parent
    shown = picked(read_runs([photographed])[0][0], 12)[3][0]["image"]
    Image.new("RGB", (SIZE, SIZE)).save(folder / "photos" / shown)
    assert shown in report("run.jsonl", "--photos", "photos", cwd=folder, code=1).stderr
    (folder / "photos" / shown).unlink()
    assert shown in report("run.jsonl", "--photos", "photos", cwd=folder, code=1).stderr
    (folder / "strange" / "0").mkdir(parents=True)
    Image.new("RGB", (9, 9)).save(folder / "strange" / "0" / "x.png")
    assert "none of their names" in report("run.jsonl", "--photos", "strange", cwd=folder, code=1).stderr
    assert "nowhere" in report("run.jsonl", "--photos", "nowhere", cwd=folder, code=1).stderr
    assert not (folder / "page.html").exists()


def test_the_published_test_is_never_called_certified(photographed: Path) -> None:
    lines = [json.loads(line) for line in photographed.read_text(encoding="utf-8").splitlines()]
    lines[0]["defences"] = {name: lines[0]["defences"][name] for name in ("undefended", "published k=6")}
    report(saved(photographed, lines), "--photos", "photos", cwd=photographed.parent)
    page = page_of(photographed.parent)
    assert page.classes["card"] == 12
    assert page.classes["proved"] == 0
    assert "published k=6: passes the published test" in page.text
    assert "published k=6: certified" not in page.text
    assert "published k=6: right, fails its test" in page.text
    assert "Certified photos" not in page.text
    assert "The price of a proof" not in page.text


def test_photos_listed_in_a_csv(photographed: Path) -> None:
    folder = photographed.parent
    names = [row["image"] for row in read_results(photographed)[1]]
    listing = folder / "photos" / "list.csv"
    listing.write_text("".join(f"{name},{name[0]}\n" for name in names), encoding="utf-8")
    report("run.jsonl", "--photos", listing, cwd=folder)
    assert page_of(folder).classes["card"] == 12


@pytest.mark.parametrize(
    "cover", [FOURFOLD, offset_cover(SIZE, PATCH, 16, (2, 3)), spread_cover(224, Patch(32, 32), 80)]
)
@pytest.mark.parametrize("name", ["", "0/000.png", "b"])
def test_the_drawing_is_the_jury_of_its_place(name: str, cover: Any) -> None:
    """A pixel is painted only where the border of a jury's mask or the patch is; the patch is dark."""
    height, width = cover.image
    top, left = drawn_place(name, cover) if name else middle(cover)
    drawn = np.asarray(with_jury(Image.new("RGB", (width, height), "white"), cover, (top, left))).astype(int)
    scale = drawn.shape[0] / height
    members = [m for m in cover.masks if m.covers((top, left), cover.patch, cover.image)]
    assert jury(cover, (top, left)) == members
    inside = np.zeros(drawn.shape[:2], dtype=bool)
    for mask in members:
        for y0, y1 in mask.rows(cover.image):
            for x0, x1 in mask.columns(cover.image):
                inside[int(y0 * scale) : int(y1 * scale) + 1, int(x0 * scale) : int(x1 * scale) + 1] = True
    painted = (drawn < 250).any(axis=2)
    assert not (painted & ~inside).any()
    assert painted.sum() > 0
    middle_of_patch = drawn[int((top + cover.patch.height / 2) * scale), int((left + cover.patch.width / 2) * scale)]
    assert (middle_of_patch < 60).all()


def test_photos_show_the_patch_at_different_places() -> None:
    """Every place has its turn, corners included; a name always draws the same one."""
    small = spread_cover(9, Patch(6, 7), (8, 8))
    names = [str(number) for number in range(300)]
    assert {drawn_place(name, small) for name in names} == {(top, left) for top in range(4) for left in range(3)}
    assert [drawn_place(name, FOURFOLD) for name in names] == [drawn_place(name, FOURFOLD) for name in names]
    assert len({drawn_place(name, FOURFOLD) for name in names}) > 200


def test_only_certified_photos_show_a_patch(photographed: Path) -> None:
    """The card of any other has the bare photo and says why."""
    (found,), _ = read_runs([photographed])
    album = read_album(read_report([photographed]), str(photographed.parent / "photos"), 30)
    shown = photo_exhibition(found, album, 30)
    for (row, defence, kind), card in zip(picked(found, 30), shown.cards, strict=True):
        bare = thumbnail(seen_photo(found, row, album)) in card
        assert bare == (kind != CERTIFIED)
        assert ("one of the patch&#x27;s 625 places" in card) == (kind == CERTIFIED)
        why = shortfall(found, row, defence, album.class_name)
        assert (why in card) == (kind != CERTIFIED)


def zoomed(lines: Lines) -> Lines:
    """The same file, with jury recovery on a cover of several levels, as rows say it now."""
    lines[0]["defences"]["jury recovery"] = json.loads(json.dumps(ZOOMED.describe()))
    for number, row in enumerate(lines[1:]):
        said = row["defences"]["jury recovery"]
        places = [[0, 4, 2, 5], [8, 9, 6, 11]][: 1 + number % 2]
        lead = 0.5 if said["certified"] else -0.5
        said["weakest"] = {"places": places, "lead": lead, "level": number % 3}
        said["basis"] = "unanimous" if said["certified"] else ("unbeaten", "bare", "majority")[number % 3]
    return lines


def test_where_a_proof_is_weakest_is_framed(photographed: Path) -> None:
    """In blue on certified photos, in red where it failed, with the level that settled it; others are as before."""
    lines = zoomed([json.loads(line) for line in photographed.read_text(encoding="utf-8").splitlines()])
    del lines[0]["defences"]["PatchCleanser"]  # which certifies more, and would be shown
    (found,), _ = read_runs([saved(photographed, lines)])
    album = read_album(read_report([photographed]), str(photographed.parent / "photos"), 30)
    shown, seen = photo_exhibition(found, album, 30), Counter[tuple[bool, bool]]()
    for (row, defence, kind), card in zip(picked(found, 30), shown.cards, strict=True):
        weakest, photo = row["defences"][defence].get("weakest"), seen_photo(found, row, album)
        seen[weakest is not None, kind == CERTIFIED] += 1
        assert ("judged by masks of" in card) == (weakest is not None)
        if weakest:
            frames = [patches_in(place, PATCH.size) for place in weakest["places"]]
            assert thumbnail(with_frames(photo, frames, BLUE if kind == CERTIFIED else RED)) in card
            assert ("the proof is weakest at this" in card) == (kind == CERTIFIED)
            assert f"level {weakest['level'] + 1} of 3" in card
        assert ("the answer is" in card) == (weakest is not None and kind != CERTIFIED)
    assert set(seen) == {(True, True), (True, False), (False, True), (False, False)}
    assert "Frames show" in shown.words
    assert "Certified photos" in shown.words


@pytest.mark.parametrize("frames", [[(2, 3, 10, 12)], [(2, 3, 10, 12), (20, 18, 28, 30)]])
def test_frames_leave_what_they_frame_alone(frames: list[tuple[int, int, int, int]]) -> None:
    """Only borders are painted and, of a pair, the line between the middles."""
    pixels = np.asarray(with_frames(Image.new("RGB", (32, 32), "white"), frames, BLUE)).astype(int)
    scale, painted = len(pixels) / 32, np.asarray((pixels < 200).any(axis=2))
    for left, top, right, bottom in frames:
        ring = np.zeros_like(painted)
        ring[int(top * scale) - 3 : int(bottom * scale) + 3, int(left * scale) - 3 : int(right * scale) + 3] = True
        inside = painted[int(top * scale) + 3 : int(bottom * scale) - 3, int(left * scale) + 3 : int(right * scale) - 3]
        assert inside.any() == (len(frames) > 1)
        assert (painted & ring).sum() > 2 * scale * (right - left)
    assert painted[: int(scale)].sum() == 0


def test_a_frame_at_the_edge_is_whole() -> None:
    pixels = np.asarray(with_frames(Image.new("RGB", (32, 32), "white"), [(0, 0, 32, 32)])).astype(int)
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert (edge == (208, 0, 0)).all()


def test_dissent_on_several_levels_is_among_the_masks_that_were_asked(run: Path) -> None:
    (found,), _ = read_runs([saved(run, zoomed(made_lines()))])
    panels = dissent_figure(found, lines_of(Guarantee.RECOVERY, run)).axes
    assert [axes.get_xlabel() for axes in panels] == ["dissenting masks of those asked", "dissenting masks of 9"]


def test_what_answers_rest_on(run: Path) -> None:
    """Shares counted by a plain loop, in a table of their own; files that do not know it have none."""
    report(run, "--csv", cwd=run.parent)
    assert "What answers rest on" not in page_of(run.parent).text
    assert all(record["bare_answers"] == "" for record in csv.DictReader((run.parent / "page.csv").open()))
    _, *rows = lines = zoomed(made_lines())
    report(saved(run, lines), "--csv", "--markdown", "--latex", cwd=run.parent)
    said = [row["defences"]["jury recovery"]["basis"] for row in rows]
    for record in csv.DictReader((run.parent / "page.csv").open(encoding="utf-8")):
        for basis in BASES:
            known = record["defence"] == "jury recovery"
            assert record[f"{basis}_answers_count"] == (str(said.count(basis)) if known else "")
    table = page_of(run.parent).tables[1]
    assert table[1] == list(BASES)
    assert [row[0] for row in table[2:]] == ["jury recovery"]
    assert [cell.split()[0] for cell in table[2][1:]] == [f"{100 * said.count(basis) / 30:.1f}" for basis in BASES]
    for end in ("md", "tex"):
        assert "What answers rest on" in (run.parent / f"page.{end}").read_text(encoding="utf-8")
    check_latex((run.parent / "page.tex").read_text(encoding="utf-8"))


def test_covers_of_several_levels_are_stars(run: Path) -> None:
    """In both panels and in the legend; the caption says so."""
    assert "Stars" not in price_caption(lines_of(Guarantee.RECOVERY, run))
    lines = lines_of(Guarantee.RECOVERY, saved(run, zoomed(made_lines())))
    assert [line.levels for line in lines] == [3, 0]
    for axes in price_figure(lines, [line.defence for line in lines]).axes:
        marks = [line.get_marker() for line in axes.lines if line.get_label() in ("jury recovery", "PatchCleanser")]
        assert [mark == "*" for mark in marks] == [True, False]
        assert sum(line.get_marker() == "*" for line in axes.lines) == 2
    assert "Stars: covers of several levels" in price_caption(lines)


def short_of(name: str, bare: int, **said: Any) -> str:
    """Why a defence of the invented run, which answers so, has no certificate for an image of class 1."""
    lines = made_lines()
    row = lines[2]
    row["defences"][name] |= {"certified": False, "alert": False, "certificate_passes": 9, **said}
    row["defences"]["undefended"]["label"] = bare
    run = Run("run", Path("run.jsonl"), "", lines[0], tuple(lines[1:]))
    return shortfall(run, row, name, "class {}".format)


@pytest.mark.parametrize(
    ("name", "bare", "said", "words"),
    [
        ("jury recovery", 1, {"label": 2, "basis": "bare",
                              "weakest": {"places": [[0, 1, 0, 1]] * 2, "lead": -0.125, "level": 0}},
         "answers class 2 without any patch; the proof fails at this pair of places (lead −0.12); the answer is bare "
         "(no place that claims another class is unbeaten: the picture as it came); the undefended answer is right"),
        ("jury detection", 1, {"label": 1, "alert": True, "dissent": 3},
         "3 of 25 masks vote otherwise; the undefended answer is right"),
        ("jury detection", 2, {"label": 2, "dissent": 1},
         "answers class 2 without any patch; 1 of 25 masks votes otherwise; the undefended answer is wrong already"),
        ("jury detection", 2, {"label": 2, "dissent": 0},
         "answers class 2 without any patch; all 25 masks say so; the undefended answer is wrong already"),
        ("minority reports", 1, {"label": 1, "dissent": 0},
         "all 25 masks say so, but not clearly enough (threshold 0.5, margin 0.02); the undefended answer is right"),
        ("jury recovery", 1, {"label": 1, "dissent": 4, "certificate_passes": 26},
         "the proof holds under one mask at a time and fails under two at once; the undefended answer is right"),
        ("jury recovery", 1, {"label": 1, "dissent": 4, "certificate_passes": 25},
         "4 of 25 masks vote otherwise; the undefended answer is right"),
        ("published k=6", 1, {"label": 1, "dissent": 2},
         "2 of 96 masks vote otherwise; the undefended answer is right"),
        ("undefended", 1, {}, "without a defence nothing is certified"),
    ],
)  # fmt: skip
def test_why_a_photo_is_not_certified(name: str, bare: int, said: dict[str, Any], words: str) -> None:
    assert short_of(name, bare, **said) == words


def test_a_proof_that_fails_under_two_masks_held_under_one() -> None:
    """As measured before rows said where a proof fails: the first round of PatchCleanser's is that no mask dissents."""
    path = DEMO.parent / "reproduce" / "table1" / "deit_tiny_patch16_224--imagenet--patch39.jsonl.gz"
    ((found,), _), name, reasons = read_runs([path]), "PatchCleanser 6×6", Counter[bool]()
    for row in found.rows:
        said = row["defences"][name]
        if not said["certified"]:
            two = "fails under two at once" in shortfall(found, row, name, str)
            held = said["dissent"] == 0 and said["label"] == row["label"]
            unclear = held and said["certificate_passes"] == 36
            assert two == (held and not unclear)
            reasons[two] += 1
    assert min(reasons[True], reasons[False]) > 50


def test_a_defence_without_masks_or_reasons() -> None:
    lines = made_lines()
    lines[0]["defences"] = {"evidence": {**lines[0]["defences"]["jury recovery"], "cover": None}}
    row = {**lines[2], "defences": {"evidence": {**lines[2]["defences"]["jury recovery"], "label": 1}}}
    run = Run("run", Path("run.jsonl"), "", lines[0], (row,))
    assert shortfall(run, row, "evidence", str) == "why is not on record"


def test_the_words_of_a_page_are_explained(run: Path) -> None:
    words = ("place", "level", "lead", "basis", "weakest",
             "mask", "cover", "fold", "jury", "district", "dissent", "pairs, duels", "margin", "pass", "clean accuracy",
             "certified recovery", "certified detection", "certified and quiet", "certified accuracy",
             "published test", "alert", "false alerts")  # fmt: skip
    report(run, cwd=run.parent)
    text = (run.parent / "page.html").read_text(encoding="utf-8")
    for word in words:
        assert f"<dt>{word}</dt><dd>{escape(TERMS[word])}</dd>" in text


def attempts(folder: Path, *, broken_proof: bool = False) -> Path:
    """An attempts file against the photographed run, with one picture per defence."""
    header, rows = read_results(folder / "run.jsonl")
    certified, _ = read_runs([folder / "run.jsonl"])
    defences = {name: header["defences"][name] for name in ("undefended", "published k=6", "jury recovery")}
    origin = {"run": "run.jsonl", "digest": certified[0].digest}
    lines: Lines = [{**header, "kind": "attack", "certified": origin, "defences": defences}]
    path = folder / "attack.jsonl"
    dataset = load_dataset(str(folder / "photos"), None, 1.0)
    for number, defence in enumerate(defences):
        row = rows[number]
        broken = defence != "jury recovery" or broken_proof
        (sample,) = (sample for sample in dataset.samples if sample.name == row["image"])
        picture = to_tensor(sample.photo())
        picture[:, 3:11, 4:12] = 0.0
        raw = picture_folder(path) / f"{number}.png"
        save_picture(picture, [((3, 4), PATCH.size)], raw)
        attempt = {"defence": defence, "image": row["image"], "label": row["label"], "alert": False, "broken": broken}
        answer = (row["label"] + 1) % 10 if broken else row["label"]
        kept = {"picture": raw.name, "picture_sha256": pixel_digest(picture)}
        lines.append({**attempt, "answer": answer, "corner": [3, 4], **(kept if broken else {"picture": None})})
    return saved(path, lines)


def test_attacks_are_shown_clean_and_patched(photographed: Path) -> None:
    folder = photographed.parent
    attempts(folder)
    report("run.jsonl", "attack.jsonl", "--photos", "photos", "--csv", "--markdown", "--latex", cwd=folder)
    page = page_of(folder)
    assert "None of 1 attempts on proved certificates broke one" in page.text
    assert "published k=6: 1 of 1 attempts changed the answer on images that pass the published test" in page.text
    assert "undefended model's label in 1 of 1 attempts" in page.text
    assert page.classes["broken"] == 0
    assert page.classes["card"] == 12
    assert page.text.count("attacked") >= 2
    assert page.text.count("clean") >= 2
    records = list(csv.DictReader((folder / "page-attacks.csv").open(encoding="utf-8")))
    assert [record["broken"] for record in records] == ["", "1", "0"]
    check_latex((folder / "page.tex").read_text(encoding="utf-8"))


def test_an_attack_card_says_whether_the_certificate_fell(photographed: Path) -> None:
    folder = photographed.parent
    attempts(folder, broken_proof=True)
    report("run.jsonl", "attack.jsonl", "--photos", "photos", cwd=folder)
    text = page_of(folder).text
    assert "undefended: label changed" in text
    assert "published k=6: label changed" in text
    assert "jury recovery: certificate broken" in text
    assert "the clean photo is certified (recovery)" in text
    assert "3 of 3 kept pictures are shown" in text
    assert attack_outcome(Guarantee.DETECTION, broken=False)[0] == "certificate held"


def test_why_no_attacked_picture_is_shown(photographed: Path) -> None:
    """None was kept, or they are missing; both are told, neither is an error."""
    folder = photographed.parent
    path = attempts(folder)
    report("attack.jsonl", "--gallery", "1", cwd=folder)
    assert "1 of 2 kept pictures are shown" in page_of(folder).text
    (picture_folder(path) / "0.png").unlink()
    report("attack.jsonl", cwd=folder)
    assert "1 of 2 kept pictures are shown" in page_of(folder).text
    assert "1 is missing from attack-pictures." in page_of(folder).text
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    saved(path, [lines[0], *({**row, "picture": None} for row in lines[1:])])
    report("attack.jsonl", cwd=folder)
    assert page_of(folder).classes["card"] == 0
    assert "No picture is shown: none of 3 attempts kept one" in page_of(folder).text


def test_pictures_of_a_packed_attack_are_found(photographed: Path) -> None:
    folder = photographed.parent
    path = attempts(folder)
    path.with_name("attack.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    report("attack.jsonl.gz", cwd=folder)
    assert page_of(folder).classes["card"] == 2


def test_attempts_alone_make_a_page(photographed: Path) -> None:
    folder = photographed.parent
    attempts(folder)
    report("attack.jsonl", "--csv", cwd=folder)
    assert page_of(folder).classes["card"] == 2
    assert "answers class 1" in page_of(folder).text
    assert not (folder / "page.csv").exists()


def test_attempts_on_an_imagenet_model_name_its_classes(photographed: Path) -> None:
    path = attempts(photographed.parent)
    path.write_text(path.read_text(encoding="utf-8").replace('"classes": 10,', '"classes": 1000,'), encoding="utf-8")
    report("attack.jsonl", cwd=photographed.parent)
    assert "answers goldfish" in page_of(photographed.parent).text


def test_a_broken_proof_is_shouted(photographed: Path) -> None:
    folder = photographed.parent
    attempts(folder, broken_proof=True)
    done = report("run.jsonl", "attack.jsonl", "--markdown", "--latex", cwd=folder)
    page = page_of(folder)
    assert page.classes["broken"] == 1
    assert "None of" not in page.text
    for text in (
        done.stdout,
        page.text,
        *((folder / f"page.{end}").read_text(encoding="utf-8") for end in ("md", "tex")),
    ):
        assert "broke a certificate of jury recovery that was called proved" in " ".join(text.split())


def test_pictures_of_attacks_are_checked(photographed: Path) -> None:
    folder = photographed.parent
    path = attempts(folder)
    Image.new("RGB", (SIZE, SIZE)).save(picture_folder(path) / "1.png")
    assert "picture 1.png" in report("run.jsonl", "attack.jsonl", cwd=folder, code=1).stderr
    (picture_folder(path) / "1.png").unlink()
    report("run.jsonl", "attack.jsonl", cwd=folder)
    assert page_of(folder).classes["card"] == 1
    path.write_text(path.read_text(encoding="utf-8").replace('"1.png"', '"../photos/0/000.png"'), encoding="utf-8")
    assert "expected a picture inside" in report("run.jsonl", "attack.jsonl", cwd=folder, code=1).stderr


def at(*keys: Any, value: Any = None, drop: bool = False) -> Callable[[Lines], None]:
    """Change or drop one field, named by its keys from the list of lines on."""

    def change(lines: Any) -> None:
        for key in keys[:-1]:
            lines = lines[key]
        if drop:
            del lines[keys[-1]]
        else:
            lines[keys[-1]] = value

    return change


RULE = (0, "defences", "jury recovery", "rule")
RECOVERY = {"rule": "own", "guarantee": "recovery"}
OUTCOME = (2, "defences", "jury recovery")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (at(0, "kind", value="speed"), "kind 'speed'"),
        (at(0, "kind", drop=True), "kind None"),
        (at(0, "model", drop=True), "'model'"),
        (at(0, "model", "name", drop=True), "'name'"),
        (at(0, "model", "size", value=[32]), "size as height and width"),
        (at(0, "model", "size", value=[0, 32]), "size as height and width"),
        (at(0, "data", value=7), "'data'"),
        (at(0, "data", "images", value=-1), "'images'"),
        (at(0, "defences", value={}), "at least one defence"),
        (at(0, "data", "name", value="\ud800"), "half of one in 1"),
        (at(2, "image", value="\udfff.png"), "half of one in 3"),
        (at(0, "defences", "jury recovery", value=[]), "named fields"),
        (at(*RULE, "guarantee", value="certain"), "'certain'"),
        (at(0, "defences", "jury recovery", "cover", "patch", value=[8, "x"]), "patch as height and width"),
        (at(0, "defences", "jury recovery", "cover", value=7), "named fields in the cover of 'jury recovery'"),
        (at(0, "defences", "jury recovery", value={"rule": RECOVERY}), "expected 'threat' in defence 'jury recovery'"),
        (at(0, "defences", "jury recovery", value={"rule": RECOVERY, "threat": {"kind": "worm"}, "image": [32, 32]}),
         "a threat of kind patch, any rectangle, up to, photo patch, got 'worm'"),
        (at(2, "defences", "jury recovery", "dissent", drop=True), "'dissent'"),
        (at(slice(1, None), value=[]), "at least one row"),
        (at(2, "image", drop=True), "line 3"),
        (at(2, "image", value="0/000.png"), "'0/000.png' twice"),
        (at(2, "label", value=True), "'label'"),
        (at(2, "seconds", value=float("nan")), "'seconds'"),
        (at(2, "passes", value="many"), "'passes'"),
        (at(2, "defences", "jury recovery", drop=True), "'jury recovery'"),
        (at(*OUTCOME, value=None), "'jury recovery'"),
        (at(*OUTCOME, "certified", value=None), "'certified'"),
        (at(*OUTCOME, "alert", value=0), "'alert'"),
        (at(*OUTCOME, "basis", value="luck"), "expected basis to be unanimous, unbeaten, bare or majority"),
        (at(*OUTCOME, "basis", value=["bare"]), "got ['bare']"),
        (at(*OUTCOME, value={"label": 1, "alert": False, "certified": True, "dissent": 0, "passes": 1,
                             "certificate_passes": 1, "basis": "bare"}), "rest on its places, got a bare one"),
        (at(*OUTCOME, "weakest", value=7), "named fields in the weakest place"),
        (at(*OUTCOME, "weakest", value={"places": [], "lead": 0.1, "level": 0}), "boxes and a lead"),
        (at(*OUTCOME, "weakest", value={"places": [[1, 2, 3]], "lead": 0.1, "level": 0}), "boxes and a lead"),
        (at(*OUTCOME, "weakest", value={"places": [[0, 1, 0, 1]], "lead": "?", "level": 0}), "boxes and a lead"),
        (at(*OUTCOME, "weakest", value={"places": [[0, 1, 0, 1]], "lead": 0.1, "level": -1}), "'level'"),
        (at(*OUTCOME, value={"label": 5, "alert": False, "certified": True, "dissent": 0, "passes": 1,
                             "certificate_passes": 1}), "answered as promised"),
        (at(*OUTCOME, value={"label": 1, "alert": True, "certified": True, "dissent": 0, "passes": 1,
                             "certificate_passes": 1}), "answered as promised"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_by_name(change: Callable[[Lines], None], names: str, tmp_path: Path) -> None:
    lines = made_lines()
    change(lines)
    saved(tmp_path / "run.jsonl", lines)
    refused = report("run.jsonl", cwd=tmp_path, code=1).stderr
    assert names in refused
    assert certmask("table", "run.jsonl", cwd=tmp_path, code=1).stderr == refused
    assert not (tmp_path / "page.html").exists()


def test_doubled_rows_are_refused_in_one_line(tmp_path: Path) -> None:
    header, *rows = made_lines()
    path = saved(tmp_path / "run.jsonl", [header, *rows, *rows])
    done = certmask("table", path, code=1)
    assert done.stderr == f"error: expected every image once in {path}, got '0/000.png' twice\n"
    assert not done.stdout


@pytest.mark.parametrize(("key", "value"), [("defence", "unknown"), ("answer", None), ("broken", "yes"), ("image", 3)])
def test_bad_attempts_are_refused(key: str, value: Any, photographed: Path) -> None:
    path = attempts(photographed.parent)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lines[1][key] = value
    saved(path, lines)
    assert "line 2" in report("attack.jsonl", cwd=photographed.parent, code=1).stderr


def test_files_that_cannot_be_read_or_written(run: Path) -> None:
    folder = run.parent
    before = run.read_bytes()
    assert "nothing at missing.jsonl" in report("missing.jsonl", cwd=folder, code=1).stderr
    assert "a folder at" in report(".", cwd=folder, code=1).stderr
    assert "twice" in report("run.jsonl", "./run.jsonl", cwd=folder, code=1).stderr
    assert "run.jsonl" in certmask("report", "run.jsonl", "--out", "run.jsonl", cwd=folder, code=1).stderr
    assert "can be written" in certmask("report", "run.jsonl", "--out", "run.jsonl/x.html", cwd=folder, code=1).stderr
    assert "an HTML file" in certmask("report", "run.jsonl", "--out", "a.md", cwd=folder, code=2).stderr
    certmask("report", "run.jsonl", "--gallery", "-1", cwd=folder, code=2)
    certmask("report", cwd=folder, code=2)
    assert run.read_bytes() == before
    with pytest.raises(ResultsError, match="at least one results file, got none"):
        read_runs([])


def test_runs_of_one_name_are_told_apart_by_their_folders() -> None:
    assert short_names([Path("/r/a/f.jsonl"), Path("/r/b/f.jsonl")]) == ["a/f.jsonl", "b/f.jsonl"]
    assert short_names([Path("/r/a/f.jsonl"), Path("/r/b/g.jsonl")]) == ["f.jsonl", "g.jsonl"]
    assert short_names([Path("/f"), Path("/a/f")]) == ["/f", "a/f"]


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=8))
def test_the_frontier_by_brute_force(points: list[tuple[int, int]]) -> None:
    prices, shares = [float(price) for price, _ in points], [float(share) for _, share in points]
    kept = {points[number] for number in frontier(prices, shares)}
    beaten = {(p, s) for p, s in points if any(q <= p and r >= s and (q, r) != (p, s) for q, r in points)}
    assert kept == set(points) - beaten


def test_bins_of_dissent_hold_every_number_once() -> None:
    assert [dissent_range(place, 10) for place in range(5)] == ["0", "1", "2–3", "4–7", "8–10"]
    for number in range(200):
        low, _, high = dissent_range(number.bit_length(), 1000).partition("–")
        assert int(low) <= number <= int(high or low)


def drawn(figure: Figure) -> np.ndarray[Any, Any]:
    """The pixels of a figure, after its layout is settled."""
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return np.asarray(Image.open(out).convert("RGB"))


def lines_of(kind: Guarantee, run: Path) -> list[Figures]:
    (found,), _ = read_runs([run])
    return [line for line in figures(found) if line.guarantee is kind]


@pytest.mark.parametrize("name", ["x", "a name as long as it gets!"])
@pytest.mark.parametrize("images", [8, 1000])
def test_no_figure_is_cut_off_or_under_a_mark(name: str, images: int, run: Path) -> None:
    """Every pair of shares, as drawn: figures stand at their bars, in their panel, off the diamond and the legend."""
    parts = sorted({round(images * part) for part in (0, 0.84, 0.89, 0.94, 0.97, 1)})
    kinds = (Guarantee.RECOVERY, Guarantee.DETECTION, Guarantee.PUBLISHED)
    groups = {}
    for kind in kinds:
        one = replace(lines_of(kind, run)[0], defence=name)
        shares = [(Share(clean, images), Share(certified, images)) for clean in parts for certified in parts]
        groups[kind] = [replace(one, clean=clean, certified=share, false_alerts=share) for clean, share in shares]
    with mpl.rc_context(STYLE):
        figure = share_figure([line for group in groups.values() for line in group])
        figure.draw_without_rendering()
        for axes, (kind, group) in zip(figure.axes, groups.items(), strict=True):
            texts = [text for text in axes.texts if isinstance(text, Annotation)]
            assert len(texts) == len(group) * (2 if kind is Guarantee.DETECTION else 1)
            ends = sorted(
                (bar.get_width(), bar.get_y() + bar.get_height() / 2)
                for bar in axes.patches
                if isinstance(bar, Rectangle)
            )
            assert sorted(text.xy for text in texts) == [pytest.approx(end) for end in ends]
            room, legend = axes.get_window_extent(), axes.get_legend()
            assert legend is not None
            boxes = [text.get_window_extent() for text in texts]
            assert all(room.x0 <= box.x0 and box.x1 <= room.x1 <= legend.get_window_extent().x0 for box in boxes)
            diamonds = [line for line in axes.lines if line.get_marker() == "D"]
            assert len(diamonds) == len(group)
            for mark in diamonds:
                box = mark.get_window_extent()
                assert not mark.get_clip_on() or room.x0 <= box.x0 <= box.x1 <= room.x1
                assert not any(box.overlaps(other) for other in boxes)
            assert [int(tick) for tick in axes.get_xticks()] == [0, 20, 40, 60, 80, 100]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_marks_in_one_place_are_all_seen(count: int, run: Path) -> None:
    """The colour of every defence is there in both panels, with nothing but marks to bring it."""
    one = replace(lines_of(Guarantee.RECOVERY, run)[0], certified=Share(20, 30))
    lines = [replace(one, defence=str(n), answer_passes=one.answer_passes * (1 + n / 1000)) for n in range(count)]
    with mpl.rc_context(STYLE):
        figure = price_figure(lines, [line.defence for line in lines])
        pixels = drawn(figure)
    for axes in figure.axes:
        box = axes.get_window_extent()
        panel = pixels[len(pixels) - int(box.y1) : len(pixels) - int(box.y0), int(box.x0) + 2 : int(box.x1)]
        for colour in PALETTE[:count]:
            wanted = [round(255 * part) for part in to_rgb(colour)]
            assert (abs(panel.astype(int) - wanted).max(axis=2) <= 1).sum() > 12
    assert "Hollow marks" in price_caption(lines)
    assert "Hollow marks" not in price_caption([one, replace(one, proof_passes=9e3, answer_passes=9e3)])


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=9))
def test_rings_go_around_every_later_mark_in_their_place(points: list[tuple[int, int]]) -> None:
    found = rings([10.0**price for price, _ in points], [25.0 * share for _, share in points])
    assert found == [points[n + 1 :].count(point) for n, point in enumerate(points)]


def test_rings_of_marks_that_lie_close() -> None:
    """A chain of neighbours grows outwards; what lies further apart than a mark has no ring."""
    assert rings([100, 101, 102, 1000], [50, 50, 50, 50]) == [2, 1, 0, 0]
    assert rings([100, 100, 100], [50, 60, 50.5]) == [1, 0, 0]
    assert rings([7.0, 7.0], [0, 0]) == [1, 0]


def test_captions_speak_of_dashed_lines_where_they_are_drawn(tmp_path: Path) -> None:
    seen = set()
    for seed in range(12):
        run = saved(tmp_path / f"{seed}.jsonl", made_lines(seed=seed))
        for kind in (Guarantee.RECOVERY, Guarantee.DETECTION):
            lines = lines_of(kind, run)
            figure = price_figure(lines, [line.defence for line in lines])
            dashed = any(
                line.get_linestyle() == "--" and len(np.unique(line.get_xydata(), axis=0)) > 1
                for axes in figure.axes
                for line in axes.lines
            )
            assert ("Dashed" in price_caption(lines)) == dashed
            seen.add(dashed)
    assert seen == {True, False}


def figure_of(monkeypatch: pytest.MonkeyPatch, draw: Callable[..., None], *shown: Any) -> Figure:
    """What a function draws, before it is written."""
    kept: list[Figure] = []
    monkeypatch.setattr("certmask.report.drawing.save_figure", lambda figure, _: kept.append(figure))
    draw(*shown, Path("unwritten.png"))
    (figure,) = kept
    return figure


@pytest.mark.parametrize("tiling", ["spread", "offset"])
def test_a_drawn_cover_shows_what_other_masks_cost(tiling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of detection and of recovery by the part of the picture under a mask; the cover's own are ringed."""
    patch = Patch(32, 32)
    choice = cover_choice((224, 224), patch, tiling, (2, 2))
    cover = spread_cover(224, patch, 77, 2) if tiling == "spread" else offset_cover(224, patch, 77, (2, 2))
    _, right = figure_of(monkeypatch, draw_cover, cover, choice).axes
    curves = [line for line in right.lines if not str(line.get_label()).startswith("_")]
    points = [{(round(x, 6), y) for x, y in np.asarray(line.get_xydata())} for line in curves]
    for price, seen in zip((len, certificate_passes), points, strict=True):
        assert seen == {(round(100 * c.mask[0] * c.mask[1] / 224**2, 6), price(c)) for c in (*choice, cover)}
    assert [text.get_text() for text in right.texts] == [f"{len(cover):,}", f"{certificate_passes(cover):,}"]
    assert ("aligned" in str(curves[1].get_label())) == (tiling == "spread")


def test_a_cover_that_is_the_only_one_of_its_fold_is_drawn(tmp_path: Path) -> None:
    certmask("plan", "--image", "100x150", "--patch", "99", "--mask", "100", "--draw", tmp_path / "plan.png")
    assert Image.open(tmp_path / "plan.png").size[0] > 800


def test_all_pictures_have_one_palette(monkeypatch: pytest.MonkeyPatch) -> None:
    """Votes, juries and learning curves are drawn in the colours of the plots."""
    votes = [(number % 3, 1.0) for number in range(len(FOURFOLD))]
    right = Figure().subplots()
    paint_votes(right, Image.new("RGB", (SIZE, SIZE)), FOURFOLD, votes, dict(enumerate(PALETTE)))
    left, _ = figure_of(monkeypatch, draw_cover, FOURFOLD, []).axes
    both = figure_of(monkeypatch, draw_curves, [{"epoch": 1, "loss": 1, "validation_accuracy": 1}], "title").axes
    faces = {tuple(patch.get_facecolor()[:3]) for axes in (left, right) for patch in axes.patches}
    lines = {to_rgb(line.get_color()) for axes in both for line in axes.lines}
    assert faces | lines == {to_rgb(colour) for colour in (*PALETTE[:4], "0.15")}
