"""The table of all attempts, counted again from the raw lines; what they say was certified is in the repository."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from recount import lines
from test_docs_results import RESULTS, ROOT, figure

from certmask.errors import CertmaskError
from certmask.results.run import read_run
from certmask.rules.registry import REGISTER

attempts: Any = importlib.import_module("attempts")
FILES = sorted((ROOT / "results").glob("*/*-attempts.jsonl.gz"))
MEANS = {"patch": "one patch", "any rectangle": "any rectangle", "up to": "unknown size", "photo patch": "in the photo"}


def grid(text: str) -> list[dict[str, str]]:
    head, _, *rows = ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines()
                      if line.startswith("|"))  # fmt: skip
    return [dict(zip(head, row, strict=True)) for row in rows]


def threat_of(described: dict[str, Any]) -> str:
    """In the words of the table; a format without a word for it was always about one patch."""
    threat = described.get("threat", {"kind": "patch"})
    return "two patches" if threat.get("count", 1) == 2 else MEANS[threat["kind"]]


def test_every_attempt_is_in_one_row() -> None:
    rows = grid(attempts.attempts_table(ROOT / "results"))
    counted, broken, by_threat = Counter[str](), Counter[str](), Counter[str]()
    for path in FILES:
        header, *made = lines(path)
        for row in made:
            about = header["defences"][row["defence"]]
            counted[about["rule"]["guarantee"]] += 1
            broken[about["rule"]["guarantee"]] += row["broken"] is True
            by_threat[threat_of(about)] += 1
    for kind in counted:
        own = [row for row in rows if row["certificate"] == kind]
        assert sum(int(row["attempts"].replace(",", "")) for row in own) == counted[kind]
        told = ["–"] * len(own) if kind == "none" else [row["certificates broken"] for row in own]
        assert [row["certificates broken"] for row in own] == told
        assert kind == "none" or sum(int(one.replace(",", "")) for one in told) == broken[kind]
    for threat, count in by_threat.items():
        own = [row for row in rows if row["attacker"] == threat]
        assert sum(int(row["attempts"].replace(",", "")) for row in own) == count
    assert figure("overview attempts") == f"{counted['recovery'] + counted['detection']:,}"
    assert broken["recovery"] + broken["detection"] == 0


def test_rules_are_called_as_on_the_command_line() -> None:
    """Zoom by its levels, the challenger by what it is told; every rule is found from a description of itself."""
    for row in REGISTER:
        rule = row.made().describe()
        cover: dict[str, Any] = {"cover": {"levels": []} if row.zooms else {}}
        assert attempts.option_of({"rule": rule, **cover}) == row.option
        assert attempts.option_of({"rule": rule, "classes": [cover]}) == row.option
    assert attempts.option_of({"rule": {"rule": "robust masking", "guarantee": "recovery"}}) == "patchguard"


def test_a_further_file_is_counted_and_an_untried_rule_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "attack_runs", attempts.attack_runs.__wrapped__)  # no folder is remembered as it was
    with pytest.raises(CertmaskError, match="expected attempts in"):
        attempts.attempts_table(tmp_path)
    path = ROOT / "results/attacks/zoom-imagenette-attempts.jsonl.gz"
    for folder in ("attacks", "gauntlet"):
        (tmp_path / folder).mkdir()
    shutil.copy(path, tmp_path / "attacks")
    zoom, bare = grid(text := attempts.attempts_table(tmp_path))
    assert (zoom["rule"], zoom["networks"], bare["rule"]) == ("zoom", "1", "undefended")
    assert "`hicert`" in text.splitlines()[-1]
    header, *rows = lines(path)
    extra = [row for row in rows if row["defence"] == "zoom"][:7]
    other = {**header, "model": {**header["model"], "weights_sha256": "0" * 64}}
    packed = gzip.compress("".join(f"{json.dumps(line)}\n" for line in (other, *extra)).encode())
    (tmp_path / "gauntlet" / "other-attempts.jsonl.gz").write_bytes(packed)
    more, _ = grid(attempts.attempts_table(tmp_path))
    assert (more["networks"], int(more["attempts"])) == ("2", int(zoom["attempts"]) + 7)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_was_attacked_is_in_the_repository(path: Path) -> None:
    """By the digest of the run as it was written, before it was packed."""
    said = read_run(path).header["certified"]
    known = [*RESULTS.parent.glob(f"*/{said['run']}.gz"), *RESULTS.glob(f"*/{said['run']}.gz")]
    runs = [found for found in known if read_run(found).digest == said["digest"]]
    assert len(runs) == 1
    assert hashlib.sha256(gzip.decompress(runs[0].read_bytes())).hexdigest()[:16] == said["digest"]
