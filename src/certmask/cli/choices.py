"""What the user chose on the command line, turned into a classifier, a cover and rules."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from certmask.backends import PRECISIONS, backend_named, default_backend
from certmask.backends.devices import present_device
from certmask.certificate import Guarantee
from certmask.classifier import Classifier
from certmask.cli.sizes import check_mask, make_patch, optional_size
from certmask.cli.usage import asked_rightly
from certmask.covers import Cover, default_cover
from certmask.covers.default import suited_cover
from certmask.data import Dataset, load_dataset
from certmask.defences import MaskedDefence
from certmask.errors import UsageError, any_of
from certmask.rules import MinorityReports, Rule
from certmask.rules.registry import aggregate_named, listed
from certmask.threat import Size
from certmask.views import checked_views
from certmask.votes import UNIT, Margin
from certmask.zoo import Card, card_of, framing_of, load_classifier, name_aliases, readable_names

COPIES = 8
"""So many times the pictures of a batch, at least, lie in memory while a network looks at them."""


@dataclass(frozen=True)
class Choices:
    """Options of ``predict`` and ``certify``."""

    model: str
    weights: Path | None
    patch: str | None
    mask: str | None
    tiling: str
    fold: str | None
    rules: Sequence[str]
    pairs: str
    aggregate: str
    threshold: float
    margin: str
    device: str = "auto"
    precision: str = "auto"
    batch: int | None = None
    backend: str = "torch"
    views: str = "plain"

    def on(self, device: str, precision: str, batch: int | None, backend: str, views: str) -> Choices:
        return replace(self, device=device, precision=precision, batch=batch, backend=backend, views=views)

    @cached_property
    def card(self) -> Card:
        """The model's classes and preprocessing, known before its weights are read."""
        return card_of(self.model)

    def check(self) -> None:
        """An error for an option that can be judged without the model's weights."""
        optional_size(self.patch, "patch")
        optional_size(self.fold, "fold")
        optional_size(self.mask, "mask")
        if len(set(self.rules)) != len(self.rules):
            raise UsageError(f"expected each rule once, got {', '.join(self.rules)}")
        margin = self.fixed_margin() or Margin()
        with asked_rightly():
            rules = [self._rule(name, margin) for name in self.rules]
        for rule in rules:
            check_margin(rule)
        device = pick_device(self.device)
        check_engine_room(pick_backend(self.backend, device), self.precision, device)
        check_batch(self.batch, self.card.size, device)
        pick_views(self.views)
        covers = self.covers()
        with asked_rightly():
            self.defences(covers, margin)

    def classifier(self) -> Classifier:
        self.check()
        device = pick_device(self.device)
        return load_classifier(
            self.model,
            self.weights,
            device=device,
            precision=self.precision,
            batch=self.batch,
            backend=pick_backend(self.backend, device),
            views=pick_views(self.views),
        )

    def covers(self) -> list[Cover]:
        """One cover per chosen rule."""
        image, patch = self.card.size, make_patch(self.patch, self.card.size)
        asked = self.tiling, optional_size(self.mask, "mask"), optional_size(self.fold, "fold")
        if asked[1] is not None:
            check_mask(asked[1], image)
        covers = []
        with asked_rightly():
            for rule in self.rules:
                bare = rule == "undefended"
                cover = (
                    default_cover(image, patch) if bare else suited_cover(image, patch, *asked, many=listed(rule).many)
                )
                if not bare:
                    check_mask(cover.mask, image)
                covers.append(cover)
        return covers

    def defences(self, covers: Sequence[Cover], margin: Margin) -> list[MaskedDefence]:
        """One defence per chosen rule, named after the rule."""
        named = zip(self.rules, covers, strict=True)
        return [MaskedDefence(cover, self._rule(name, margin), name) for name, cover in named]

    def _rule(self, name: str, margin: Margin) -> Rule:
        row = listed(name)
        sure = None if row.rule.guarantee is Guarantee.NONE else margin
        aggregate = aggregate_named(self.aggregate)
        return row.made(sure, pairs=self.pairs, aggregate=aggregate, threshold=self.threshold)

    def fixed_margin(self) -> Margin | None:
        """The margin as a number in each rule's own unit, or None where it is to be measured."""
        if self.margin == "auto":
            return None
        try:
            return Margin(float(self.margin), float(self.margin))
        except ValueError:
            raise UsageError(f"expected margin to be a number or auto, got {self.margin!r}") from None


def photos_for(model: str, source: str) -> Dataset:
    """Labelled photos as a model takes them, before its weights are read."""
    return load_dataset(source, name_aliases(readable_names(card_of(model).classes)), framing_of(model))


def check_margin(rule: Rule) -> None:
    """An error if no lead can exceed a rule's margin."""
    most = -math.log(UNIT) if rule.unit == "logarithm" else 1.0
    if isinstance(rule, MinorityReports):
        most -= rule.threshold
    if rule.guarantee.proved and rule.margin >= most:
        raise UsageError(
            f"expected a margin below {most:.3g} for {rule.name} (no lead is larger, so nothing could be proved), "
            f"got {rule.margin:g}"
        )


def check_engine_room(backend: str, precision: str, device: str) -> None:
    """An error for a backend or a precision that there is not, or that do not go together."""
    with asked_rightly():
        row = backend_named(backend)
    if precision not in (*PRECISIONS, "auto"):
        raise UsageError(f"expected precision to be auto, {', '.join(PRECISIONS)}, got {precision!r}")
    if precision not in (*row.precisions, "auto"):
        raise UsageError(f"expected precision {any_of(row.precisions)} with {row.title}, got {precision!r}")
    if not row.serves(device):
        raise UsageError(f"expected device {any_of(row.devices)} with {row.title}, got {device!r}")


def check_batch(batch: int | None, image: Size, device: str) -> None:
    """An error for a batch whose pictures alone no memory of the device could hold."""
    if batch is None:
        return
    memory = device_memory(device)
    most = max(memory // (COPIES * 3 * 4 * image[0] * image[1]), 1)
    if batch > most:
        raise UsageError(
            f"expected a batch of at most {most:,} {image[0]}×{image[1]} images on {device} "
            f"({memory / 2**30:,.0f} GiB of memory), got {batch:,}"
        )


def device_memory(device: str) -> int:
    """All the memory that a device has, in bytes."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)[1]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def pick_backend(backend: str, device: str) -> str:
    """``auto`` takes what suits the device best."""
    return default_backend(device) if backend == "auto" else backend


def pick_views(views: str) -> tuple[str, ...]:
    """``plain,mirror`` → the names of the views; an error for one that there is not, or that is there twice."""
    with asked_rightly():
        return checked_views([name.strip() for name in views.split(",")])


def pick_device(device: str) -> str:
    """``auto`` takes the GPU where there is one; an error for a device that is not there."""
    with asked_rightly():
        return str(present_device(device))
