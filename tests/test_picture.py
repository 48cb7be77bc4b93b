"""The picture of an attack: its caption says what its record says, and the record is of a real break."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = json.loads((ROOT / "results/attacks/picture.json").read_text(encoding="utf-8"))


def test_pages_quote_the_captions() -> None:
    command = [sys.executable, str(ROOT / "docs" / "draw_attack.py"), "--caption"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    assert len(told) == 2
    for caption, page in zip(told, ("docs/guarantees.md", "README.md"), strict=True):
        assert "published rule" in caption
        assert caption in " ".join((ROOT / page).read_text(encoding="utf-8").split())


def test_the_published_rule_is_broken_and_the_proved_ones_are_not() -> None:
    defences = RECORD["defences"]
    assert all(defence["certified"] for name, defence in defences.items() if name != "undefended")
    assert {defence["rule"]["guarantee"] for defence in defences.values() if defence["broken"]} == {
        "none",
        "published test",
    }
    assert {defences[name]["answer"] for name in ("jury recovery k=1", "zoom")} == {RECORD["class"]}
    assert defences["jury detection k=4"]["alert"]
