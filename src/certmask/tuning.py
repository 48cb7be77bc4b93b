"""Tuning: which levels, thresholds, pooling and aggregate suit a network, chosen on some photos, judged on others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

from certmask.certificate import Guarantee
from certmask.certification import Progress, certify_run
from certmask.covers import Cover, zoom_cover
from certmask.covers.zoom import Level
from certmask.data import Dataset
from certmask.defences import MaskedDefence, defence_from
from certmask.engine import Engine
from certmask.errors import CertmaskError, CoverError, ResultsError, first_line
from certmask.results.columns import Figures, figures
from certmask.results.file import provenance
from certmask.results.run import Run, read_run
from certmask.rules import JuryDetection, JuryRecovery, Rule
from certmask.rules.registry import aggregate_of
from certmask.threat import Patch, Size
from certmask.votes import Margin

DEFENCE_FILE = 1
NO_MARGIN = Margin()
Thresholds = float | tuple[float, ...]
SETTINGS: tuple[tuple[tuple[Level, ...], str, bool, tuple[Thresholds, ...]], ...] = (
    ((2, 3, 6, 12), "mean-probability", False, ((0.9, 0.2, 0.2), (0.9, 0.3, 0.2), (0.95, 0.5, 0.3), (0.95, 0.7, 0.5))),
    ((2, 3, 6, 12), "mean-probability", True, ((0.9, 0.3, 0.2),)),
    ((2, 6, 12), "mean-probability", False, ((0.9, 0.2),)),
    ((3, 6), "mean-probability", False, (0.1, 0.3)),
    ((3, 6), "mean-probability", True, (0.3,)),
    ((3, 6, 12), "mean-probability", False, (0.2, 0.3, 0.5, 0.7)),
    ((3, 6, 12), "mean-probability", True, (0.2, 0.3)),
    ((3, 6, (6, 2), 12), "mean-probability", False, (0.2, 0.3)),
    ((2, 3, 6, 12), "mean-log-probability", False, ((3.5, 1.0, 0.5), (3.5, 1.5, 1.0), (3.5, 2.0, 1.0))),
    ((3, 6, 12), "mean-log-probability", False, (1.0,)),
    ((3, 6, 12), "mean-log-probability", True, (0.5, 1.0)),
)
"""What is tried: levels, aggregate, whether finer votes are pooled with coarser ones, and thresholds. Few, so that the
best of them is not the best by chance."""

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
    for levels, aggregate, pooled, several in SETTINGS:
        with suppress(CoverError):
            covers.setdefault(levels, zoom_cover(image, patch, levels, align))
        for thresholds in several if levels in covers else ():
            lead = getattr(margin, aggregate_of(aggregate).unit)
            rule: Rule
            if guarantee is Guarantee.DETECTION:
                rule = JuryDetection(aggregate, thresholds, pooled, lead)
            else:
                rule = JuryRecovery(aggregate=aggregate, thresholds=thresholds, pooled=pooled, margin=lead)
            yield MaskedDefence(covers[levels], rule, _name(levels, aggregate, pooled, thresholds))


def _name(levels: Sequence[Level], aggregate: str, pooled: bool, thresholds: Thresholds) -> str:
    ladder = "-".join(f"{level[0]}:{level[1]}" if isinstance(level, tuple) else str(level) for level in levels)
    bars = ",".join(f"{bar:g}" for bar in (thresholds if isinstance(thresholds, tuple) else (thresholds,)))
    unit = " nats" if aggregate == "mean-log-probability" else ""
    return f"zoom {ladder} {'pooled' if pooled else 'replace'} {bars}{unit}"


@dataclass(frozen=True)
class Choice:
    """What was tried on photos for choosing, what of it no other beats, and what was taken.

    ``front`` has the settings that certify more than all cheaper ones; ``taken`` is the cheapest of those whose share
    of certificates, and of right answers, is within one standard error of the best within the budget.
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
    best = max(_certified(own) for own in affordable)
    clean = max(own.clean.value for own in affordable)
    error = sqrt(max(best * (1 - best), clean * (1 - clean)) / len(run.rows))
    good = [own for own in affordable if _certified(own) >= best - error and own.clean.value >= clean - error]
    front = [own for own in tried if not any(_beats(other, own, spent) for other in tried)]
    taken = min(good or affordable, key=lambda own: (price(own, spent), -_certified(own)))
    return Choice(tried, tuple(sorted(front, key=lambda own: price(own, spent))), taken)


def price(found: Figures, spent: str) -> float:
    """Passes of an answer, or of a completed proof, on average; without any proof, of the attempts."""
    if spent == "answer":
        return found.answer_passes
    return found.proved_passes if found.proved_passes is not None else found.proof_passes or 0.0


def _certified(found: Figures) -> float:
    return 0.0 if found.certified is None else found.certified.value


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
    shared = {sample.name for sample in choosing.samples} & {sample.name for sample in judging.samples}
    if shared:
        raise CertmaskError(f"expected other photos to judge on, got {min(shared)}, which is also to choose on")
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


def load_defence(path: str | Path, margin: Margin | None = None) -> MaskedDefence:
    """The defence that ``certmask tune`` wrote, its masks checked anew; with another margin, if one is given."""
    path = Path(path)
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["certmask_tuned"] != DEFENCE_FILE:
            raise ValueError(f"format {told['certmask_tuned']}")
        said = told["defence"]
        if margin is not None:
            unit = defence_from(said).rule.unit
            said = {**said, "rule": {**said["rule"], "margin": getattr(margin, unit)}}
        return defence_from(said)
    except OSError as error:
        raise CertmaskError(f"expected a file that certmask tune wrote, got {path} ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, CertmaskError) and not isinstance(error, ResultsError):
            raise
        raise CertmaskError(f"expected a file that certmask tune wrote, got {path} ({first_line(error)})") from None
