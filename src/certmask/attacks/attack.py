"""What every attack has in common: it is checked before, and judged after, by somebody else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, final

import torch
from torch import Tensor

from certmask.attacks.pictures import beneath, checked_corners, eight_bits, paste, several
from certmask.attacks.scene import Scene
from certmask.certificate import Decision
from certmask.classifier import Classifier
from certmask.defences import RuledDefence, examine
from certmask.engine import Engine
from certmask.errors import AttackError
from certmask.images import checked_images
from certmask.results.run import Placed
from certmask.threat import Patch, Size, checked_patch

Judge = Callable[[Tensor], Sequence[Decision]]
"""The deployed function: pictures ``[n, 3, H, W]`` in [0, 1] to decisions."""


def classifier_judge(classifier: Classifier) -> Judge:
    """A classifier without a defence; it never raises an alert."""
    return lambda pictures: [Decision(int(label)) for label in classifier(pictures).argmax(dim=1)]


def defence_judge(engine: Engine, defence: RuledDefence) -> Judge:
    """A whole defence, exactly as it is deployed."""

    def judge(pictures: Tensor) -> list[Decision]:
        findings = sorted(examine(engine, pictures.cpu(), None, [defence]), key=lambda finding: finding.number)
        return [Decision(finding.value[0].label, finding.value[0].alert) for finding in findings]

    return judge


@dataclass(frozen=True)
class Job:
    """Clean images ``[n, 3, H, W]`` with true labels ``[n]``, and the patch that the attacker may put on each.

    ``corners`` ``[n, 2]`` fixes the places, else the attack chooses; ``targets`` ``[n]`` asks for these classes, else
    any wrong class will do. Where the patch has a ``count``, each image gets so many, at corners ``[n, count, 2]``.
    With ``scenes`` the attacker writes a patch into each stored photo instead, and changes in the input what that
    reaches inside the ``patch`` at the corner.
    """

    images: Tensor
    labels: Tensor
    patch: Patch
    corners: Tensor | None = None
    targets: Tensor | None = None
    scenes: Sequence[Scene] | None = None

    @property
    def size(self) -> Size:
        return int(self.images.shape[2]), int(self.images.shape[3])

    @property
    def several(self) -> tuple[int, ...]:
        """What stands between the image and the rest in shapes of corners and contents: the count, if it is not 1."""
        return several(self.patch)

    def __len__(self) -> int:
        return len(self.images)

    def checked(self) -> Job:
        """The same job; an error that says what is wrong with it."""
        if self.images.ndim != 4 or not len(self.images):
            raise AttackError(f"expected at least one image, [n, 3, height, width], got {list(self.images.shape)}")
        images = checked_images(self.images, self.size)
        checked_patch(self.patch).positions(self.size)
        _check_classes(self.labels, len(self), "labels")
        corners = self.corners
        if corners is not None:
            corners = checked_corners(corners, len(self), self.patch, self.size)
        if self.scenes is not None and any(scene.threat != self.patch for scene in self.scenes):
            raise AttackError(f"expected photos in which a patch becomes {self.patch} at most, got others")
        if self.targets is not None:
            _check_classes(self.targets, len(self), "targets")
            if (self.targets.cpu() == self.labels.cpu()).any():
                raise AttackError("expected targets that differ from the true labels, got the same")
        return replace(self, images=images, labels=self.labels.long(), corners=corners)


@dataclass(frozen=True)
class Attacked:
    """What came of a job: pictures, the corners of their patches, and how the deployed function decided about them."""

    pictures: Tensor
    corners: Tensor
    decisions: tuple[Decision, ...]
    patch: Patch

    def patches(self, number: int) -> tuple[Placed, ...]:
        """Corner and size of each of the patches on one of the pictures."""
        return tuple(((top, left), self.patch.size) for top, left in self.corners[number].view(-1, 2).tolist())

    def fooled(self, labels: Tensor) -> Tensor:
        """Where another class than the true one is answered, ``[n]``, alert or not."""
        return torch.tensor([decision.label for decision in self.decisions]) != labels.cpu()


class Needs(Enum):
    """What the constructor of an attack takes before all options; it says how much the attacker must know."""

    SCORES = "class probabilities"
    GRADIENTS = "a surrogate of the network"
    DEFENCE = "a surrogate of the network, and the defence"
    EVIDENCE = "a surrogate of a network with cells, and the defence on their evidence"


class Attack(ABC):
    """``attack(job, judge)`` patches pictures and lets ``judge`` decide; no attack grades itself.

    What is judged has 8 bits per value and differs from the clean image within one rectangle of the patch's size
    only, or within as many as it has a count; an attack that returns anything else is an error.
    """

    in_photos: ClassVar[bool] = False
    """Whether it can put its patch into stored photos."""

    @abstractmethod
    def run(self, job: Job, seed: int) -> tuple[Tensor, Tensor]:
        """Patched pictures ``[n, 3, H, W]`` and the corners of their patches, as those of a job."""

    @final
    def __call__(self, job: Job, judge: Judge, *, seed: int = 0) -> Attacked:
        """Check the job, run the attack, check what it returns, and have it judged."""
        job = job.checked()
        if job.scenes is not None and not self.in_photos:
            raise AttackError(f"expected an attack that patches photos, got {type(self).__name__}")
        pictures, corners = self.run(job, seed)
        pictures, corners = rechecked(job, pictures, corners)
        decisions = tuple(judge(pictures))
        if len(decisions) != len(job):
            raise AttackError(f"expected {len(job)} decisions from the judge, got {len(decisions)}")
        return Attacked(pictures, corners, decisions, job.patch)


@dataclass(frozen=True)
class AttackEntry:
    """An attack's row in the table of attacks: its class, what it needs, and its idea in one sentence."""

    attack: type[Attack]
    needs: Needs
    idea: str


def rechecked(job: Job, pictures: Tensor, corners: Tensor) -> tuple[Tensor, Tensor]:
    """The pictures as files would hold them; an error if an attack did more than the patch allows."""
    clean = job.images.cpu()
    pictures = checked_images(pictures.detach().cpu(), job.size)
    if len(pictures) != len(job):
        raise AttackError(f"expected {len(job)} pictures from the attack, got {len(pictures)}")
    corners = checked_corners(corners.cpu(), len(job), job.patch, job.size)
    if job.corners is not None and not torch.equal(corners, job.corners.cpu()):
        raise AttackError("expected the patch at the corner that was given, got another")
    if not torch.equal(paste(pictures, beneath(clean, job.patch, corners), corners), clean):
        raise AttackError("expected pixels outside the patch as they were, got changed ones")
    return paste(clean, eight_bits(beneath(pictures, job.patch, corners)), corners), corners


def check_known(job: Job, classes: int) -> None:
    """An error if a label or target is not one of the model's classes."""
    for what, wanted in (("labels", job.labels), ("targets", job.targets)):
        if wanted is not None and int(wanted.max()) >= classes:
            raise AttackError(f"expected {what} from 0 to {classes - 1}, got {int(wanted.max())}")


def random_corners(job: Job, count: int, chance: torch.Generator) -> Tensor:
    """Corners anywhere in ``count`` of the job's images, ``[count, 2]``, or ``[count, patches, 2]`` for several."""
    rows, columns = job.patch.positions(job.size)
    top = torch.randint(rows, (count, *job.several, 1), generator=chance)
    return torch.cat([top, torch.randint(columns, (count, *job.several, 1), generator=chance)], dim=-1)


def _check_classes(classes: Tensor, count: int, what: str) -> None:
    if classes.shape != (count,) or classes.is_floating_point() or int(classes.min()) < 0:
        raise AttackError(f"expected {count} whole-number {what} of at least 0, got {list(classes.shape)}")
