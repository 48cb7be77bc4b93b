"""Every example runs by itself and prints what it promises; one without a check here fails."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}

PRINTS: dict[str, list[str]] = {
    "own_model": [
        r"reddish: certified recovery against any 6×6 patch on a 32×32 input: the true class is answered, .+",
        r"halves: not certified against any 6×6 patch on a 32×32 input",
        r"the network alone says green",
        r"the defence says red, after \d+ passes",
        r"because of 169 places \d+ claim green, \d+ claim red; \d+ were looked at closer; \d+ passes with two masks "
        r"decided between them; the answer is unbeaten \(the claim of a place that no other beats\)",
    ],
    "local_evidence": [
        r"8×8 cells, each sees 4×4 pixels",
        r"robust masking: certified, red under attack",
        r"clipped bagnet: not certified, red under attack",
    ],
    "onnx_model": [
        r"torch: 2 of 2 answered rightly, \d certified",
        r"onnxruntime: 2 of 2 answered rightly, \d certified",
    ],
    "own_rule": [
        r"Unanimity: 21 of 81 tables certified, 0 of these beaten",
        r"Hopeful: 33 of 81 tables certified, 6 of these beaten",
    ],
    "own_attack": [
        r"1\d of 20 pictures are certified",
        r"the network is fooled by 1\d, 1\d of them certified",
        r"the defence is fooled by \d, 0 of them certified",
    ],
    "black_box": [
        r"undefended: 3 of 3 pictures fooled by foolbox",
        r"jury-recovery: 0 of 3 pictures fooled by foolbox",
    ],
    "certify_folder": [
        r"undefended: [\d.]+ % answered rightly with 1 passes each",
        r"jury detection: [\d.]+ % answered rightly with 9 passes each",
        r"  certified detection: [\d.]+ % of 8 photos",
        r"PatchCleanser: [\d.]+ % answered rightly with \d+ passes each",
        r"  certified recovery: [\d.]+ % of 8 photos",
        r"any 5×5 patch on a 32×32 input; saved in runs/demo-cifar10.jsonl",
    ],
    "photo_patch": [
        r"any 8×8 patch in the photo",
        r"3/48.png: 8×8 of its pixels reach at most 9×9 of the input: certified up to 8×8",
        r"8/64.png: 8×8 of its pixels reach at most 8×8 of the input: certified up to 9×9",
        r"8/96.png: 8×8 of its pixels reach at most 7×7 of the input: (not certified|certified up to \d+×\d+)",
        r"0/160.png: 8×8 of its pixels reach at most 6×6 of the input: certified up to 11×11",
    ],
    "threats": [
        r"strong: certified recovery against any 6×6 patch on a 32×32 input",
        r"faint: certified recovery against any 6×6 patch on a 32×32 input",
        r"strong: certified recovery against any 2 patches of 6×6 on a 32×32 input",
        r"faint: not certified against any 2 patches of 6×6 on a 32×32 input",
        r"strong: certified recovery against any rectangle of up to 36 pixels on a 32×32 input",
        r"faint: certified recovery against any rectangle of up to 36 pixels on a 32×32 input",
        r"strong: certified recovery against any 12×12 patch on a 32×32 input",
        r"faint: certified recovery against any 8×8 patch on a 32×32 input",
        r"two stickers: red",
    ],
    "read_results": [
        r"resnet26-cifar10 on 20 photos of demo-cifar10",
        r"",
        r"share of photos answered rightly without an alert, and with a false alert:",
        r" +clean +alert",
        r"defence *",
        r"undefended +1.00 +0.00",
        r"published rule k=6 +1.00 +0.00",
        r"PatchCleanser 6×6 +1.00 +0.00",
        r"zoom +1.00 +0.00",
        r"",
        r"certified share, by what the certificate promises:",
        r" +certified",
        r"guarantee +defence *",
        r"published test +published rule k=6 +0.85",
        r"recovery +PatchCleanser 6×6 +0.90",
        r" +zoom +0.85",
    ],
}
"""What each example prints, line by line."""


def test_every_example_is_checked() -> None:
    assert set(PRINTS) == set(EXAMPLES)


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_prints_what_it_promises(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLES[name])])
    runpy.run_path(str(EXAMPLES[name]), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(PRINTS[name]), lines
    for line, expected in zip(lines, PRINTS[name], strict=True):
        assert re.fullmatch(expected, line), (line, expected)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_read_in_a_minute(name: str) -> None:
    assert len(EXAMPLES[name].read_text(encoding="utf-8").splitlines()) <= 60
