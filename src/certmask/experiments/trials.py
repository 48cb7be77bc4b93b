"""What is run: an experiment's defences against one patch, on one model's input, into one results file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from certmask.certification import Progress, certify_run
from certmask.classifier import Classifier
from certmask.covers import TILINGS, Cover, band_cover, patchcleanser_cover, zoom_cover
from certmask.data import Dataset
from certmask.defences import LocalDefence, MaskedDefence, RuledDefence, engine_covers
from certmask.engine import Engine
from certmask.errors import CertmaskError, CoverError
from certmask.evidence import LocalClassifier
from certmask.evidence.registry import listed_local
from certmask.experiments.experiment import DeclaredDefence, Experiment, LabelledPatch, scaled
from certmask.experiments.meter import Meter, add_stretch, energy_counter
from certmask.geometry import smallest_mask
from certmask.rules import Undefended
from certmask.rules.registry import aggregate_named, listed
from certmask.threat import Patch, Size
from certmask.tuning import load_defence
from certmask.votes import Margin
from certmask.zoo.networks import BANDS, CELLS, MASKS, Network

FEW = "-few"
ON_MASKS = Network()


def mask_size(declared: DeclaredDefence, patch: Patch, image: Size) -> Size:
    """The mask on another input, of several levels the finest; always larger than the patch, as the paper asks.

    Not of a defence without masks of its own choosing.
    """
    if declared.levels:
        return zoom_cover(image, declared.threat(patch), declared.levels).mask
    if declared.per_axis is not None:
        return smallest_mask(image, patch, (declared.per_axis, declared.per_axis), _grid(declared, image))
    assert declared.mask is not None
    sides = scaled(declared.mask, image[0]), scaled(declared.mask, image[1])
    return max(sides[0], patch.height + 1), max(sides[1], patch.width + 1)


def built_cover(declared: DeclaredDefence, labelled: LabelledPatch, image: Size, band: int | None = None) -> Cover:
    """The cover on an input of this size; equal ones are one object, so that defences share its votes."""
    patch = labelled.on(image)
    if declared.network == BANDS:
        return _bands(image, patch, band)
    if declared.levels:
        return zoom_cover(image, declared.threat(patch), declared.levels)
    if declared.align > 1:
        return patchcleanser_cover(image, patch, declared.per_axis, align=_grid(declared, image))
    return _cover(declared.tiling, image, patch, mask_size(declared, patch, image), declared.fold)


def _grid(declared: DeclaredDefence, image: Size) -> int:
    return 1 if declared.align == 1 else scaled(declared.align, min(image))


@lru_cache(maxsize=16)
def _bands(image: Size, patch: Patch, band: int | None) -> Cover:
    return band_cover(image, patch, band)


@lru_cache(maxsize=256)
def _cover(tiling: str, image: Size, patch: Patch, mask: Size, fold: Size) -> Cover:
    folded = {} if tiling == "patchcleanser" else {"fold": fold}
    return TILINGS[tiling](image, patch, mask=mask, **folded)


def built_defence(
    declared: DeclaredDefence,
    labelled: LabelledPatch,
    image: Size,
    margin: Margin | None = None,
    band: int | None = None,
) -> MaskedDefence:
    """The declared defence against this patch on an input of this size, with masks, or bands of this width."""
    wishes: dict[str, Any] = dict(declared.parameters)
    if "aggregate" in wishes:
        wishes["aggregate"] = aggregate_named(wishes["aggregate"])
    rule = listed(declared.rule).made(margin, **wishes)
    return MaskedDefence(built_cover(declared, labelled, image, band), rule, declared.name)


def built_local(
    declared: DeclaredDefence, labelled: LabelledPatch, margin: Margin | None, classifier: LocalClassifier
) -> LocalDefence:
    """The declared defence against this patch, on the cells of a classifier."""
    patch, lead = labelled.on(classifier.size), None if margin is None else margin.evidence
    rule = listed_local(declared.rule).made(patch, lead, **declared.parameters)
    return LocalDefence(rule, classifier.fields, declared.name)


@dataclass(frozen=True)
class Limits:
    """How much is run: covers of more than ``most_masks`` masks see only ``few_images`` images.

    ``tuned`` is the file of a defence that was tuned for the model; without one, no such defence is run. ``votes`` is a
    folder to keep votes in: trials that look through the same masks make them once.
    """

    images: int | None = None
    few_images: int = 3
    most_masks: int = 20_000
    patches: frozenset[str] | None = None
    tuned: Path | None = None
    votes: Path | None = None


@dataclass(frozen=True)
class Trial:
    """One results file to be: all defences of an experiment against one patch, on one model's input size."""

    experiment: Experiment
    model: str
    data: str
    patch: LabelledPatch
    image: Size
    declared: tuple[DeclaredDefence, ...]
    images: int | None
    few: bool = False
    tuned: Path | None = None
    network: Network = ON_MASKS

    def path(self, folder: Path) -> Path:
        name = f"{self.model}--{self.data}--{self.patch.slug}{FEW if self.few else ''}.jsonl"
        return folder / self.experiment.name / name

    def defences(self, margin: Margin | None = None) -> list[MaskedDefence]:
        """Defences with masks or bands to run."""
        return [
            self._tuned(declared, margin)
            if declared.tuned
            else built_defence(declared, self.patch, self.image, margin, self.network.band)
            for declared in self.declared
            if declared.network != CELLS
        ]

    def defences_of(self, classifier: Classifier, margin: Margin | None = None) -> list[RuledDefence]:
        """All defences to run: those on local evidence are for the classifier's cells."""
        if isinstance(classifier, LocalClassifier):
            return [built_local(declared, self.patch, margin, classifier) for declared in self.declared]
        return [*self.defences(margin)]

    def _tuned(self, declared: DeclaredDefence, margin: Margin | None) -> MaskedDefence:
        assert self.tuned is not None
        found, wanted = load_defence(self.tuned, margin), built_defence(declared, self.patch, self.image)
        asked, got = ((one.image, one.threat, one.guarantee.value) for one in (wanted, found))
        if got != asked:
            told, said = (f"{promise} on {image} against {threat}" for image, threat, promise in (asked, got))
            raise CertmaskError(f"expected a defence for {told}, got one for {said} in {self.tuned}")
        return replace(found, name=declared.name)

    def passes(self) -> tuple[int, int]:
        """The most single-mask and two-mask passes that one image can take; the bare image is one of the former."""
        defences = [d for d in self.defences() if not isinstance(d.rule, Undefended)]
        singles = {mask.footprint(self.image) for defence in defences for mask in defence.cover.masks}
        pairs: dict[Cover, int] = {}
        for defence in defences:
            more = defence.rule.most_passes(defence.cover) - len(defence.cover)
            pairs[defence.cover] = max(pairs.get(defence.cover, 0), more)
        return len(singles) + 1, sum(pairs.values())

    def engine(self, classifier: Classifier) -> Engine:
        """The engine for all defences to run: the one that measures their margin is the one that then certifies."""
        return Engine(classifier, engine_covers(self.defences_of(classifier)))

    def perform(
        self,
        engine: Engine,
        dataset: Dataset,
        folder: Path,
        progress: Progress,
        margin: Margin,
        votes: Path | None = None,
    ) -> None:
        """Do, or continue, and note beside the results file how long it took."""
        meter = Meter(progress, energy_counter(engine.classifier.device))
        try:
            defences = self.defences_of(engine.classifier, margin)
            certify_run(engine, dataset.spread(self.images), defences, self.path(folder), votes=votes, progress=meter)
        finally:
            add_stretch(self.path(folder), meter.stretch())


def trials(
    experiment: Experiment, model: str, data: str, image: Size, limits: Limits, network: Network = ON_MASKS
) -> list[Trial]:
    """One per patch that is asked for; defences with too many masks get their own, the exact minimum beside them.

    Only defences for this kind of network are run, and no bands of which a patch touches so many that nothing could be
    certified.
    """
    found = []
    for patch in experiment.patches_on(data):
        if limits.patches is not None and patch.number not in limits.patches | {"none"}:
            continue
        declared = [one for one in experiment.defences(patch) if limits.tuned or not one.tuned]
        declared = [one for one in declared if one.network == network.kind and _provable(one, patch, image, network)]
        masked = [one for one in declared if one.network == MASKS]
        absurd = [one for one in masked if len(built_cover(one, patch, image)) > limits.most_masks]
        usual = tuple(one for one in declared if one not in absurd)
        if usual:
            told = (experiment, model, data, patch, image, usual, limits.images)
            found.append(Trial(*told, tuned=limits.tuned, network=network))
        if absurd:
            beside = (*absurd, *(one for one in usual if one.tiling == "minimal"))
            images = min(limits.few_images, limits.images or limits.few_images)
            found.append(Trial(experiment, model, data, patch, image, beside, images, True, limits.tuned))
    return found


def _provable(declared: DeclaredDefence, patch: LabelledPatch, image: Size, network: Network) -> bool:
    if declared.network != BANDS:
        return True
    try:
        built_defence(declared, patch, image, band=network.band)
    except CoverError:
        return False
    return True


def check_patches(experiments: Sequence[Experiment], data: Sequence[str], numbers: frozenset[str] | None) -> None:
    """An error if a patch was asked for that no experiment has on data of these names."""
    known = _numbers(experiments, data)
    odd = sorted((numbers or frozenset()) - set(known))
    papers = dict.fromkeys(name for experiment in experiments for name in experiment.patches)
    offers = [f"{name} {', '.join(own)}" for name in papers if (own := _numbers(experiments, [name]))]
    if odd and not offers:
        raise CertmaskError(f"expected no choice of patches where there are none, got {odd[0]!r}")
    if odd:
        other = "; any other as imagenet" if "imagenet" in papers else ""
        raise CertmaskError(
            f"expected patches among {', '.join(known) or 'none'} for data named {', '.join(data)} "
            f"(by NAME in --data NAME=SOURCE: {'; '.join(offers)}{other}), got {odd[0]!r}"
        )


def _numbers(experiments: Sequence[Experiment], data: Sequence[str]) -> list[str]:
    """What a user can type to choose patches on these data sets, by size."""
    return sorted({p.number for e in experiments for d in data for p in e.patches_on(d)} - {"none"}, key=float)
