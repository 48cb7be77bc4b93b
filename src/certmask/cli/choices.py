"""What the user chose on the command line, turned into a classifier, a cover and rules."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from certmask.backends import PRECISIONS, backend_named, default_backend
from certmask.backends.devices import present_device
from certmask.certificate import Guarantee
from certmask.classifier import Classifier
from certmask.cli.sizes import (
    check_levels,
    check_mask,
    make_threat,
    optional_levels,
    optional_size,
    parse_thresholds,
)
from certmask.cli.usage import asked_rightly
from certmask.covers import Cover, default_cover
from certmask.covers.bands import BAND_TILINGS
from certmask.covers.default import Wishes, suited_cover
from certmask.data import Dataset, load_dataset
from certmask.defences import LocalDefence, MaskedDefence, RuledDefence
from certmask.deployed.tokens import on_tokens
from certmask.errors import UsageError, any_of
from certmask.evidence import EvidenceRule, LocalClassifier
from certmask.evidence.registry import LOCAL_REGISTER, is_local, listed_local
from certmask.rules import BandMasking, MinorityReports, Rule
from certmask.rules.registry import DEFAULT_PAIRS, aggregate_named, listed
from certmask.threat import Size, Threat, checked_patch
from certmask.views import checked_views
from certmask.votes import UNIT, Margin
from certmask.zoo import Card, backend_of, card_of, framing_of, load_classifier, name_aliases, readable_names
from certmask.zoo.networks import CELLS, MASKS, network_of

COPIES = 8
"""So many times the pictures of a batch, at least, lie in memory while a network looks at them."""

OF_LEVELS = ("levels", "align", "thresholds", "claim_thresholds", "pooled")
"""Options that only rules of several levels take."""

OF_MASKS = ("mask", "tiling", "fold", "last_resort", "defence", *OF_LEVELS, "band", "stride", "theta", "threshold",
            "pairs", "aggregate")  # fmt: skip
"""Options that only rules on masked views take."""

OF_BANDS = ("band", "stride", "theta", "share")
"""Options that only rules of bands take."""

TAKEN_BY = {"last_resort": "zoom", "theta": "smoothing", "share": "patchguard-smoothing", "threshold": "hicert",
            "pairs": "zoom", "aggregate": "zoom", "slope": "clipped-bagnet"}  # fmt: skip
"""Options that only rules take which have such a parameter, and one of these."""


@dataclass(frozen=True)
class Choices:
    """Options of ``predict`` and ``certify``; what is None is chosen, or left as the rule has it."""

    model: str
    weights: Path | None = None
    rules: Sequence[str] = ()
    defence: Path | None = None
    patch: str | None = None
    mask: str | None = None
    tiling: str | None = None
    fold: str | None = None
    levels: str | None = None
    align: int | None = None
    thresholds: str | None = None
    claim_thresholds: str | None = None
    pooled: bool = False
    last_resort: str | None = None
    pairs: str = DEFAULT_PAIRS
    aggregate: str = "mean-probability"
    threshold: float | None = None
    margin: str = "auto"
    device: str = "auto"
    precision: str = "auto"
    batch: int | None = None
    backend: str = "torch"
    views: str = "plain"
    band: int | None = None
    stride: int | None = None
    theta: float | None = None
    share: float | None = None
    slope: float | None = None
    patches: int = 1
    patch_area: str | None = None
    patch_sizes: str | None = None

    @cached_property
    def card(self) -> Card:
        """The model's classes and preprocessing, known before its weights are read."""
        return card_of(self.model)

    @cached_property
    def tuned(self) -> MaskedDefence | None:
        """The defence that a file describes."""
        from certmask.tuning import load_defence

        return None if self.defence is None else load_defence(self.defence)

    def check(self) -> None:
        """An error for an option that can be judged without the model's weights."""
        _ = self.threat
        optional_size(self.fold, "fold")
        optional_size(self.mask, "mask")
        if len(set(self.rules)) != len(self.rules):
            raise UsageError(f"expected each rule once, got {', '.join(self.rules)}")
        margin = self.fixed_margin() or Margin()
        with asked_rightly():
            self._rules(margin)
        self._check_company()
        device = self._device()
        check_engine_room(self._backend(device), self.precision, device)
        check_batch(self.batch, self.card.size, device)
        pick_views(self.views)
        covers = self.covers()
        if not self.local:
            with asked_rightly():
                defences = self.defences(covers, margin)
            for defence in defences:
                check_margin(defence)

    @property
    def threat(self) -> Threat:
        """What the attacker may do."""
        return make_threat(self.patch, self.patches, self.patch_area, self.patch_sizes, self.card.size)

    @property
    def local(self) -> bool:
        """Whether rules on local evidence were chosen, which look at a picture once, without masks."""
        return any(map(is_local, self.rules))

    def _given(self, names: Iterable[str]) -> list[str]:
        """Those of the options that are not as they are where nobody says anything."""
        usual = {field.name: field.default for field in fields(self)}
        return [name for name in names if getattr(self, name) != usual[name]]

    def _check_local(self) -> None:
        """An error for anything beside rules on local evidence that has to do with masks."""
        masked = [name for name in self.rules if not is_local(name) and name != "undefended"]
        if masked:
            raise UsageError(f"expected rules on local evidence alone, or undefended beside them, got {masked[0]}")
        given = self._given(OF_MASKS)
        if given:
            option = given[0].replace("_", "-")
            raise UsageError(f"expected no masks beside rules on local evidence, got --{option}")
        for option, parameter, rule in (("share", "threshold", "patchguard"), ("slope", "slope", "clipped-bagnet")):
            taken = any(parameter in listed_local(name).wants for name in self.rules)
            if getattr(self, option) is not None and not taken:
                raise UsageError(f"expected --{option} beside a rule that takes it, such as {rule}, got none")
        if self.views != "plain":
            raise UsageError(f"expected plain views with rules on local evidence, got {self.views}")
        if self.backend not in ("auto", "torch"):
            raise UsageError(f"expected the backend torch with rules on local evidence, got {self.backend}")
        if network_of(self.card).kind != CELLS:
            raise UsageError(
                f"expected a network with cells for {self.rules[0]}, such as bagnet17, got {self.card.architecture}"
            )

    def _check_company(self) -> None:
        """An error for options that no rule takes, or that exclude one another."""
        if self.local:
            self._check_local()
            return
        single = [name for name in ("mask", "fold", "tiling") if getattr(self, name) is not None]
        several = [name for name in OF_LEVELS if getattr(self, name)]
        masked = [name for name in self.rules if name != "undefended"]
        if self.tiling == "zoom" and single != ["tiling"]:
            raise UsageError(f"expected --levels with the tiling zoom, got --{single[0]}")
        if single and masked and all(listed(name).zooms for name in masked):
            raise UsageError(f"expected --levels for {masked[0]}, whose masks are of several sizes, got --{single[0]}")
        if several and not any(map(self._zooms, masked)):
            option = several[0].replace("_", "-")
            raise UsageError(f"expected --{option} beside a rule of several levels, such as zoom, got none")
        plain = [name for name in single if name != "tiling" or self.tiling not in (*BAND_TILINGS, "zoom")]
        if plain and masked and all(self._bands(name) or self._zooms(name) for name in masked):
            first = next(filter(self._bands, masked))
            raise UsageError(f"expected --band and --stride for {first}, which looks at bands, got --{plain[0]}")
        banded = [name for name in OF_BANDS if getattr(self, name) is not None]
        if banded and not any(map(self._bands, masked)):
            raise UsageError(f"expected --{banded[0]} beside a rule of bands, such as smoothing, got none")
        for name in self._given(TAKEN_BY):
            if not any(name in listed(rule).wants for rule in self.rules):
                option, such = name.replace("_", "-"), TAKEN_BY[name]
                raise UsageError(f"expected --{option} beside a rule that takes it, such as {such}, got none")
        if "pair-detection" in masked and self.threat.count % 2:
            raise UsageError(f"expected --patches 2, or another even number, for pair-detection, got {self.threat}")
        if self.tuned is not None:
            self._check_tuned(self.tuned)

    def _check_tuned(self, tuned: MaskedDefence) -> None:
        """An error if the defence of a file is for another input or patch, or has the name of a rule."""
        if tuned.image != self.card.size:
            sizes = [f"{height}×{width}" for height, width in (self.card.size, tuned.image)]
            raise UsageError(f"expected a defence of {sizes[0]} inputs as {self.model} takes, got one of {sizes[1]}")
        if self._given(("patch", "patches", "patch_area", "patch_sizes")) and self.threat != tuned.threat:
            raise UsageError(f"expected no other patch than that of the defence, {tuned.threat}, got {self.threat}")
        if tuned.name in self.rules:
            raise UsageError(f"expected each name once, got {tuned.name} as a rule and in {self.defence}")

    def classifier(self) -> Classifier:
        self.check()
        device = self._device()
        return load_classifier(
            self.model,
            self.weights,
            device=device,
            precision=self.precision,
            batch=self.batch,
            backend=self._backend(device),
            views=pick_views(self.views),
            local=self.local,
        )

    def _device(self) -> str:
        """What was asked for; where nobody says otherwise, one that the only backend of the model serves."""
        only = backend_of(self.model)
        device = pick_device(self.device)
        return "cpu" if self.device == "auto" and only and not backend_named(only).serves(device) else device

    def _backend(self, device: str) -> str:
        """What was asked for; networks of bands or cells are computed by torch where nobody says otherwise."""
        only = backend_of(self.model)
        if only is not None and self.backend not in ("auto", only):
            raise UsageError(f"expected the backend {only} for {self.model}, got {self.backend}")
        special = self.local or network_of(self.card).kind != MASKS
        return only or ("torch" if special and self.backend == "auto" else pick_backend(self.backend, device))

    def covers(self, grid: int = 1) -> list[Cover]:
        """One cover per chosen rule, and that of the file; masks of levels lie on tokens of side ``grid``.

        None for rules on local evidence.
        """
        if self.local:
            return []
        with asked_rightly():
            covers = [self._cover(rule, grid) for rule in self.rules]
        return covers if self.tuned is None else [*covers, self.tuned.cover]

    def _cover(self, rule: str, grid: int) -> Cover:
        image = self.card.size
        patch = self.threat if self.tuned is None else self.tuned.threat
        if rule == "undefended":
            return default_cover(image, patch)
        if self._zooms(rule):
            wishes = Wishes("zoom", levels=optional_levels(self.levels), align=self.align)
            cover = suited_cover(image, patch, on_tokens(image, patch, wishes, grid), listed(rule).suits)
            check_levels(cover)
            return cover
        if self._bands(rule):
            tiling = self.tiling if self.tiling in BAND_TILINGS else BAND_TILINGS[0]
            return suited_cover(
                image, patch, Wishes(tiling, band=self.band or network_of(self.card).band, align=self.stride)
            )
        mask = optional_size(self.mask, "mask")
        if mask is not None:
            check_mask(mask, image)
        wishes = Wishes(self.tiling, mask, optional_size(self.fold, "fold"))
        cover = suited_cover(image, patch, wishes, listed(rule).suits)
        check_mask(cover.mask, image)
        return cover

    def _bands(self, rule: str) -> bool:
        """Whether a rule looks at what masks leave of the picture."""
        return listed(rule).suits == "bands" or self.tiling in BAND_TILINGS

    def _zooms(self, rule: str) -> bool:
        """Whether a rule looks through masks of several levels."""
        return listed(rule).zooms or self.tiling == "zoom"

    def defences(
        self, covers: Sequence[Cover], margin: Margin, classifier: Classifier | None = None
    ) -> list[RuledDefence]:
        """One defence per chosen rule, named after the rule, and that of the file.

        Rules on local evidence are for the cells of the ``classifier``.
        """
        from certmask.tuning import load_defence

        if isinstance(classifier, LocalClassifier):
            rules = self._local_rules(margin)
            return [LocalDefence(rule, classifier.fields, name) for name, rule in zip(self.rules, rules, strict=True)]
        named = zip(self.rules, covers, strict=False)
        made: list[RuledDefence] = [MaskedDefence(cover, self._rule(name, margin), name) for name, cover in named]
        return made if self.defence is None else [*made, load_defence(self.defence, margin)]

    def _rules(self, margin: Margin) -> Sequence[Rule | EvidenceRule]:
        """One rule per name."""
        return self._local_rules(margin) if self.local else [self._rule(name, margin) for name in self.rules]

    def _local_rules(self, margin: Margin) -> list[EvidenceRule]:
        self._check_local()
        patch = checked_patch(self.threat)
        if patch.count > 1:
            raise UsageError(f"expected one patch for {self.rules[0]}, got {patch}")
        given = {"threshold": self.share, "slope": self.slope}
        wishes = {key: value for key, value in given.items() if value is not None}
        return [row.made(patch, margin.evidence, **wishes) for row in map(listed_local, self.rules)]

    def _rule(self, name: str, margin: Margin) -> Rule:
        row = listed(name)
        sure = None if row.rule.guarantee is Guarantee.NONE else margin
        wishes: dict[str, Any] = {"pairs": self.pairs, "theta": self.theta}
        if self.threshold is not None:
            wishes["threshold"] = self.threshold
        wishes["aggregate"] = aggregate_named(self.aggregate)
        if self.share is not None:
            wishes["share"] = self.share
        if self.last_resort is not None:
            wishes["last_resort"] = self.last_resort
        if self._zooms(name):
            bars = {"thresholds": self.thresholds, "claim_thresholds": self.claim_thresholds}
            wishes |= {key: parse_thresholds(told) for key, told in bars.items() if told is not None}
            wishes["pooled"] = self.pooled
        return row.made(sure, **wishes)

    def fixed_margin(self) -> Margin | None:
        """The margin as a number in each rule's own unit, or None where it is to be measured."""
        if self.margin == "auto":
            return None
        try:
            return Margin.of(float(self.margin))
        except ValueError:
            raise UsageError(f"expected margin to be a number or auto, got {self.margin!r}") from None


def local_rules(model: str) -> list[str]:
    """The rules on local evidence for a network that is made for them; none for any other."""
    return [row.option for row in LOCAL_REGISTER] if network_of(card_of(model)).kind == CELLS else []


def photos_for(model: str, source: str) -> Dataset:
    """Labelled photos as a model takes them, before its weights are read."""
    return load_dataset(source, name_aliases(readable_names(card_of(model).classes)), framing_of(model))


def check_margin(defence: RuledDefence) -> None:
    """An error if no lead can exceed the margin of a defence's rule."""
    rule = defence.rule
    if isinstance(rule, BandMasking) and not all(map(rule.provable, defence.covers)):
        raise UsageError(
            f"expected a margin that sums of sure votes exceed for {rule.name}, got {rule.margin:g}, which counts for "
            "each of its bands: nothing could be proved"
        )
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
