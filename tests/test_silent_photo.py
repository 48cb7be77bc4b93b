"""A photo about which the network gives no numbers at all: it is counted as lost, and hurts nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from commands import certmask
from PIL import Image
from torch import Tensor, nn

import certmask as cm
from certmask.certificate import NO_CLASS, class_name
from certmask.certification import certify_run
from certmask.classifier import Classifier
from certmask.cli.certify import _tell_silence
from certmask.covers import spread_cover
from certmask.data import load_dataset
from certmask.defences import MaskedDefence
from certmask.engine import Engine
from certmask.errors import ClassifierError
from certmask.results.columns import figures
from certmask.results.run import Run, read_run
from certmask.rules import JuryDetection, JuryRecovery, Undefended
from certmask.threat import Patch

COVER = spread_cover(24, Patch(4, 4), 10, 2)


class NoNumbers(nn.Module):
    """Votes for class 1; no numbers about pictures with a white pixel anywhere, masked or not."""

    def forward(self, batch: Tensor) -> Tensor:
        big = torch.exp(300 * batch.amax(dim=(1, 2, 3)) - 200)
        return torch.stack([big - big, 1 + (big - big)], dim=1)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Three photos, of which the second is all white, and the third white in one place."""
    (tmp_path / "photos" / "1").mkdir(parents=True)
    patched = Image.new("RGB", (24, 24), (80, 80, 80))
    patched.paste((255, 255, 255), (10, 10, 13, 13))
    pictures = {"a": Image.new("RGB", (24, 24), (80, 80, 80)), "b": Image.new("RGB", (24, 24), "white"), "c": patched}
    for name, picture in pictures.items():
        picture.save(tmp_path / "photos" / "1" / f"{name}.png")
    dataset = load_dataset(str(tmp_path / "photos"), (("0",), ("1",)), 1.0)
    rules = {"undefended": Undefended(), "jury-recovery": JuryRecovery(), "jury-detection": JuryDetection()}
    defences = [MaskedDefence(COVER, rule, name) for name, rule in rules.items()]
    engine = Engine(Classifier(NoNumbers(), 24, batch=16, precision="fp32"), [COVER])
    certify_run(engine, dataset, defences, tmp_path / "run.jsonl")
    return read_run(tmp_path / "run.jsonl")


def test_it_is_a_row_with_its_error(run: Run) -> None:
    rows = {row["image"]: row for row in run.rows}
    assert rows["1/b.png"]["error"] == "expected finite logits, got NaN or infinity under every mask"
    assert all(outcome["label"] == NO_CLASS and outcome["alert"] for outcome in rows["1/b.png"]["defences"].values())
    assert "silent" not in rows["1/a.png"]
    assert rows["1/c.png"]["silent"] > 0
    assert "error" not in rows["1/c.png"]
    assert all(outcome["certified"] for name, outcome in rows["1/a.png"]["defences"].items() if name != "undefended")
    assert not any(outcome["certified"] for outcome in rows["1/b.png"]["defences"].values())


def test_it_is_counted_as_lost(run: Run) -> None:
    found = {line.defence: line for line in figures(run)}
    assert {line.images for line in found.values()} == {3}
    assert found["jury-detection"].certified is not None
    assert found["jury-detection"].certified.count == 1


def test_the_command_ends_with_its_name(run: Run) -> None:
    with pytest.raises(ClassifierError, match=r"expected finite logits.*1/b\.png, 1 of 3 images"):
        _tell_silence(run)


def test_tables_and_reports_have_a_word_for_it(run: Run, tmp_path: Path) -> None:
    assert "jury-recovery" in certmask("table", run.path).stdout
    certmask("report", run.path, "--photos", tmp_path / "photos", "--out", tmp_path / "page.html")
    assert "no class" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_in_service_it_is_an_alert(run: Run) -> None:
    shield = cm.Defence(NoNumbers(), COVER, "jury-recovery", batch=16, precision="fp32")
    answer = shield(torch.stack([torch.full((3, 24, 24), 0.3), torch.ones(3, 24, 24)]))
    assert (answer.labels.tolist(), answer.alerts.tolist()) == ([1, NO_CLASS], [False, True])
    said = shield.explain(torch.ones(1, 3, 24, 24))[0]
    assert not said.certificate.holds
    assert class_name(said.label, ("a", "b")) == "no class"
