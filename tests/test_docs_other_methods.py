"""What the pages say of the paper's other methods: tables, networks, trainings and attacks, counted from the files."""

from __future__ import annotations

import gzip
import importlib
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import certmask
from test_docs_results import CLEANSER, JURIES, RESULTS, ROOT, Row, clean, grids, held, lines_of, rows_of, share

from certmask.errors import CertmaskError
from certmask.experiments.experiment import LabelledPatch
from certmask.experiments.paper_tables import IN_THE_PHOTO, TABLE1

methods: Any = importlib.import_module("other_methods")
runs: Any = importlib.import_module("runs")
FIRST = "DS, first classes, place by place"
CELLS = {"undefended": "undefended, all cells", "patchguard": "PG-BN", "clipped-bagnet": "CBN"}
SMALL = "deit_tiny-imagenette--imagenette--patch32.jsonl.gz"


def figure(name: str) -> str:
    """A figure inside a sentence of a page, by its name."""
    pages = "".join(path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    (found,) = set(re.findall(rf"<!--=others {name}-->(.*?)<!--=-->", pages))
    return str(found)


def words(text: str, page: str) -> None:
    """The page must have them: whoever rewrites a sentence looks at its check, too."""
    plain = re.sub(r"<!--=.*?-->", "", (ROOT / "docs" / page).read_text())
    assert text in " ".join(plain.split()), text


def patch_of(about: Row) -> int:
    return int(about["cover"]["patch"][0] if "cover" in about else about["threat"]["height"])


def file_of(line: dict[str, str], data: str, *folders: str) -> Path:
    """The first run of a network with a defence against a patch."""
    side, defence = int(line["patch, px"].split("×")[0]), line["defence"]
    for path in (p for f in folders for p in sorted((RESULTS / f).glob(f"{line['network']}--{data}--*.jsonl.gz"))):
        about = lines_of(path)[0]["defences"].get(defence)
        if about and patch_of(about) == side and "-few" not in path.name:
            return path
    raise AssertionError(f"no run of {line}")


@pytest.mark.parametrize("name", ["table1", "table1-photo"])
def test_every_row_is_counted_from_a_file(name: str) -> None:
    """Every run of the other methods is there; networks that take the photo as it is have their runs of Table 1."""
    (_, told), *found = grids(methods.other_methods(RESULTS / name)).items()
    lines = [(title.split(",")[0], line) for title, own in found for line in own]
    assert {CLEANSER, JURIES, "zoom", "DS", FIRST, "PG-DS"} <= {line["defence"] for _, line in lines}
    assert {line["network"] for line in told} == {line["network"] for _, line in lines}
    seen = set()
    for data, line in lines:
        seen.add(path := file_of(line, data, name, "table1", "zoom"))
        rows, defence = rows_of(path), line["defence"]
        assert line["photos"] == f"{len(rows):,}"
        assert float(line["clean"].split()[0]) == share(clean(rows, defence), rows)
        if not defence.startswith("undefended"):
            assert float(line["certified recovery"].split()[0]) == share(held(rows, defence), rows)
    for path in (RESULTS / name).glob("*.jsonl.gz"):
        assert path in seen or CLEANSER in lines_of(path)[0]["defences"] or "-few" in path.name


def test_as_many_photos_are_the_same_photos_and_others_were_chosen_on() -> None:
    words("runs with the same number have the same", "appendix/other-methods.md")
    words("the other methods' networks and settings were chosen on others", "appendix/other-methods.md")
    for data in ("cifar10", "imagenette"):
        lists = [{row["image"] for row in rows_of(path)} for path in (RESULTS / "table1").glob(f"*--{data}--*.gz")]
        assert all(one == other for one in lists for other in lists if len(one) == len(other))
    chosen = {row["input_sha256"] for row in rows_of(ROOT / "results/models/cifar10-told_resnet26w2-bands.jsonl.gz")}
    for path in (RESULTS / "table1").glob("told_*.gz"):
        assert not chosen & {row["input_sha256"] for row in rows_of(path)}


def points(start: str, field: str, method: str = "") -> list[float]:
    """From the paper's figures to ours, over the runs of Table 1 whose network's name begins so."""
    found = []
    for path in (RESULTS / "table1").glob(f"{start}*.jsonl.gz"):
        _, data, slug = path.name.removesuffix(".jsonl.gz").split("--")
        rows = rows_of(path)
        for told in TABLE1.reported:
            patches = {patch.label: patch.slug for patch in TABLE1.patches_on(data)}
            asked = told.method in rows[0]["defences"] and method in ("", told.method)
            if asked and (told.data, patches.get(told.threat)) == (data, slug):
                count = clean(rows, told.method) if field == "clean" else held(rows, told.method)
                found.append(100 * count / len(rows) - getattr(told, field))
    return found


def ends(values: list[float]) -> str:
    return " to ".join(f"{end(values):+.1f}" for end in (min, max)).replace("-", "−") if values else "–"


def test_distances_from_the_paper_by_brute_force() -> None:
    names = {"smoothed cifar10": "smoothed_deit_tiny-cifar10", "smoothed imagenette": "smoothed_deit_tiny-imagenette",
             "told": "told_", "cells": "bagnet"}  # fmt: skip
    for name, start in names.items():
        for field in ("clean", "robust"):
            assert figure(f"{name} {field}") == ends(points(start, field))
    near = points(names["smoothed cifar10"], "robust")
    words("On CIFAR-10 DS and PG-DS come out as in the paper", "appendix/other-methods.md")
    assert len(near) == 4
    assert all(abs(apart) < 3 for apart in near)
    words("PG-BN and CBN stay far below the paper's figures", "appendix/other-methods.md")
    assert all(apart < -10 for apart in points(names["cells"], "robust", "PG-BN"))
    assert all(apart < 0 for apart in points(names["cells"], "robust"))


def test_what_a_patch_in_the_photo_costs_by_brute_force() -> None:
    lost = []
    for here, there in ((14, 34), (35, 55)):
        name = "smoothed_deit_tiny-cifar10--cifar10--patch"
        input_rows, photo_rows = (
            rows_of(RESULTS / folder / f"{name}{side}.jsonl.gz")
            for folder, side in (("table1", here), ("table1-photo", there))
        )
        assert [row["image"] for row in input_rows] == [row["image"] for row in photo_rows]
        lost += [100 * (held(photo_rows, d) - held(input_rows, d)) / len(input_rows) for d in ("DS", "PG-DS")]
    assert figure("photo") == ends(lost)
    words(
        "reaches up to 34 or 55 of the 224 pixels to which it is enlarged (20 or 32 of 128)",
        "appendix/other-methods.md",
    )
    patches: tuple[LabelledPatch, ...] = IN_THE_PHOTO["cifar10"]
    assert [patch.on((128, 128)).height for patch in patches] == [20, 32]


def test_what_an_answer_costs_by_brute_force() -> None:
    words("PG-BN and CBN take one pass to answer and to prove", "appendix/other-methods.md")
    for path in (ROOT / "results" / "attacks").glob("bagnet*-certified.jsonl.gz"):
        for defence in ("patchguard", "clipped-bagnet"):
            assert {row["defences"][defence]["passes"] for row in rows_of(path)} == {1}
    bands = {row["defences"]["DS"]["passes"] for path in (RESULTS / "table1").glob("*.gz") for row in rows_of(path)
             if "DS" in row["defences"]}  # fmt: skip
    assert figure("band passes") == " or ".join(map(str, sorted(bands)))
    small = rows_of(RESULTS / "table1" / SMALL)
    assert figure("imagenette cleanser") == str(share(held(small, CLEANSER), small))
    smoothed = rows_of(RESULTS / "table1" / f"smoothed_{SMALL}")
    assert figure("imagenette smoothing") == str(share(held(smoothed, "DS"), smoothed))


def test_attacks_by_brute_force() -> None:
    """Attempts of every run, also on what was certified and not reached; none broke a certificate of a theorem."""
    page = methods.attacks_table(ROOT / "results" / "attacks")
    lines = [line.strip("| ").split(" | ") for line in page.splitlines()[4:]]
    networks = ("bagnet", "smoothed_", "told_")
    paths = [
        path for path in (ROOT / "results" / "attacks").glob("*-attempts.jsonl.gz") if path.name.startswith(networks)
    ]
    attempts = {path: rows_of(path) for path in paths}
    bare, proved = [], []
    for path, rows in attempts.items():
        certified = rows_of(path.with_name(path.name.replace("attempts", "certified")))
        for defence in lines_of(path)[0]["defences"]:
            own = [row for row in rows if row["defence"] == defence]
            (line,) = [one for one in lines if one[:2] == [path.name.removesuffix("-attempts.jsonl.gz"), defence]]
            changed = sum(row["answer"] != row["label"] for row in own)
            assert line[5:7] == [str(len(own)), str(changed)]
            if defence == "undefended":
                bare.append(changed)
                assert len(own) == 200
            else:
                proved += own
                assert line[4] == f"{held(certified, defence)} of {len(certified):,}"
                assert line[7] == str(sum(row["broken"] for row in own)) == "0"
    assert len(lines) == sum(len(lines_of(path)[0]["defences"]) for path in attempts)
    assert (figure("attempts"), figure("broken")) == (f"{len(proved):,}", "0")
    words("Of 200 attempts on each network without a defence", "guarantees.md")
    assert figure("bare") == f"{min(bare)} to {max(bare)}"
    words("Clipped BagNet certified nothing on CIFAR-10", "guarantees.md")
    missed = [line[4].split()[0] for line in lines if line[5] == "0"]
    assert [line[:2] for line in lines if line[4].startswith("0 of")] == [
        [f"bagnet17_half-cifar10{end}", "clipped-bagnet"] for end in ("", "-provable")
    ]
    assert len([count for count in missed if count != "0"]) == 1


def test_networks_of_cells_appear_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a BagNet, put among those of Table 1, is in the tables beside networks of masks."""
    monkeypatch.setattr(methods, "trials_in", methods.trials_in.__wrapped__)  # no folder is remembered as it was
    for folder in ("models", "networks"):
        shutil.copytree(ROOT / "results" / folder, tmp_path / folder)
    for folder in ("table1", "zoom"):
        (tmp_path / "reproduce" / folder).mkdir(parents=True)
        shutil.copy(RESULTS / folder / SMALL, tmp_path / "reproduce" / folder)
    with pytest.raises(CertmaskError, match="expected runs of networks of bands or cells"):
        methods.other_methods(tmp_path / "reproduce" / "table1")
    name = "bagnet17-imagenette-provable"
    header, *rows = lines_of(ROOT / f"results/attacks/{name}-certified.jsonl.gz")
    of_table = [
        {**line, "defences": {CELLS[d]: own for d, own in line["defences"].items()}} for line in (header, *rows)
    ]
    for model in (name, "nobody"):
        text = "\n".join(map(json.dumps, of_table)) + "\n"
        path = tmp_path / "reproduce/table1" / f"{model}--imagenette--patch32.jsonl.gz"
        path.write_bytes(gzip.compress(text.encode()))
        if model == "nobody":
            with pytest.raises(CertmaskError, match="expected a card of nobody"):
                methods.other_methods(tmp_path / "reproduce" / "table1")
            continue
        told, found = grids(methods.other_methods(tmp_path / "reproduce" / "table1")).values()
        assert [line["defence"] for line in found] == [*CELLS.values(), CLEANSER, JURIES, "zoom"]
        assert found[1]["robust, paper"] == "86.7"
        assert float(found[1]["certified recovery"].split()[0]) == share(held(rows, "patchguard"), rows)
        assert (told[0]["epochs"], told[0]["trained on"]) == ("11 + 3", "whole pictures, provable loss")
        assert told[0]["start"].startswith("resnet50_v1, ImageNet, 3×3 kernels summed up")


def test_every_network_is_listed_and_its_training_can_be_typed() -> None:
    """A card's recipe comes back from the options of its command, and every option exists."""
    folder = ROOT / "results" / "networks"
    table, commands = methods.recipes_table(folder), methods.train_commands(folder).splitlines()
    cards = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    cards["cifar10-told_resnet26w2-bands"] = json.loads(
        (folder.parent / "models/cifar10-told_resnet26w2-bands.json").read_text()
    )
    assert len(table.splitlines()) - 2 == len(commands) == len(cards) == 7
    known = set(re.findall(r"--[a-z-]+", certmask("train", "--help").stdout))
    for line in commands:
        program, verb, _, *options = shlex.split(line)
        assert (program, verb) == ("certmask", "train")
        said = dict(zip(options[::2], options[1::2], strict=True))
        assert said.keys() <= known
        card = cards[Path(said["--out"]).name]
        assert f"[{Path(said['--out']).name}](" in table
        assert said["--model"] == card["architecture"] or "provable" in said["--loss"]
        for key in ("epochs", "batch", "rate", "weight_decay", "warm_up", "zoom", "shift", "band"):
            default = {"warm_up": 0, "zoom": 1, "shift": 0}.get(key)
            assert float(said.get(f"--{key.replace('_', '-')}", default or 0)) == float(card["recipe"][key] or 0)


def test_cards_of_networks_for_masks_keep_their_table() -> None:
    assert "told_" not in runs.cards_table(ROOT / "results" / "models" / "cifar10")
    with pytest.raises(CertmaskError, match="expected cards of networks of bands or cells"):
        methods.recipes_table(ROOT / "results" / "tuned" / "networks")
