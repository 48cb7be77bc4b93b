"""What the pages say of threats beyond one square, counted again from the files by brute force."""

from __future__ import annotations

import importlib
import re
import shutil
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from recount import right
from test_docs_results import RESULTS, ROOT, Row, clean, held, lines_of, passes, proved, rows_of, share

from certmask.errors import CertmaskError

reach: Any = importlib.import_module("reach")
THREATS = ROOT / "results" / "threats"
CHOOSING = ROOT / "results" / "choosing"
PATHS = {"imagenet": "deit_tiny_patch16_224--imagenet--patch32.jsonl.gz",
         "imagenette": "deit_tiny-imagenette--imagenette--patch32.jsonl.gz"}  # fmt: skip
NAMES = {"imagenet": "DeiT-Tiny, ImageNet", "imagenette": "DeiT-Tiny, Imagenette"}
ONE, SHAPES, SIZES, PAIR = "zoom", "zoom, any rectangle", "zoom, unknown size", "pair detection, two patches"


def figure(name: str) -> str:
    """A figure inside a sentence of a page, by its name."""
    pages = "".join(path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    (found,) = set(re.findall(rf"<!--=reach {name}-->(.*?)<!--=-->", pages))
    return str(found)


def words(text: str) -> None:
    """The page must have them: whoever rewrites a sentence looks at its check, too."""
    plain = re.sub(r"<!--=.*?-->", "", (ROOT / "docs" / "appendix" / "threats.md").read_text())
    assert text in " ".join(plain.split()), text


def grid(table: str) -> list[dict[str, str]]:
    """The rows of a Markdown table by heading; what stands before it is left out."""
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def certified(rows: list[Row], defence: str) -> set[str]:
    return {row["image"] for row in rows if row["defences"][defence]["certified"]}


def of_two(path: Path) -> list[str]:
    """Defences that recover from two patches."""
    told = lines_of(path)[0]["defences"].items()
    return [name for name, one in told if one["threat"].get("count") == 2 and one["rule"]["guarantee"] == "recovery"]


@pytest.mark.parametrize("data", PATHS)
def test_every_threat_by_brute_force(data: str) -> None:
    header, *rows = lines_of(RESULTS / "reach" / PATHS[data])
    lines = [line for line in grid(reach.threats_table(RESULTS / "reach")) if line["network"] == NAMES[data]]
    assert [line["defence"] for line in lines] == list(header["defences"])
    for line in lines:
        name = line["defence"]
        kind = header["defences"][name]["rule"]["guarantee"]
        assert line["clean, %"] == str(share(clean(rows, name), rows))
        for column in ("recovery", "detection"):
            assert line[f"certified {column}, %"] == (str(share(held(rows, name), rows)) if kind == column else "–")
        alerts = str(share(held(rows, name, "alert"), rows))
        assert line["false alerts, %"] == (alerts if kind == "detection" else "–")
        if kind != "none":
            printed = float(line["passes of a completed proof"].replace(",", ""))
            assert printed == pytest.approx(proved(rows, name), abs=0.5)


@pytest.mark.parametrize("data", PATHS)
def test_sentences_about_threats_by_brute_force(data: str) -> None:
    rows = rows_of(RESULTS / "reach" / PATHS[data])
    for name, defence in (("one", ONE), ("pair", PAIR), ("shapes", SHAPES), ("sizes", SIZES)):
        assert figure(f"{data} {name}") == str(share(held(rows, defence), rows))
    words("every photo that zoom recovers from one patch, as the theorem says")
    assert certified(rows, ONE) <= certified(rows, PAIR)
    words("with more passes to answer")
    assert passes(rows, PAIR, "passes") < passes(rows, "zoom detection, two patches", "passes")
    assert figure(f"{data} shapes times") == f"{proved(rows, SHAPES) / proved(rows, ONE):.1f}"
    sides = [row["defences"][SIZES]["side"] for row in rows]
    assert figure(f"{data} sizes as told") == str(share(sum(side >= 32 for side in sides), rows))
    some = [side for side in sides if side]
    assert figure(f"{data} sizes largest") == str(share(some.count(48), [{}] * len(some)))
    words("Detection has no duels and loses less than a point")
    untold = sum(row["defences"]["zoom detection, unknown size"]["side"] >= 32 for row in rows)
    assert 0 < held(rows, "zoom detection") - untold < 0.01 * len(rows)
    alerted = [row for row in rows if row["defences"]["zoom detection, unknown size"]["certified"]]
    alerted = [row for row in alerted if not right(row, "zoom detection, unknown size")]
    assert figure(f"{data} sizes alerted") == str(len(alerted))
    assert all(row["defences"]["zoom detection, unknown size"]["alert"] for row in alerted)


def test_the_photos_are_those_of_zoom_and_no_photo_for_choosing_is_among_them() -> None:
    words("All defences have the same photos, those of [zoom beside PatchCleanser](zoom.md)")
    for path in PATHS.values():
        shown = {row["input_sha256"] for row in rows_of(RESULTS / "reach" / path)}
        assert shown == {row["input_sha256"] for row in rows_of(RESULTS / "zoom" / path)}
        assert not shown & {row["input_sha256"] for row in rows_of(CHOOSING / "reach" / path)}


def test_photos_for_choosing_among_those_of_figures_are_refused(tmp_path: Path) -> None:
    for folder in ("reproduce", "choosing"):
        shutil.copytree(CHOOSING / "reach", tmp_path / folder / "reach")
    with pytest.raises(CertmaskError, match="expected other photos for choosing than those of figures, got 400"):
        reach.check_photos(tmp_path)


def settings_of_two(path: Path) -> dict[str, tuple[float, float]]:
    """Passes of a completed proof and share of every setting of a run, from cheap to dear."""
    rows = rows_of(path)
    found = {name: (proved(rows, name), share(held(rows, name), rows)) for name in of_two(path)}
    return dict(sorted(found.items(), key=lambda own: own[1]))


@pytest.mark.parametrize(("folder", "use"), [(RESULTS, ""), (CHOOSING, " choosing")])
@pytest.mark.parametrize("data", PATHS)
def test_recovery_from_two_patches_by_brute_force(folder: Path, use: str, data: str) -> None:
    """Every setting of a network's last experiment is a row; the ends of the range are in the sentence.

    A sentence about figures has those of the experiment with all threats on the same photos.
    """
    lines = [line for line in grid(reach.recoveries_table(folder)) if line["network"] == NAMES[data]]
    paths = [path for name in reach.FOLDERS if (path := folder / name / PATHS[data]).is_file()]
    found = settings_of_two(paths[-1])
    assert [line["defence"] for line in lines] == [*found]
    assert [float(line["certified recovery, %"]) for line in lines] == [found[line["defence"]][1] for line in lines]
    said = [*settings_of_two(paths[-1 if use else 0]).values()]
    for what, (spent, share_held) in (("cheapest", said[0]), ("best", max(said, key=lambda own: own[1]))):
        assert figure(f"two{use} {data} {what}") == str(share_held)
        assert figure(f"two{use} {data} {what} passes") == f"{spent:,.0f}"


def test_both_networks_have_settings_and_nothing_is_an_error(tmp_path: Path) -> None:
    lines = grid(reach.recoveries_table(CHOOSING))
    assert {line["network"] for line in lines} == {*NAMES.values()}
    with pytest.raises(CertmaskError, match="expected recovery from several patches"):
        reach.recoveries_table(tmp_path)


def test_masks_and_leads_are_those_of_the_rule() -> None:
    lines = {line["defence"]: line for line in grid(reach.recoveries_table(CHOOSING))}
    assert lines["3-4-6, 0.95, 0.8"]["lead that settles"] == "0.95, 0.8"
    assert [lines[f"zoom, two patches, {lead}"]["lead that settles"] for lead in (0.2, 0.8)] == ["0.2", "0.8"]
    assert lines["zoom, two patches, 0.2"]["masks"] == "9 → 36"
    alone = lines["zoom, two patches, 3×3 alone"]
    assert (alone["masks"], alone["lead that settles"]) == ("9", "–")


def test_the_curve_by_brute_force() -> None:
    lines = grid(reach.sizes_table(RESULTS / "reach"))
    for data, name in NAMES.items():
        rows = rows_of(RESULTS / "reach" / PATHS[data])
        own = [line for line in lines if line["network"] == name]
        assert [line["patch up to"] for line in own] == [f"{side}×{side}" for side in (16, 24, 32, 40, 48)]
        for line, side in zip(own, (16, 24, 32, 40, 48), strict=True):
            for column, defence in (("recovery", SIZES), ("detection", "zoom detection, unknown size")):
                count = sum(row["defences"][defence]["side"] >= side for row in rows)
                assert line[f"certified {column}, %"] == str(share(count, rows))


def test_the_curve_is_drawn(tmp_path: Path) -> None:
    reach.draw_sizes(RESULTS / "reach", tmp_path)
    assert (tmp_path / "unknown-size.png").read_bytes().startswith(b"\x89PNG")


def test_rectangles_beside_the_square_by_brute_force() -> None:
    lines = grid(reach.shapes_table(RESULTS / "reach"))
    for data, name in NAMES.items():
        rows = rows_of(RESULTS / "reach" / PATHS[data])
        own = {line["defence"]: line for line in lines if line["network"] == name}
        assert len(own) == 4
        for defence, line in own.items():
            column = "certified detection, %" if "detection" in defence else "certified recovery, %"
            assert line[column] == str(share(held(rows, defence), rows))
            assert sum(map(int, line["by level"].split(" → "))) == int(line["masks"])
        apart = 100 * (held(rows, SHAPES) - held(rows, ONE)) / len(rows)
        assert figure(f"{data} shapes points").startswith(f"{apart:+.1f}".replace("-", "−"))
        assert (own[ONE]["masks"], own[SHAPES]["masks"]) == (figure("square masks"), figure("shapes masks"))


def test_a_patch_in_the_photo_by_brute_force() -> None:
    """The side at the end of a photo's name is that of the file; no two files are of one photo."""
    rows = rows_of(THREATS / "photo60.jsonl.gz")
    lines = grid(reach.photo_table(THREATS / "photo60.jsonl.gz"))
    words("other photos at each size")
    assert len({row["image"].rpartition("-")[0] for row in rows}) == len(rows) == int(figure("photo photos"))
    assert sum(int(line["photos"]) for line in lines) == len(rows)
    for line in lines:
        side = line["shorter side of the photo, px"]
        own = [row for row in rows if row["image"].endswith(f"-{side}.jpg")]
        assert {min(row["photo"]["size"]) for row in own} == {int(side)}
        for column, defence in (("recovery", "zoom"), ("detection", "zoom-detection")):
            assert line[f"certified {column}, %"].split()[0] == str(share(held(own, defence), own))
        reached = int(line["patch in the input"].split("×")[0])
        assert reached <= int(line["certified against"].split("×")[0]) < reached + 4
        assert {row["photo"]["side"] for row in own} == {int(line["covers in the photo, px"])}
        assert int(line["covers in the photo, px"]) >= 60
    covered = [100 * row["photo"]["side"] / min(row["photo"]["size"]) for row in rows if held([row], "zoom")]
    assert figure("photo median") == f"{median(covered):.1f}"
    assert figure("photo small recovery") == lines[0]["certified recovery, %"].split()[0]
    assert figure("photo large recovery") == lines[-1]["certified recovery, %"].split()[0]


def test_attacks_by_brute_force() -> None:
    """As many attempts as the files have; none broke what a theorem proves, and the undefended network fell."""
    lines = grid(reach.attacks_table(THREATS))
    bare, proofs = [], []
    for path in sorted(THREATS.glob("*-attempts.jsonl.gz")):
        header, *rows = lines_of(path)
        for defence in header["defences"]:
            own = [row for row in rows if row["defence"] == defence]
            line = lines.pop(0)
            assert (line["defence"], line["attempts"]) == (defence, str(len(own)))
            changed = [row for row in own if row["answer"] != row["label"]]
            assert line["label changed"] == str(len(changed))
            if defence == "undefended":
                bare += own
                assert len({row["image"] for row in changed}) == len({row["image"] for row in own})
            else:
                proofs += own
                assert line["certificate broken"] == "0"
                assert not any(row["broken"] for row in own)
                assert all(row["alert"] and "detection" in defence for row in changed)
    assert not lines
    assert figure("attempts") == f"{len(proofs):,}"
    assert figure("attempts broken") == "0"
    assert figure("attempts two") == str(sum(len(row.get("patches", [])) == 2 for row in proofs))
    assert figure("attempts photo") == str(sum("photo" in row for row in proofs))
    strips = [p["size"] for row in proofs for p in row.get("patches", []) if len(row["patches"]) == 1]
    assert figure("attempts strips") == str(sum(max(size) / min(size) >= 4 for size in strips))
    assert figure("attempts bare fell") == str(sum(row["answer"] != row["label"] for row in bare))
    assert all(
        int(figure(f"attempts {name}").replace(",", "")) >= least for name, least in (("two", 400), ("photo", 200))
    )
