"""Which runs an experiment takes, where their results lie, and what they cost at most. No model is needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from certmask.covers import Cover
from certmask.defences import MaskedDefence
from certmask.errors import CertmaskError
from certmask.experiments.experiment import Case, Experiment, Threat
from certmask.rules import JuryRecovery, PatchCleanser, Undefended
from certmask.threat import Size

FEW = "-few"


@dataclass(frozen=True)
class Limits:
    """How much is run: covers of more than ``most_masks`` masks see only ``few_images`` images."""

    images: int | None = None
    few_images: int = 3
    most_masks: int = 20_000
    patches: frozenset[str] | None = None


@dataclass(frozen=True)
class Run:
    """One results file: all defences of an experiment against one patch, on one model's input size."""

    experiment: Experiment
    model: str
    data: str
    threat: Threat
    image: Size
    cases: tuple[Case, ...]
    images: int | None
    few: bool = False

    def path(self, folder: Path) -> Path:
        name = f"{self.model}--{self.data}--{self.threat.slug}{FEW if self.few else ''}.jsonl"
        return folder / self.experiment.name / name

    def defences(self, margin: float, *, logarithms: bool) -> list[MaskedDefence]:
        """Schemes to run; without ``logarithms`` those that need a margin in logarithms are left out."""
        chosen = [case for case in self.cases if logarithms or not case.in_logarithms]
        return [case.defence(self.threat, self.image, margin) for case in chosen]

    def passes(self) -> tuple[int, int]:
        """The most single-mask and two-mask passes that one image can take; the bare image is one of the former."""
        defences = [s for s in self.defences(0.0, logarithms=True) if not isinstance(s.rule, Undefended)]
        singles = {mask.footprint(self.image) for defence in defences for mask in defence.cover.masks}
        pairs: dict[Cover, int] = {}
        for defence in defences:
            pairs[defence.cover] = max(pairs.get(defence.cover, 0), _pairs(defence))
        return len(singles) + 1, sum(pairs.values())


def _pairs(defence: MaskedDefence) -> int:
    if isinstance(defence.rule, JuryRecovery):
        return defence.cover.pairs(defence.rule.pairs)
    return defence.cover.pairs() if isinstance(defence.rule, PatchCleanser) else 0


def planned(experiment: Experiment, model: str, data: str, image: Size, limits: Limits) -> list[Run]:
    """One run per patch; defences with too many masks get a run of their own, the exact minimum beside them."""
    runs = []
    for threat in wanted_threats(experiment, data, limits.patches):
        cases = experiment.cases(threat)
        absurd = [case for case in cases if len(case.cover(threat, image)) > limits.most_masks]
        usual = tuple(case for case in cases if case not in absurd)
        if usual:
            runs.append(Run(experiment, model, data, threat, image, usual, limits.images))
        if absurd:
            beside = (*absurd, *(case for case in usual if case.tiling == "minimal"))
            images = min(limits.few_images, limits.images or limits.few_images)
            runs.append(Run(experiment, model, data, threat, image, beside, images, few=True))
    return runs


def wanted_threats(experiment: Experiment, data: str, patches: frozenset[str] | None) -> list[Threat]:
    """The patches of an experiment whose number is asked for; without a patch there is nothing to choose."""
    return [t for t in experiment.threats_on(data) if patches is None or t.number in patches or t.number == "none"]


def check_patches(experiments: Sequence[Experiment], data: Sequence[str], patches: frozenset[str] | None) -> None:
    """An error if a patch was asked for that no experiment has on data of these names."""
    known = _numbers(experiments, data)
    odd = sorted((patches or frozenset()) - set(known))
    if odd and not known:
        raise CertmaskError(f"expected no choice of patches where there are none, got {odd[0]!r}")
    if odd:
        papers = dict.fromkeys(name for experiment in experiments for name in experiment.threats)
        offers = "; ".join(f"{name} {', '.join(_numbers(experiments, [name]))}" for name in papers)
        raise CertmaskError(
            f"expected patches among {', '.join(known)} for data named {', '.join(data)} "
            f"(by NAME in --data NAME=SOURCE: {offers}; any other as imagenet), got {odd[0]!r}"
        )


def _numbers(experiments: Sequence[Experiment], data: Sequence[str]) -> list[str]:
    """What a user can type to choose patches on these data sets, by size."""
    return sorted({t.number for e in experiments for d in data for t in e.threats_on(d)} - {"none"}, key=float)


def slug(label: str) -> str:
    """A label as a part of file names, without ``--``."""
    found = re.sub(r"[^A-Za-z0-9._]+", "-", label).strip("-.")
    if not found:
        raise CertmaskError(f"expected a name with letters or digits, got {label!r}")
    return found
