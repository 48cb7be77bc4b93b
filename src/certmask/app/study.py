"""One look at a photo through a defence: what it costs, what comes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image

from certmask.app.examples import Photo
from certmask.app.lab import as_picture
from certmask.app.studio import Bench, Meter, Question, Studio, Tell
from certmask.certificate import NO_CLASS, Guarantee, class_name, supposing
from certmask.covers import Cover
from certmask.covers.costs import zoom_figures
from certmask.data import pixel_digest, to_tensor
from certmask.defences import Explanation, MaskedDefence, explain
from certmask.report.map import Map
from certmask.rules.registry import listed
from certmask.service.limits import Limits


@dataclass(frozen=True)
class Price:
    """The passes that a question may take: at least to answer, and at most with all that is to be found out.

    That is the proof or, where nothing can be proved, what every mask says. ``allowed`` is the most that is taken on.
    """

    least: int
    most: int
    allowed: int | None
    proves: bool = True

    @property
    def sentence(self) -> str:
        """The same in words, before anything is computed."""
        some = f"{self.least:,} to {self.most:,} passes"
        told = f"{some} to answer and {'to prove' if self.proves else 'to see what masks would say'}"
        if self.allowed is None or self.most <= self.allowed:
            return told
        if self.least > self.allowed:
            return f"{some}: more than the {self.allowed:,} that {'is' if self.allowed == 1 else 'are'} allowed here"
        return f"{told}; refused where it takes more than {self.allowed:,}"


SHOWN = 36
"""Masked pictures that people are shown; those that dissent come first."""


@dataclass(frozen=True)
class MaskedView:
    """What the model said under one mask, and whether that is another class than the answer."""

    mask: int
    label: int
    confidence: float
    dissents: bool


@dataclass(frozen=True)
class Study:
    """What a defence says about a photo, why, and what it took.

    ``picture`` is what the model was shown, ``sharp`` the same part of the photo for people. ``views`` has those that
    dissent first, ``masked`` what the model was shown in the first few.
    """

    photo: str
    picture: Image.Image
    sharp: Image.Image
    model: str
    names: Sequence[str]
    defence: MaskedDefence
    explanation: Explanation
    views: Sequence[MaskedView]
    masked: Sequence[Image.Image]
    passes: int
    seconds: float

    @property
    def name(self) -> str:
        """The class that is answered."""
        return class_name(self.explanation.label, self.names)

    @property
    def sentence(self) -> str:
        """What is guaranteed, in one sentence."""
        return supposing(self.name, self.explanation.certificate.sentence)

    @property
    def map(self) -> Map:
        """What every place claims."""
        one = self.explanation
        proved = one.certificate.holds if one.weakest is None else one.weakest.proved
        return Map(self.defence.cover, one.places, one.label, self.defence.rule.unit, proved, one.weakest)

    @property
    def certificate(self) -> str:
        """The certificate, as a file has it: with the picture that it speaks of, by its digest."""
        shown = {"photo": self.photo, "input_sha256": pixel_digest(to_tensor(self.picture)), "answer": self.name}
        told = {**shown, "alert": self.explanation.alert, "passes": self.passes}
        return json.dumps({**told, "certificate": self.explanation.certificate.describe()}, indent=2)


def price(studio: Studio, question: Question) -> Price:
    """What a question may cost; an error for one that makes no sense."""
    cover = studio.cover(question)
    defence = MaskedDefence(cover, listed(question.rule).made(), question.rule)
    if defence.guarantee is Guarantee.NONE:
        return Price(1, 1 + len(cover), studio.limits.passes, proves=False)
    return Price(_least(cover), defence.most_passes, studio.limits.passes)


def _least(cover: Cover) -> int:
    """The fewest passes that an answer takes."""
    if cover.levels:
        least: int = zoom_figures(cover)["answer"]["least"]
        return least
    return len(cover)


def study(
    studio: Studio, photo: Photo, question: Question, tell: Tell | None = None, limits: Limits | None = None
) -> Study:
    """Look at a photo as ``certmask predict`` does; refused where it takes more than the limits allow."""
    picture, sharp = studio.seen(photo, question.model), studio.sharp(photo, question.model)
    meter = Meter(limits or studio.limits, tell)
    with studio.alone:
        return looked_at(studio.bench(question), photo.name, (picture, sharp), meter)


def looked_at(bench: Bench, photo: str, pictures: tuple[Image.Image, Image.Image], meter: Meter) -> Study:
    """What the first defence of a bench says about a model's input, the first of two pictures."""
    picture, sharp = pictures
    image, defence = to_tensor(picture), bench.defences[0]
    with bench.metered(meter):
        (found,) = explain(bench.engine, [image], defence)
    views = masked_views(found)
    seen = masked_pictures(bench, picture, views[:SHOWN])
    name, names = bench.classifier.name, bench.classifier.class_names
    return Study(photo, picture, sharp, name, names, defence, found, views, seen, meter.passes, meter.seconds)


def masked_views(found: Explanation) -> list[MaskedView]:
    """Every single mask that was asked, those that name another class than the answer first."""
    views = [
        MaskedView(mask, label, confidence, label != found.label)
        for mask, (label, confidence) in enumerate(found.votes)
        if label != NO_CLASS or confidence
    ]
    return sorted(views, key=lambda view: not view.dissents)


def masked_pictures(bench: Bench, picture: Image.Image, views: Sequence[MaskedView]) -> list[Image.Image]:
    """What the model was shown under these masks."""
    numbers = torch.from_numpy(bench.engine.forward.masks.index(bench.defences[0].cover))
    image = to_tensor(picture).to(bench.classifier.device)
    pictures = []
    for view in views:
        (seen,) = bench.engine.forward.shown(image[None], numbers[view.mask].view(1, 1).to(image.device))
        pictures.append(as_picture(seen))
    return pictures
