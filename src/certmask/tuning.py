"""Tuning: which levels, thresholds, pooling and aggregate suit a network, chosen on some photos, judged on others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

from certmask.certificate import Guarantee
from certmask.certification import Progress, certify_run
from certmask.covers import Cover, zoom_cover
from certmask.covers.zoom import Level
from certmask.data import Dataset
from certmask.defences import MaskedDefence
from certmask.defences.masked import masked_defence_from
from certmask.engine import Engine
from certmask.errors import CertmaskError, CoverError, ResultsError, first_line
from certmask.results.columns import Figures, figures
from certmask.results.file import Row, provenance
from certmask.results.run import Run, read_run
from certmask.rules import JuryDetection, JuryRecovery, Rule
from certmask.rules.registry import aggregate_of
from certmask.threat import Patch, Size
from certmask.votes import Margin

DEFENCE_FILE = 1
NO_MARGIN = Margin()


class Setting(NamedTuple):
    """Levels, thresholds of duels and of claims, the aggregate, and whether finer votes are pooled with coarser."""

    levels: tuple[Level, ...]
    duels: tuple[float, ...]
    claims: tuple[float, ...]
    aggregate: str = "mean-probability"
    pooled: bool = False

    def __str__(self) -> str:
        ladder = "-".join(f"{level[0]}:{level[1]}" if isinstance(level, tuple) else str(level) for level in self.levels)
        thresholds = " / ".join(",".join(f"{bar:g}" for bar in bars) for bars in (self.duels, self.claims) if bars)
        unit, pooled = " nats" if self.aggregate == LOG else "", ", pooled" if self.pooled else ""
        return f"zoom {ladder}, {thresholds}{unit}{pooled}"

    def rule(self, guarantee: Guarantee, margin: Margin) -> Rule:
        """The rule of this setting; detection has claims alone."""
        lead = getattr(margin, aggregate_of(self.aggregate).unit)
        if guarantee is Guarantee.DETECTION:
            return JuryDetection(self.aggregate, self.claims, self.pooled, lead)
        return JuryRecovery(
            aggregate=self.aggregate,
            thresholds=self.duels,
            pooled=self.pooled,
            claim_thresholds=self.claims,
            margin=lead,
        )


LOG = "mean-log-probability"
CLAIMS = (0.9, 0.1, 0)
SETTINGS = (
    Setting((2, 3, 6, 12), (0.9, 0.2, 0.1), CLAIMS),
    Setting((2, 3, 6, 12), (0.9, 0.3, 0.1), CLAIMS),
    Setting((2, 3, 6, 12), (0.95, 0.5, 0.1), CLAIMS),
    Setting((2, 3, 6, 12), (0.95, 0.5, 0.2), CLAIMS),
    Setting((2, 3, 6, 12), (0.95, 0.5, 0.2), (0.9, 0.2, 0.1)),
    Setting((2, 3, 6, 12), (0.95, 0.5, 0.3), (0.95, 0.5, 0.1)),
    Setting((2, 3, 6, 12), (0.95, 0.7, 0.2), (0.95, 0.5, 0.2)),
    Setting((2, 3, 6, 12), (0.95, 0.6, 0.2), (0.95, 0.6, 0.2)),
    Setting((2, 3, 6, 12), (0.95, 0.7, 0.1), (0.95, 0.7, 0.1)),
    Setting((2, 3, 6, 12), (0.98, 0.7, 0.2), (0.98, 0.7, 0.2)),
    Setting((2, 3, 6, 12), (0.98, 0.8, 0.3), (0.95, 0.7, 0.3)),
    Setting((2, 3, 6, 12), (0.9, 0.2, 0.1), (0.9, 0.1, 0.1), pooled=True),
    Setting((2, 3, 6, 12), (0.9, 0.25, 0.1), (0.9, 0.2, 0.1), pooled=True),
    Setting((2, 3, 6, 12), (0.9, 0.3, 0.1), (0.9, 0.2, 0.1), pooled=True),
    Setting((2, 3, 6, 12), (0.95, 0.5, 0.2), (0.95, 0.3, 0.1), pooled=True),
    Setting((2, 3, 6), (0.9, 0.2), (0.9, 0.1)),
    Setting((2, 3, 6), (0.95, 0.5), (0.9, 0.3)),
    Setting((2, 3, 6), (0.9, 0.3), (0.9, 0.3), pooled=True),
    Setting((3, 6), (0.1,), (0.1,)),
    Setting((3, 6), (0.3,), (0.3,), pooled=True),
    Setting((3, 6, 12), (0.3, 0.1), (0.3, 0.1)),
    Setting((3, 6, 12), (0.5, 0.1), (0.5, 0.1)),
    Setting((3, 6, 12), (0.3, 0.1), (0.3, 0.1), pooled=True),
    Setting((3, 6, 12), (0.5, 0.1), (0.5, 0.1), pooled=True),
    Setting((3, 6, 12), (0.5, 0.2), (0.5, 0.2), pooled=True),
    Setting((2, 3, 6, 12), (3.5, 1, 0.5), (2.5, 0.5, 0), LOG),
    Setting((2, 3, 6, 12), (3.5, 2, 0.5), (2.5, 0.5, 0), LOG),
    Setting((2, 3, 6, 12), (4.5, 2, 1), (3.5, 1, 0.5), LOG),
    Setting((3, 6, 12), (2, 0.5), (1, 0.5), LOG, pooled=True),
)
"""What is tried. Few, so that the best of them is not the best by chance."""

PARTS = ("first", "choosing", "judged")
"""The results files of a tuning."""
FIRST = 24
"""Photos on which settings that are too dear are found out."""
TOO_DEAR = 2.0
"""How many times the budget a setting may cost on the first photos before it is given up."""


def affordable(run: Run, defences: Sequence[MaskedDefence], budget: float, spent: str = "prove") -> list[MaskedDefence]:
    """Those of the defences that were not too dear on the first few photos; the cheapest one in any case."""
    prices = {own.defence: max(price(own, spent), own.proof_passes or 0.0) for own in figures(run)}
    most = max(TOO_DEAR * budget, min(prices.values()))
    return [defence for defence in defences if prices[defence.name] <= most]


def settings(
    image: Size,
    patch: Patch,
    align: int | None = None,
    guarantee: Guarantee = Guarantee.RECOVERY,
    margin: Margin = NO_MARGIN,
) -> Iterator[MaskedDefence]:
    """The defences that are tried, each under a name that says what it is; none for which an input is too small."""
    covers: dict[tuple[Level, ...], Cover] = {}
    names = set()
    for setting in SETTINGS:
        if setting.levels not in covers:
            with suppress(CoverError):
                covers[setting.levels] = zoom_cover(image, patch, setting.levels, align)
        own = setting._replace(duels=()) if guarantee is Guarantee.DETECTION else setting
        if setting.levels in covers and str(own) not in names:
            names.add(str(own))
            yield MaskedDefence(covers[setting.levels], setting.rule(guarantee, margin), str(own))


@dataclass(frozen=True)
class Choice:
    """What was tried on photos for choosing, what of it no other beats, and what was taken.

    ``front`` has the settings that certify more than all cheaper ones. ``taken`` is the cheapest of those that are
    behind the best within the budget by no more than one standard error of the difference on the same photos: first in
    certificates, of those in right answers.
    """

    tried: tuple[Figures, ...]
    front: tuple[Figures, ...]
    taken: Figures


def chosen(run: Run, budget: float | None, spent: str = "prove") -> Choice:
    """Choose among the defences of a run that promise something; ``budget`` is the most passes, on average.

    ``spent`` says which: those of a completed proof (``prove``), or those of an answer (``answer``).
    """
    tried = tuple(own for own in figures(run) if own.certified is not None)
    affordable = [own for own in tried if budget is None or price(own, spent) <= budget]
    if not affordable:
        least = min(price(own, spent) for own in tried)
        raise CertmaskError(f"expected a budget of at least {least:.0f} passes to {spent}, got {budget:g}")
    good = affordable
    for holds in (_is_certified, _is_right):
        photos = {own.defence: [holds(row, own.defence) for row in run.rows] for own in good}
        best = max(photos.values(), key=sum)
        good = [own for own in good if not _behind(photos[own.defence], best)]
    front = [own for own in tried if not any(_beats(other, own, spent) for other in tried)]
    taken = min(good, key=lambda own: (price(own, spent), -_certified(own)))
    return Choice(tried, tuple(sorted(front, key=lambda own: price(own, spent))), taken)


def price(found: Figures, spent: str) -> float:
    """Passes of an answer, or of a completed proof, on average; without any proof, of the attempts."""
    if spent == "answer":
        return found.answer_passes
    return found.proved_passes if found.proved_passes is not None else found.proof_passes or 0.0


def _certified(found: Figures) -> float:
    return 0.0 if found.certified is None else found.certified.value


def _is_certified(row: Row, defence: str) -> bool:
    return bool(row["defences"][defence]["certified"])


def _is_right(row: Row, defence: str) -> bool:
    outcome = row["defences"][defence]
    return bool(outcome["label"] == row["label"] and not outcome["alert"])


def _behind(own: Sequence[bool], best: Sequence[bool]) -> bool:
    """Whether one holds on fewer of the same photos than another, by more than the root of where they differ."""
    return sum(best) - sum(own) > sqrt(sum(a != b for a, b in zip(own, best, strict=True)))


def _beats(one: Figures, other: Figures, spent: str) -> bool:
    ahead = _certified(one) - _certified(other), price(other, spent) - price(one, spent)
    return min(ahead) >= 0 and max(ahead) > 0


@dataclass(frozen=True)
class Tuned:
    """A defence that was chosen, how, and what it is worth on photos that were not chosen on."""

    defence: MaskedDefence
    choice: Choice
    judged: Run


def tune(
    engine: Engine,
    choosing: Dataset,
    judging: Dataset,
    tried: Sequence[MaskedDefence],
    beside: Sequence[MaskedDefence],
    out: Path,
    *,
    budget: float,
    spent: str = "prove",
    progress: Progress | None = None,
) -> Tuned:
    """Choose among the defences ``tried`` on some photos under a budget, and judge on others, ``beside`` what is given.

    Votes are shared by all settings. What is too dear on the first few photos is given up. Three results files lie
    beside ``out``, the file of the defence.
    """
    check_apart(choosing, judging)
    first, chosen_on, judged_on = (out.with_suffix(f".{part}.jsonl") for part in PARTS)
    certify_run(engine, choosing.spread(FIRST), tried, first, progress=progress)
    left = affordable(read_run(first), tried, budget, spent)
    certify_run(engine, choosing, left, chosen_on, progress=progress)
    choice = chosen(read_run(chosen_on), budget, spent)
    (taken,) = (defence for defence in left if defence.name == choice.taken.defence)
    certify_run(engine, judging, [*beside, taken], judged_on, progress=progress)
    about = {
        "model": engine.describe(),
        "budget": budget,
        "spent": spent,
        "settings": [defence.name for defence in tried],
        "chosen_on": choosing.describe(),
        "judged_on": judging.describe(),
    }
    save_defence(out, taken, about)
    return Tuned(taken, choice, read_run(judged_on))


def check_apart(choosing: Dataset, judging: Dataset) -> None:
    """An error if a photo to judge on is one to choose on."""
    shared = {sample.name for sample in choosing.samples} & {sample.name for sample in judging.samples}
    if shared:
        raise CertmaskError(f"expected other photos to judge on, got {min(shared)}, which is also to choose on")


def halves(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """Every other photo for choosing, the others for judging."""
    names = [sample.name for sample in dataset.samples]
    return dataset.without(frozenset(names[1::2])), dataset.without(frozenset(names[::2]))


def save_defence(path: Path, defence: MaskedDefence, about: dict[str, Any]) -> None:
    """Write a small file that ``load_defence`` reads: masks and rule, without the network, and what they rest on."""
    told = {"certmask_tuned": DEFENCE_FILE, "defence": defence.describe(), "about": about, "versions": provenance()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise CertmaskError(f"expected a writable file for the defence, got {path} ({error.strerror})") from None


def tuned_model(path: Path) -> str:
    """The name of the model that a defence was tuned for; an error if its file does not say."""
    load_defence(path)
    about = json.loads(path.read_text(encoding="utf-8")).get("about")
    model = about.get("model") if isinstance(about, dict) else None
    if not isinstance(model, dict) or not isinstance(model.get("name"), str):
        raise CertmaskError(f"expected a defence that says which model it was tuned for, got {path}")
    return str(model["name"])


def load_defence(path: str | Path, margin: Margin | None = None) -> MaskedDefence:
    """The defence that ``certmask tune`` wrote, its masks checked anew; with another margin, if one is given."""
    path = Path(path)
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["certmask_tuned"] != DEFENCE_FILE:
            raise ValueError(f"format {told['certmask_tuned']}")
        said = told["defence"]
        if margin is not None:
            unit = masked_defence_from(said).rule.unit
            said = {**said, "rule": {**said["rule"], "margin": getattr(margin, unit)}}
        return masked_defence_from(said)
    except OSError as error:
        raise CertmaskError(f"expected a file that certmask tune wrote, got {path} ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, CertmaskError) and not isinstance(error, ResultsError):
            raise
        raise CertmaskError(f"expected a file that certmask tune wrote, got {path} ({first_line(error)})") from None
