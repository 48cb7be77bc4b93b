"""``certmask predict``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from PIL import Image
from rich.markup import escape

from certmask.certificate import Certificate
from certmask.classifier import Classifier
from certmask.cli.choices import Choices
from certmask.cli.console import err, out
from certmask.covers import cover_text
from certmask.data import read_photo, to_tensor
from certmask.defences.masked import MaskedDefence
from certmask.engine import Engine
from certmask.engine.margin import measured_margin
from certmask.rules import Undefended
from certmask.rules.rule import Asking, numbered
from certmask.votes import VoteStore, single_passes
from certmask.zoo import framing_of


@dataclass(frozen=True)
class Prediction:
    """One photo: the answer, whether a patch on it could change the answer, and who voted what."""

    photo: Path
    name: str
    label: int
    alert: bool
    certificate: Certificate
    rule: str
    passes: int
    votes: list[tuple[int, float]]

    def describe(self) -> dict[str, Any]:
        return {
            "photo": str(self.photo),
            "label": self.label,
            "name": self.name,
            "alert": self.alert,
            "certified": self.certificate.holds,
            "guarantee": self.certificate.guarantee.value,
            "meaning": self.sentence,
            "passes": self.passes,
            "cover": cover_text(self.certificate.cover),
            "rule": self.rule,
        }

    @property
    def sentence(self) -> str:
        """What is guaranteed about this photo with any patch put on it."""
        return f"if this photo is clean and shows {self.name}: {self.certificate.sentence}"


def run(photos: Sequence[Path], choices: Choices, *, as_json: bool, draw: Path | None) -> bool:
    """Predict each photo; whether one raised an alert."""
    fixed = choices.fixed_margin()
    classifier = choices.classifier()
    covers = choices.covers(classifier)
    framing = framing_of(choices.model)
    inputs = [framing(read_photo(photo), classifier.size) for photo in photos]
    if fixed is None:
        fixed = measured_margin(Engine(classifier, covers), [to_tensor(image) for image in inputs[:8]])
    defence = choices.defences(covers, fixed)[0]
    predictions = predict(classifier, defence, photos, inputs)
    if as_json:
        typer.echo(json.dumps([p.describe() for p in predictions], ensure_ascii=False, indent=2))
    else:
        for p in predictions:
            alert = "ALERT, this may be an attack" if p.alert else "no alert"
            said = f"{escape(str(p.photo))}: [bold]{p.name}[/bold] ({p.label}), {alert}, {p.passes} passes"
            out.print(f"{said}\n  {p.sentence}", soft_wrap=True)
        if not isinstance(defence.rule, Undefended):
            out.print(f"by {defence.name}: {defence.cover}", soft_wrap=True)
    if draw:
        _draw(predictions, inputs, defence, classifier, draw)
    return any(p.alert for p in predictions)


def predict(
    classifier: Classifier, defence: MaskedDefence, photos: Sequence[Path], inputs: Sequence[Image.Image]
) -> list[Prediction]:
    """Decide, then try to certify the answer."""
    engine = Engine(classifier, [defence.cover])
    rule = defence.rule

    def program(number: int, store: VoteStore) -> Asking[Prediction]:
        votes = engine.votes(defence.cover, store)
        decision = yield from numbered(rule.deciding(votes), votes)
        passes = store.count
        holds = yield from numbered(rule.certifying(votes, decision.label), votes)
        yield votes.passes(single_passes(len(defence.cover)))
        heads = votes.heads(single_passes(len(defence.cover)))
        return Prediction(
            photos[number],
            classifier.class_names[decision.label],
            decision.label,
            decision.alert,
            rule.certificate(defence.cover, decision.label, holds, engine.describe()),
            defence.name,
            passes,
            list(zip(heads.labels.tolist(), heads.confidence.tolist(), strict=True)),
        )

    findings = engine.run((to_tensor(image) for image in inputs), program, clean=False)
    return [finding.value for finding in sorted(findings, key=lambda f: f.number)]


def _draw(
    predictions: Sequence[Prediction],
    inputs: Sequence[Image.Image],
    defence: MaskedDefence,
    classifier: Classifier,
    path: Path,
) -> None:
    from certmask.report.drawing import draw_votes

    for number, (prediction, image) in enumerate(zip(predictions, inputs, strict=True)):
        target = path if len(predictions) == 1 else path.with_stem(f"{path.stem}-{number + 1}")
        title = f"{prediction.name}{' — ALERT' if prediction.alert else ''}\n{prediction.certificate.sentence}"
        draw_votes(image, defence.cover, prediction.votes, classifier.class_names, title, target)
        err.print(f"drawn in {target}", markup=False, soft_wrap=True)
