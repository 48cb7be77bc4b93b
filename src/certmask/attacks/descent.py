"""Gradient descent on the pixels of many patches at once, through the network as an attacker sees it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from certmask.attacks.goals import DOUBT, HIDDEN, KEEP, Bits, Drawn, Views
from certmask.attacks.pictures import paste
from certmask.attacks.scene import Lens
from certmask.backends.outputs import logits_of
from certmask.classifier import Classifier
from certmask.covers import Cover
from certmask.engine import Engine
from certmask.engine.masking import MaskTable, hidden_by
from certmask.errors import AttackError
from certmask.geometry import IntArray, Mask
from certmask.identity import weights_digest
from certmask.images import Colour
from certmask.threat import Patch, Size
from certmask.views import turned

LOOKED_AT = 128
"""Views that are compared at once."""
LEAD_WANTED = 1.0
"""Logits by which a narrow goal wants the target to lead, beyond what settles a question."""


class Surrogate:
    """Logits of masked views with gradients, on a copy of the network: the classifier's state is never touched.

    With an ``engine`` it looks through masks as that engine paints them, right or wrong; else it paints those of
    ``covers`` itself. It computes in fp32 on a CPU and in bf16 on a GPU. What it says guides an attack and decides
    nothing.
    """

    def __init__(
        self,
        classifier: Classifier,
        covers: Sequence[Cover] = (),
        *,
        network: nn.Module | None = None,
        fill: Colour | None = None,
        engine: Engine | None = None,
    ) -> None:
        network = _own_network(classifier) if network is None else _checked_network(network, classifier)
        self.device, self.classes, self.size = classifier.device, classifier.classes, classifier.size
        self._turns = classifier.views
        network = copy.deepcopy(network).float().eval().requires_grad_(False).to(self.device)
        self._network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._masks = MaskTable(covers, classifier.size, self.device) if engine is None else engine.forward.masks
        self._shown = self._painted if engine is None else engine.forward.shown
        self._leaking: dict[tuple[Cover, Size], IntArray] = {}
        self._through: dict[Cover, dict[int, IntArray]] = {}
        self._scores: Callable[[Tensor], Tensor] | None = None
        self._shift, self._scale, self._fill = (
            torch.tensor(colour, device=self.device).view(1, 3, 1, 1)
            for colour in (classifier.mean, classifier.std, classifier.fill if fill is None else fill)
        )

    def reading(self, scores: Callable[[Tensor], Tensor]) -> Surrogate:
        """The same network; its map ``[n, classes, rows, columns]`` is read through ``scores``, ``[n, classes]``."""
        other = copy.copy(self)
        other._scores = scores
        return other

    def numbers(self, cover: Cover) -> IntArray:
        """The number that each mask of a cover has here; -1 always stands for "no mask"."""
        return self._masks.index(cover)

    def __call__(self, pictures: Tensor, sets: Tensor) -> Tensor:
        """Logits ``[n, views, classes]`` of pictures ``[n, 3, H, W]`` under sets of masks ``[n, views, masks]``."""
        count, views = sets.shape[:2]
        seen = self._shown(pictures.repeat_interleave(views, dim=0), sets.flatten(0, 1))
        return self._averaged(seen).view(count, views, -1)

    def _averaged(self, seen: Tensor) -> Tensor:
        """The network's logits; of several views of the classifier, the logarithm of their mean probability."""
        logits = [self._logits(turned(seen, view)) for view in self._turns]
        if len(logits) == 1:
            return logits[0]
        return torch.stack([own.log_softmax(dim=1) for own in logits]).logsumexp(dim=0) - math.log(len(logits))

    def _logits(self, shown: Tensor) -> Tensor:
        normal = ((shown - self._shift) / self._scale).contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            logits = logits_of(self._network(normal)).float()
        return logits if self._scores is None else self._scores(logits)

    def leaks(self, cover: Cover, corners: IntArray, covered: Bits, patch: Patch | None = None) -> Bits:
        """Which of the masks ``covered [n, masks]`` let anything of a patch at each corner ``[n, 2]`` through.

        A black picture and the same with a white patch must look alike under a mask that hides the patch: the given
        one, or the one that the cover is against.
        """
        leaking, numbers = np.zeros_like(covered), self.numbers(cover)
        black = torch.zeros(1, 3, *self.size, device=self.device)
        white = torch.ones(1, 3, *(patch or cover.patch).size, device=self.device)
        for some in np.array_split(np.argwhere(covered), max(covered.sum() // LOOKED_AT, 1)):
            sets = torch.from_numpy(numbers[some[:, 1:]]).to(self.device)
            without = black.expand(len(some), -1, -1, -1)
            patched = paste(without, white.expand(len(some), -1, -1, -1), torch.from_numpy(corners[some[:, 0]]))
            differ = (self._shown(patched, sets) != self._shown(without, sets)).flatten(1).any(dim=1)
            leaking[tuple(some.T)] = differ.cpu().numpy()
        return leaking

    def leaking_corners(self, cover: Cover, patch: Patch | None = None) -> IntArray:
        """Where the largest part of the masks that should hide a patch show some of it, ``[n, 2]``; none if all hide.

        Which masks should hide a place is found from their rectangles, pixel by pixel; what they show, from black and
        white pictures. The patch is the given one, or the one that the cover is against.
        """
        patch = patch or cover.patch
        key, size = (cover, patch.size), patch.size
        if key not in self._leaking:
            covering, leaking = np.zeros((2, *patch.positions(cover.image)), dtype=np.int64)
            through = self._shown_through(cover)
            for place, mask in enumerate(cover.masks if through else ()):
                covers = _windows(_hidden(mask, cover.image), size) == np.prod(size)
                covering += covers
                if place in through:
                    leaking += covers & (_windows(through[place], size) > 0)
            share = leaking / np.maximum(covering, 1)
            self._leaking[key] = np.argwhere((share == share.max()) & (leaking > 0))
        return self._leaking[key]

    def _shown_through(self, cover: Cover) -> dict[int, IntArray]:
        """1 for every pixel ``[height, width]`` that a mask should hide and shows, for masks of which there are any."""
        if cover not in self._through:
            masks = enumerate(zip(self.numbers(cover).tolist(), cover.masks, strict=True))
            pixels = {place: _hidden(mask, cover.image) & self._visible(number) for place, (number, mask) in masks}
            self._through[cover] = {place: own for place, own in pixels.items() if own.any()}
        return self._through[cover]

    def _visible(self, number: int) -> IntArray:
        """1 for every pixel ``[height, width]`` that a mask lets through."""
        pictures = torch.stack([torch.zeros(3, *self.size), torch.ones(3, *self.size)]).to(self.device)
        black, white = self._shown(pictures, torch.full((2, 1), number, device=self.device))
        return np.asarray((black != white).any(dim=0).long().cpu())

    def _painted(self, pictures: Tensor, sets: Tensor) -> Tensor:
        """The fill colour wherever one of a set of masks lies."""
        hidden = hidden_by(self._masks.rows[sets], self._masks.columns[sets])
        return torch.where(hidden[:, None], self._fill, pictures)


def _hidden(mask: Mask, image: Size) -> IntArray:
    """1 for every pixel ``[height, width]`` that a mask should hide."""
    pixels = np.zeros(image, dtype=np.int64)
    rows, columns = mask.footprint(image)
    for (top, bottom), (left, right) in product(rows, columns):
        pixels[top:bottom, left:right] = 1
    return pixels


def _windows(pixels: IntArray, window: Size) -> IntArray:
    """The sum over the window at each of its places."""
    sums = np.pad(pixels, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    h, w = window
    return np.asarray(sums[h:, w:] - sums[:-h, w:] - sums[h:, :-w] + sums[:-h, :-w])


def _own_network(classifier: Classifier) -> nn.Module:
    if not isinstance(classifier.model, nn.Module):
        raise AttackError(
            f"expected a torch network for gradients, got {classifier.name} without one: "
            "pass network=… or use random search"
        )
    return classifier.model


def _checked_network(network: nn.Module, classifier: Classifier) -> nn.Module:
    if weights_digest(network) != classifier.weights:
        raise AttackError(f"expected the network that {classifier.name} was made from, got other weights")
    return network


@dataclass(frozen=True)
class Descent:
    """Steps by sign, with momentum, large at first, then smaller. In the first ``explore`` share of them any wrong
    class will do; then each patch settles on the class that its views lean to most (or on its ``rank``-th best)."""

    steps: int = 60
    first_step: float = 0.12
    last_step: float = 0.008
    momentum: float = 0.8
    explore: float = 0.25

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise AttackError(f"expected at least 1 step, got {self.steps}")

    def size(self, step: int) -> float:
        """How far every pixel moves in a step: half a cosine from the first size down to the last."""
        share = step / max(self.steps - 1, 1)
        return self.last_step + (self.first_step - self.last_step) * (1 + math.cos(math.pi * share)) / 2

    def moved(self, patch: Tensor, velocity: Tensor, slope: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """One step: patches ``[..., 3, h, w]``, each within [0, 1], and their velocities after it."""
        scale = slope.abs().mean(dim=(-3, -2, -1), keepdim=True).clamp(min=1e-20)
        velocity = self.momentum * velocity + slope / scale
        return (patch.detach() - self.size(step) * velocity.sign()).clamp(0, 1), velocity


@dataclass(frozen=True)
class Prey:
    """Attempts in work, on the surrogate's device: images ``[n, 3, H, W]``, labels, a job's corners, and how.

    ``targets`` is -1 where any wrong class will do at first; ``rank`` picks among the classes to settle on;
    ``narrow`` says which attempts are content with a small lead.
    """

    images: Tensor
    labels: Tensor
    corners: Tensor
    targets: Tensor
    rank: Tensor
    narrow: Tensor


def descend(
    surrogate: Surrogate,
    prey: Prey,
    views: Views,
    patches: Tensor,
    descent: Descent,
    chance: torch.Generator,
    lens: Lens | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Patches ``[n, …, 3, h, w]`` after all steps, the targets they settled on, and their last losses ``[n]``.

    They are patches in photos where a ``lens`` says what becomes of them in the input.
    """
    velocity, targets = torch.zeros_like(patches), prey.targets
    losses = patches.new_zeros(len(patches))
    settle = max(round(descent.explore * descent.steps), 1)
    for step in range(descent.steps):
        drawn = views.draw(chance)
        patches = patches.detach().requires_grad_()
        shown = patches if lens is None else lens(patches)
        logits = surrogate(paste(prey.images, shown, prey.corners), drawn.sets)
        if step == settle:
            targets = _settled(logits.detach(), drawn.wanted, prey, targets)
        losses = attempt_losses(logits, drawn, prey.labels, targets, prey.narrow)
        (slope,) = torch.autograd.grad(losses.sum(), patches)
        patches, velocity = descent.moved(patches, velocity, slope, step)
    return patches, targets, losses.detach()


def attempt_losses(logits: Tensor, drawn: Drawn, labels: Tensor, targets: Tensor, narrow: Tensor) -> Tensor:
    """How far each attempt is from its goal, ``[n]``: a mean over its views ``[n, views, classes]``."""
    lead = _lead(logits, labels)
    aimed = targets.clamp(min=0)
    short = (drawn.bars + LEAD_WANTED - _lead(logits, aimed)).clamp(min=0)
    towards = torch.where(narrow[:, None], short, _surprise(logits, aimed))
    turn = torch.where(targets[:, None] >= 0, towards, lead)
    loss = torch.where(drawn.wanted == KEEP, _surprise(logits, labels), turn)
    loss = torch.where(drawn.wanted == DOUBT, _certainty(logits, drawn.bars), loss)
    counted = drawn.wanted != HIDDEN
    return torch.where(counted, loss, 0.0).sum(dim=1) / counted.sum(dim=1).clamp(min=1)


def _surprise(logits: Tensor, classes: Tensor) -> Tensor:
    """Cross-entropy of one class per attempt in each of its views, ``[n, views]``."""
    wide = classes[:, None].expand(logits.shape[:2])
    return functional.cross_entropy(logits.flatten(0, 1), wide.flatten(), reduction="none").view(logits.shape[:2])


def _certainty(logits: Tensor, bars: Tensor) -> Tensor:
    """By how many logits the first class leads the second beyond what leaves a view in doubt, ``[n, views]``."""
    best = logits.topk(2, dim=2).values
    return (best[..., 0] - best[..., 1] - bars).clamp(min=0)


def _lead(logits: Tensor, classes: Tensor) -> Tensor:
    """By how many logits a class is ahead of the best other one, ``[n, views]``."""
    index = classes[:, None, None].expand(*logits.shape[:2], 1)
    others = logits.scatter(2, index, -torch.inf).amax(dim=2)
    return logits.gather(2, index)[..., 0] - others


def _settled(logits: Tensor, wanted: Tensor, prey: Prey, targets: Tensor) -> Tensor:
    """The class to go for where none was given: the ``rank``-th best wrong one over the views to turn."""
    counted = (wanted != HIDDEN) & (wanted != KEEP)
    score = (logits.softmax(dim=2) * counted[..., None]).sum(dim=1)
    score = score.scatter(1, prey.labels[:, None], -1.0)
    best = score.argsort(dim=1, descending=True)
    chosen = best.gather(1, prey.rank[:, None].clamp(max=logits.shape[2] - 2))[:, 0]
    return torch.where(targets >= 0, targets, chosen)
