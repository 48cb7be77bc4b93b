"""The tables of an experiment: measured beside reported, reported alone, and where the figures come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from certmask.certificate import Guarantee
from certmask.experiments.experiment import Experiment, Reported
from certmask.experiments.reading import Done, Entry
from certmask.report.tables import Cell, Heading, Table
from certmask.results.columns import COLUMNS as FIGURES
from certmask.results.columns import csv_record
from certmask.results.kinds import NOTHING
from certmask.results.statistics import Share

PAPER, OURS, PASSES = "paper, %", "measured, %", "passes"
COLUMNS = (
    Heading("model", words=True),
    Heading("data", words=True),
    Heading("patch"),
    Heading("defence", words=True),
    Heading("mask"),
    Heading("masks"),
    Heading("clean", PAPER),
    Heading("robust", PAPER),
    Heading("clean", OURS),
    Heading("published test", OURS),
    Heading("certified detection", OURS),
    Heading("false alerts", OURS),
    Heading("certified recovery", OURS),
    Heading("to answer", PASSES),
    Heading("to prove", PASSES),
    Heading("ms to answer"),
    Heading("ms to prove"),
    Heading("J to answer"),
    Heading("J to prove"),
    Heading("images"),
)
NOTES = (
    "Paper: as it reports, for its ResNetV2-50, ViT-B/16 or ResMLP-S24, beside models of the same family; measured: "
    "this model. Clean: answered rightly and without an alert. Passes, milliseconds and joules are per image.",
    "The published test gives no guarantee against an adaptive attacker. Detection and recovery are not the same.",
    "In brackets: 95 % confidence intervals (Wilson).",
    "Milliseconds and joules are estimates: mean passes × the run's wall time or energy per pass, where those were "
    "recorded (full batches; energy of the whole GPU).",
)


def measured_table(experiment: Experiment, entries: Sequence[Entry]) -> Table:
    """What the paper reported and what was measured, in groups of columns of their own."""
    few = ["*: only a handful of images, because the cover has so many masks."] if any(e.few for e in entries) else []
    title = f"{experiment.title} ({experiment.place})"
    return Table(title, COLUMNS, [_cells(entry) for entry in entries], (*experiment.notes, *few, *NOTES))


def _cells(entry: Entry) -> list[Cell]:
    found = entry.measured
    kinds = (Guarantee.PUBLISHED, Guarantee.DETECTION, Guarantee.RECOVERY)
    published, detection, recovery = (found.certified_as(kind) for kind in kinds)
    texts = (entry.model, entry.data, patch_text(entry), f"{entry.defence}{' *' if entry.few else ''}")
    costs = (
        found.answer_passes,
        found.proof_passes,
        found.milliseconds(found.answer_passes),
        found.milliseconds(found.proof_passes),
        entry.joules(found.answer_passes),
        entry.joules(found.proof_passes),
    )
    return [
        *map(Cell, texts),
        *_mask_cells(entry),
        *reported_cells(entry.reported),
        *(share_cell(share) for share in (found.clean, published, detection, found.false_alerts, recovery)),
        *(Cell(number_text(cost)) for cost in costs),
        Cell(f"{found.images:,}" if found.images == entry.planned else f"{found.images:,} of {entry.planned:,}"),
    ]


def _mask_cells(entry: Entry) -> list[Cell]:
    """The mask's side and how many different masks there are; copies are counted beside them."""
    found = entry.measured
    if found.masks is None or found.mask is None:
        return [Cell(NOTHING)] * 2
    copies = f"({entry.placed:,} placed)" if entry.placed != found.masks else ""
    return [Cell(size_text(found.mask)), Cell(f"{found.masks:,}", copies)]


def patch_text(entry: Entry) -> str:
    """The patch as the experiment calls it, and its side on this model's input."""
    if entry.threat.label == "none":
        return NOTHING
    height, width = entry.measured.patch
    size = f"{height}×{width} px"
    return size if entry.threat.label == f"{height} px" else f"{entry.threat.label} ({size})"


def size_text(size: tuple[int, int]) -> str:
    return str(size[0]) if size[0] == size[1] else f"{size[0]}×{size[1]}"


def share_cell(share: Share | None) -> Cell:
    if share is None:
        return Cell(NOTHING)
    low, high = share.interval
    return Cell(f"{100 * share.value:.1f}", f"({100 * low:.1f}–{100 * high:.1f})")


def number_text(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def reported_cells(reported: Reported | None) -> list[Cell]:
    """Clean and robust as printed, with "about" or "above" where the paper says so."""
    if reported is None:
        return [Cell(NOTHING)] * 2
    pairs = ((reported.clean_sign, reported.clean), (reported.robust_sign, reported.robust))
    return [Cell(NOTHING if value is None else f"{sign} {value:.1f}".strip()) for sign, value in pairs]


def reported_table(reported: Sequence[Reported]) -> Table:
    """Figures of the paper without a run here that they could stand beside."""
    words = ("method", "model", "data", "patch", "where in the paper")
    columns = (*(Heading(word, words=True) for word in words), Heading("clean", PAPER), Heading("robust", PAPER))
    rows = [
        [*(Cell(t or NOTHING) for t in (r.method, r.model, r.data, r.threat, r.place)), *reported_cells(r)]
        for r in reported
    ]
    return Table("Reported by the paper, not measured here", columns, rows)


def entry_record(entry: Entry) -> dict[str, Any]:
    """Plain data: ``reported`` in percent as printed, ``measured`` from 0 to 1; never mixed."""
    measured = {**csv_record(FIGURES, entry.measured), "masks_placed": entry.placed, "few_images_only": entry.few}
    measured |= {
        "estimated_joules_to_answer": entry.joules(entry.measured.answer_passes),
        "estimated_joules_to_prove": entry.joules(entry.measured.proof_passes),
    }
    return {
        "model": entry.model,
        "data": entry.data,
        "patch": entry.threat.label,
        "defence": entry.defence,
        "k": entry.k,
        "reported": asdict(entry.reported) if entry.reported else None,
        "measured": measured,
    }


def runs_table(done: Sequence[Done], unstarted: Sequence[Path]) -> Table:
    """Where the figures come from: one row per results file."""
    words = ("results", "model", "weights", "photos", "precision", "device", "torch")
    columns = (*(Heading(word, words=True) for word in words), Heading("batch"), Heading("margin"))
    notes = [f"No image is done yet in {path.name}." for path in unstarted]
    return Table("Runs", columns, [_run_cells(run) for run in done], notes)


def _run_cells(run: Done) -> list[Cell]:
    model, data, versions = (run.file.header.get(part, {}) for part in ("model", "data", "versions"))
    margins = {defence["rule"].get("margin", 0.0) for defence in run.file.defences.values()}
    texts = (
        run.file.path.name,
        Path(model["name"]).name,
        str(model.get("weights_sha256", NOTHING))[:12],
        f"{Path(data['name']).name}, list {data.get('digest', NOTHING)}",
        *(str(model.get(key, NOTHING)) for key in ("precision", "device")),
        str(versions.get("torch", NOTHING)),
        str(model.get("batch", NOTHING)),
        f"{max(margins):.3g}",
    )
    return [Cell(text) for text in texts]
