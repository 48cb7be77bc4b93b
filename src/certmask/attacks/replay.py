"""One saved attempt, judged again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from certmask.attacks.attack import Job, breaks, defence_judge, rechecked
from certmask.attacks.certified_run import CertifiedRun
from certmask.attacks.pictures import read_picture
from certmask.certificate import Decision
from certmask.data import pixel_digest
from certmask.defences import MaskedDefence
from certmask.engine import Engine
from certmask.errors import ResultsError
from certmask.results.file import picture_folder, read_results


@dataclass(frozen=True)
class Replay:
    """A saved picture with its defence, its true label and where its patch is."""

    defence: MaskedDefence
    image: str
    label: int
    corner: tuple[int, int]
    picture: Tensor

    def judged(self, engine: Engine, clean: Tensor) -> tuple[Decision, bool]:
        """The decision, and whether it breaks the certificate; an error if more than the patch was changed."""
        job = Job(clean[None], torch.tensor([self.label]), self.defence.cover.patch)
        pictures, _ = rechecked(job, self.picture[None], torch.tensor([self.corner]))
        (decision,) = defence_judge(engine, self.defence)(pictures)
        return decision, breaks(self.defence.rule.guarantee, decision, self.label)


def replay(run: CertifiedRun, attempts: Path, number: int) -> Replay:
    """Row ``number`` (from 1) of an attempts file whose picture was saved."""
    header, rows = read_results(attempts)
    if header.get("kind") != "attack" or header["certified"]["digest"] != run.digest:
        raise ResultsError(f"expected attempts on {run.path}, got {attempts}, which is about something else")
    if not 1 <= number <= len(rows):
        raise ResultsError(f"expected a row from 1 to {len(rows)} of {attempts}, got {number}")
    row = rows[number - 1]
    if row["picture"] is None:
        raise ResultsError(f"expected a row with a saved picture, got {number}: only successful attempts are saved")
    raw = picture_folder(attempts) / row["picture"]
    picture = read_picture(raw)
    if pixel_digest(picture) != row["picture_sha256"]:
        raise ResultsError(f"expected the picture that was judged in {raw}, got other pixels")
    (defence,) = run.chosen([row["defence"]])
    return Replay(defence, row["image"], row["label"], (row["corner"][0], row["corner"][1]), picture)
