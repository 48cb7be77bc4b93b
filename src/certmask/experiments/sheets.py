"""The tables of experiments, each a list of columns: what was measured beside what the paper reported, and more."""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any

from certmask.experiments.experiment import PAPER_SIDE, Experiment, Reported
from certmask.experiments.measured import Entry, FinishedTrial, Paired
from certmask.experiments.paper_tables import MASKS, PAPER_FOLD, SIDES
from certmask.experiments.trials import Trial
from certmask.geometry import minimum_masks
from certmask.geometry.paper import offset_count, replicated_count, theorem3_bound
from certmask.report.tables import Table, full_table
from certmask.results.columns import COLUMNS, Column, json_record
from certmask.results.kinds import AMOUNT, CHANCE, COUNT, EXTENT, NOTHING, WORDS, Kind
from certmask.threat import Patch, Size

PAPER, OURS, PASSES = "paper, %", "measured, %", "passes"
FORMULAS, EXACT = "the paper's formulas", "exact minimum"
K = PAPER_FOLD[0] * PAPER_FOLD[1]


class _Written(Kind):
    """A figure that is text already."""

    words = False


WRITTEN = _Written()
OWN = {column.key: column for column in COLUMNS}


def own(key: str, heading: str, group: str = "") -> Column[Entry]:
    """A figure of the results room under the heading that it has here."""
    return Column(key, OWN[key].kind, lambda entry: OWN[key].value(entry.measured), heading, group)


def patch_text(entry: Entry) -> str | None:
    """The patch as the experiment calls it, and its side on this model's input."""
    label, threat = entry.trial.patch.label, entry.measured.threat
    size = f"{threat.label} px" if isinstance(threat, Patch) else threat.label
    known = isinstance(threat, Patch) and label == f"{threat.height} px"
    return None if label == "none" else size if known else f"{label} ({size})"


def reported_text(reported: Reported | None, what: str) -> str | None:
    """``clean`` or ``robust`` as printed, with "about" or "above" where the paper says so."""
    value = getattr(reported, what, None)
    return None if value is None else f"{getattr(reported, f'{what}_sign')} {value:.1f}".strip()


def _masks(entry: Entry) -> str | None:
    """Different masks and, beside them, how many are placed where some are copies."""
    masks, placed = entry.measured.masks, entry.placed
    return f"{masks:,}{f' ({placed:,} placed)' if placed != masks else ''}" if masks else None


def _images(entry: Entry) -> str:
    found, planned = entry.measured.images, entry.trial.planned
    return f"{found:,}" if found == planned else f"{found:,} of {planned:,}"


MEASURED: list[Column[Entry]] = [
    Column("model", WORDS, lambda e: e.trial.model, "model"),
    Column("data", WORDS, lambda e: e.trial.data, "data"),
    Column("patch", WRITTEN, patch_text, "patch"),
    Column("defence", WORDS, lambda e: f"{e.declared.name}{' *' if e.trial.few else ''}", "defence"),
    Column("mask", EXTENT, lambda e: e.measured.mask if e.measured.masks else None, "mask"),
    Column("masks", WRITTEN, _masks, "masks"),
    Column("reported_clean", WRITTEN, lambda e: reported_text(e.reported, "clean"), "clean", PAPER),
    Column("reported_robust", WRITTEN, lambda e: reported_text(e.reported, "robust"), "robust", PAPER),
    own("clean_accuracy", "clean", OURS),
    own("published_test", "published test", OURS),
    own("certified_detection", "certified detection", OURS),
    own("false_alerts", "false alerts", OURS),
    own("certified_recovery", "certified recovery", OURS),
    own("passes_to_answer", "to answer", PASSES),
    own("passes_to_prove", "to prove", PASSES),
    own("passes_to_prove_if_proved", "to prove: proved", PASSES),
    own("estimated_milliseconds_to_answer", "ms to answer"),
    own("estimated_milliseconds_to_prove", "ms to prove"),
    Column("estimated_joules_to_answer", AMOUNT, lambda e: e.joules(e.measured.answer_passes), "J to answer"),
    Column("estimated_joules_to_prove", AMOUNT, lambda e: e.joules(e.measured.proof_passes), "J to prove"),
    Column("images", WRITTEN, _images, "images"),
]
NOTES = (
    "Paper: as it reports, for its ResNetV2-50, ViT-B/16 or ResMLP-S24, beside models of the same family; measured: "
    "this model. Clean: answered rightly, without an alert. Passes, milliseconds and joules are per image: to prove, "
    "over all images, where a proof that fails ends early; proved, over completed proofs alone.",
    "The published test is the paper's certificate as we read it (it never says how it certified): all masks vote for "
    "the label. It gives no guarantee against an adaptive attacker. Detection and recovery are not the same.",
    "In brackets: 95 % confidence intervals (Wilson).",
    "Milliseconds and joules are estimates: mean passes × the run's wall time or energy per pass, where those were "
    "recorded (full batches; energy of the whole GPU).",
)


def measured_table(experiment: Experiment, found: Sequence[Entry]) -> Table:
    """What the paper reported and what was measured, in groups of columns of their own."""
    few = "*: only a handful of images, because the cover has so many masks."
    notes = (*experiment.notes, *([few] if any(entry.trial.few for entry in found) else []), *NOTES)
    return full_table(f"{experiment.title} ({experiment.place})", MEASURED, found, notes)


PAIRED: list[Column[Paired]] = [
    Column("question", WORDS, lambda p: p.comparison.question, "question"),
    Column("model", WORDS, lambda p: p.trial.model, "model"),
    Column("data", WORDS, lambda p: p.trial.data, "data"),
    Column("patch", WORDS, lambda p: p.trial.patch.label, "patch"),
    Column("first", WORDS, lambda p: p.comparison.first, "first"),
    Column("second", WORDS, lambda p: p.comparison.second, "second"),
    Column("images", COUNT, lambda p: len(p.trial.run.rows), "images"),
    Column("first_certified", COUNT, lambda p: p.certified[0], "first certifies"),
    Column("second_certified", COUNT, lambda p: p.certified[1], "second certifies"),
    Column("gained", COUNT, lambda p: p.gained, "gained"),
    Column("lost", COUNT, lambda p: p.lost, "lost"),
    Column("note", WORDS, lambda p: p.comparison.theorem),
    Column("p_mcnemar", CHANCE, lambda p: p.chance, "p"),
    Column("p_holm", CHANCE, lambda p: p.adjusted, "p, Holm"),
]


def paired_table(found: Sequence[Paired]) -> Table:
    """Gained: certified by the first defence only; lost: by the second only."""
    theorems = dict.fromkeys(f"{p.comparison.question}: {p.comparison.theorem}" for p in found if p.comparison.theorem)
    notes = (
        "Gained: images that only the first certifies; lost: only the second. p: exact McNemar test; "
        f"Holm: corrected for the number of rows with a p; {NOTHING}: a theorem decides, nothing is tested.",
        *theorems,
    )
    return full_table("Paired on the same images", PAIRED, found, notes)


REPORTED: list[Column[Reported]] = [
    Column("method", WORDS, lambda r: r.method, "method"),
    Column("model", WORDS, lambda r: r.model or None, "model"),
    Column("data", WORDS, lambda r: r.data, "data"),
    Column("threat", WORDS, lambda r: r.threat, "patch"),
    Column("place", WORDS, lambda r: r.place, "where in the paper"),
    Column("clean", WRITTEN, lambda r: reported_text(r, "clean"), "clean", PAPER),
    Column("robust", WRITTEN, lambda r: reported_text(r, "robust"), "robust", PAPER),
]


def reported_table(reported: Sequence[Reported]) -> Table:
    """Figures of the paper without a trial here that they could stand beside."""
    return full_table("Reported by the paper, not measured here", REPORTED, reported)


def other_methods_table(experiment: Experiment) -> Table:
    """The paper's figures for methods that certmask does not have: one row each, one column per data set and patch."""
    others: dict[str, dict[str, str]] = {}
    for reported in experiment.reported:
        if reported.method not in experiment.methods:
            name = f"{reported.method} ({reported.model})" if reported.model else reported.method
            figures = (reported_text(reported, what) or NOTHING for what in ("clean", "robust"))
            row = others.setdefault(name, {"method": name})
            row[f"{reported.data} {reported.threat}"] = " / ".join(figures)
    keys = dict.fromkeys(key for row in others.values() for key in row)
    columns = [Column(key, WORDS if key == "method" else WRITTEN, methodcaller("get", key), key) for key in keys]
    note = "Clean / robust accuracy in percent, as the paper reports them; certmask does not have these methods."
    return full_table(f"Other methods ({experiment.place})", columns, list(others.values()), (note,))


def _said(trial: FinishedTrial, part: str, key: str) -> str:
    return str(trial.run.header.get(part, {}).get(key, NOTHING))


def _program(trial: FinishedTrial) -> str:
    """certmask's version and the beginning of the digest of its program text, as far as the run knew them."""
    version, source = _said(trial, "versions", "certmask"), _said(trial, "versions", "certmask source")
    known = [text for text in (version, source[:8]) if text not in (NOTHING, "absent")]
    return ", ".join(known) or NOTHING


RUNS: list[Column[FinishedTrial]] = [
    Column("results", WORDS, lambda t: t.run.path.name, "results"),
    Column("model", WORDS, lambda t: Path(t.run.model["name"]).name, "model"),
    Column("weights", WORDS, lambda t: _said(t, "model", "weights_sha256")[:12], "weights"),
    Column("photos", WORDS, lambda t: f"{Path(t.run.data['name']).name}, list {_said(t, 'data', 'digest')}", "photos"),
    Column("precision", WORDS, lambda t: _said(t, "model", "precision"), "precision"),
    Column("device", WORDS, lambda t: _said(t, "model", "device"), "device"),
    Column("torch", WORDS, lambda t: _said(t, "versions", "torch"), "torch"),
    Column("certmask", WORDS, _program, "certmask"),
    Column("batch", WRITTEN, lambda t: _said(t, "model", "batch"), "batch"),
    Column("margin", WRITTEN, lambda t: f"{max(d['rule'].get('margin', 0.0) for d in t.run.defences.values()):.3g}",
           "margin"),
]  # fmt: skip


def runs_table(found: Sequence[FinishedTrial], unstarted: Sequence[Path]) -> Table:
    """Where the figures come from: one row per results file."""
    return full_table("Runs", RUNS, found, [f"No image is done yet in {path.name}." for path in unstarted])


def _setting(label: str) -> tuple[Size, Patch, Size]:
    """Image, patch and mask of the paper's Table 1."""
    return (PAPER_SIDE, PAPER_SIDE), Patch(SIDES[label], SIDES[label]), (MASKS[label], MASKS[label])


MASK_COUNTS: list[Column[str]] = [
    Column("patch", WORDS, str, "patch on 224"),
    Column("side", COUNT, SIDES.get, "side"),
    Column("mask", COUNT, MASKS.get, "mask"),
    Column("paper_once", COUNT, lambda label: replicated_count(*_setting(label), 1), "k = 1", FORMULAS),
    Column("exact_once", COUNT, lambda label: minimum_masks(*_setting(label), 1), "k = 1", EXACT),
    Column(
        "paper_offset", COUNT, lambda label: offset_count(*_setting(label), PAPER_FOLD), f"Offset, k = {K}", FORMULAS
    ),
    Column("paper_bound", COUNT, lambda label: theorem3_bound(*_setting(label), K), f"lower bound, k = {K}", FORMULAS),
    Column("exact_k", COUNT, lambda label: minimum_masks(*_setting(label), K), f"k = {K}", EXACT),
]


def mask_counts() -> list[dict[str, Any]]:
    """Masks for every patch and mask of the paper's Table 1 on a 224×224 input."""
    return [json_record(MASK_COUNTS, label) for label in SIDES]


def _surplus(label: str) -> str:
    setting = _setting(label)
    return f"{100 * (offset_count(*setting, PAPER_FOLD) / minimum_masks(*setting, K) - 1):.0f} %"


def counts_table(title: str) -> Table:
    """The paper's formulas and the exact minimum, side by side."""
    notes = (
        "The paper lets the patch's centre range over the whole image and loses one position per mask, so its lower "
        "bound (Theorem 3) lies above what is needed. The exact minimum is proved for masks that do not wrap.",
        "At 0.4 % Offset Tiling's stride is below one pixel: masks repeat.",
    )
    by_group = sorted(MASK_COUNTS, key=lambda column: column.group == EXACT)
    surplus = Column("surplus", WRITTEN, _surplus, "Offset above minimum")
    return full_table(title, [*by_group, surplus], list(SIDES), notes)


PLAN: list[Column[tuple[Trial, int, int, int]]] = [
    Column("run", WORDS, lambda t: t[0].path(Path()).with_suffix(""), "run"),
    Column("masks", COUNT, lambda t: t[1], "masks"),
    Column("pairs", COUNT, lambda t: t[2], "pairs"),
    Column("images", WRITTEN, lambda t: "all" if t[0].images is None else f"{t[0].images:,}", "images"),
    Column("passes", WRITTEN, lambda t: f"{(t[1] + t[2]) * t[3]:,} each" if t[0].images is None
           else f"{(t[1] + t[2]) * t[3] * t[0].images:,}", "passes at most"),
]  # fmt: skip


def plan_table(planned: Sequence[Trial], cost: int = 1) -> Table:
    """What every trial takes at most, ``cost`` passes a vote; proofs end at the first wrong one, most take far less."""
    note = "Passes under two masks or more (pairs) are made only where coarser votes leave a certificate possible."
    title = "Passes per image, and of the whole run where --images is given"
    return full_table(title, PLAN, [(trial, *trial.passes(), cost) for trial in planned], (note,))
