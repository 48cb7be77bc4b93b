"""The picture of an attack: its caption says what its record says, and the record is of a real break."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = json.loads((ROOT / "results/attacks/picture.json").read_text(encoding="utf-8"))


def test_the_guarantees_quote_the_caption() -> None:
    command = [sys.executable, str(ROOT / "docs" / "draw_attack.py"), "--caption"]
    caption = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert "published rule" in caption
    assert caption in " ".join((ROOT / "docs/guarantees.md").read_text(encoding="utf-8").split())


def test_the_published_rule_is_broken_and_the_proved_ones_are_not() -> None:
    defences = RECORD["defences"]
    assert all(defence["certified"] for name, defence in defences.items() if name != "undefended")
    assert {defence["rule"]["guarantee"] for defence in defences.values() if defence["broken"]} == {
        "none",
        "published test",
    }
    assert defences["jury recovery k=1"]["answer"] == RECORD["class"]
    assert defences["jury detection k=4"]["alert"]
