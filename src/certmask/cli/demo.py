"""``certmask demo``: several defences of one real model on 20 real photos."""

from __future__ import annotations

import time
from pathlib import Path

from certmask.certify import certify_run
from certmask.cli.choices import pick_backend, pick_device
from certmask.cli.console import figures_table, out, progress_bar
from certmask.covers import default_cover, offset_cover, patchcleanser_cover, spread_cover
from certmask.data import load_dataset
from certmask.defences.masked import MaskedDefence
from certmask.results.columns import figures
from certmask.results.run import read_run
from certmask.rules import JuryDetection, JuryRecovery, PatchCleanser, Published, Undefended
from certmask.threat import Patch
from certmask.zoo import DEFAULT_MODEL, framing_of, load_classifier

PATCH = Patch(32, 32)


def demo_defences() -> list[MaskedDefence]:
    """The defences that the demo compares, all against a 32×32 patch (2 % of the picture)."""
    offset = offset_cover(224, PATCH, 96, (2, 3))
    single = spread_cover(224, PATCH, 80)
    fourfold = default_cover(224, PATCH)
    return [
        MaskedDefence(single, Undefended(), "undefended"),
        MaskedDefence(offset, Published(), "published rule k=6"),
        MaskedDefence(fourfold, JuryDetection(), "jury detection k=4"),
        MaskedDefence(single, JuryRecovery(), "jury recovery k=1"),
        MaskedDefence(fourfold, JuryRecovery("aligned"), "jury recovery k=4"),
        MaskedDefence(patchcleanser_cover(224, PATCH, 4), PatchCleanser(), "PatchCleanser 4×4"),
    ]


def run(path: Path, device: str, precision: str, backend: str) -> None:
    """Certify the demo photos, print the table and what each row means."""
    start = time.monotonic()
    device = pick_device(device)
    backend = pick_backend(backend, device)
    classifier = load_classifier(DEFAULT_MODEL, device=device, precision=precision, backend=backend)
    dataset = load_dataset("demo", [], framing_of(DEFAULT_MODEL))
    defences = demo_defences()
    out.print(
        f"EfficientNet-Lite0 ({classifier.precision}, {backend} on {device}), {len(dataset)} ImageNet photos, "
        f"threat: any {PATCH.height}×{PATCH.width} patch anywhere on the 224×224 input"
    )
    with progress_bar(len(dataset)) as progress:
        certify_run(classifier, dataset, defences, path, progress=progress)
    found = read_run(path)
    out.print(figures_table(figures(found), f"{len(found.rows)} photos"))
    out.print("What a certified photo is guaranteed:")
    for defence in defences:
        out.print(f"  {defence.name + ':':24}{defence.rule.guarantee.sentence}")
    out.print(
        "False alerts: clean photos on which an alert is raised. Clean: answered rightly and without an alert.\n"
        f"Saved in {path}; `certmask table {path}` prints it again. {time.monotonic() - start:.0f} s."
    )
