"""What a batch shows of its photos: moved, in other colours, and with something hidden."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from certmask.threat import Size
from certmask.training.augmentation import (
    greedy_cutout,
    random_band,
    random_colours,
    random_cutout,
    random_shift,
    random_window,
)
from certmask.training.pairs import MaskPairs, Recall, deployed_covers
from certmask.training.recipe import PAIRS, Recipe

Losses = Callable[[Tensor, Tensor], Tensor]
"""Images, of which there may be several times as many as labels, and labels to one loss per image."""


class Lesson(NamedTuple):
    """A batch: varied images ``[n, 3, height, width]``, labels, the photos' numbers, which are mirrored, ``[n]``."""

    images: Tensor
    labels: Tensor
    photos: Tensor
    mirrored: Tensor


class Showing:
    """Shows photos as a recipe says; ``losses`` of the network tell which views are hard, where it asks for that."""

    def __init__(self, recipe: Recipe, model: nn.Module, size: Size, photos: int, fill: Tensor, losses: Losses) -> None:
        self.recipe, self.fill, self.losses = recipe, fill, losses
        self.pairs: MaskPairs | None = None
        self.recall: Recall | None = None
        if recipe.cutout == PAIRS:
            self.pairs = MaskPairs(deployed_covers(recipe, model, size), fill.device)
            self.recall = Recall(self.pairs, photos, recipe.recall) if recipe.recall else None

    def varied(self, images: Tensor, labels: Tensor, photos: Tensor, chance: torch.Generator) -> Lesson:
        """Mirrored with probability one half, moved, seen through a window and in other colours, as the recipe says."""
        mirrored = torch.zeros(len(images), dtype=torch.bool, device=images.device)
        if self.recipe.flip:
            mirrored = (torch.rand(len(images), generator=chance) < 0.5).to(images.device)
            images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
        if self.recipe.shift:
            images = random_shift(images, self.recipe.shift, chance)
        if self.recipe.zoom < 1:
            images = random_window(images, self.recipe.zoom, chance)
        if self.recipe.colour:
            images = random_colours(images, self.recipe.colour, chance)
        return Lesson(images, labels, photos, mirrored)

    def occluded(self, lesson: Lesson, chance: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Every view of the batch, then every next one, and the pairs of masks that they hide, if any."""
        if self.pairs is not None:
            pairs = self._pairs(lesson, self.pairs, chance)
            images = lesson.images.repeat(self.recipe.views, 1, 1, 1)
            return self.pairs.hidden(images, pairs, self._colours(len(images), chance)), pairs
        return self._blanked(lesson, chance), None

    def _blanked(self, lesson: Lesson, chance: torch.Generator) -> Tensor:
        images, labels = lesson.images, lesson.labels
        if self.recipe.cutout == "random":
            return random_cutout(images, self.recipe, self.fill, chance)
        if self.recipe.band is not None:
            return random_band(images, self.recipe.band, self.fill, chance)
        if self.recipe.cutout == "greedy":
            return greedy_cutout(images, lambda tried: self.losses(tried, labels), self.recipe, self.fill, chance)
        return images

    def _pairs(self, lesson: Lesson, pairs: MaskPairs, chance: torch.Generator) -> Tensor:
        """The masks of every view: drawn, or remembered as hard; of several tries the worst."""
        views, tries = self.recipe.views, self.recipe.tries
        drawn = self._drawn(lesson, pairs, views * tries, chance)
        if tries == 1:
            return drawn
        with torch.no_grad():
            images = lesson.images.repeat(views * tries, 1, 1, 1)
            losses = self.losses(pairs.hidden(images, drawn, self.fill), lesson.labels)
        if self.recall is not None:
            self.recall.remember(lesson.photos, lesson.mirrored, drawn, losses)
        return pairs.worst(drawn, losses, views * len(lesson.labels))

    def _drawn(self, lesson: Lesson, pairs: MaskPairs, times: int, chance: torch.Generator) -> Tensor:
        if self.recipe.one_cover:
            return pairs.drawn(len(lesson.labels) * self.recipe.views, chance, self.recipe.tries)
        if self.recall is None:
            return pairs.drawn(len(lesson.labels) * times, chance)
        return self.recall.drawn(lesson.photos.repeat(times), lesson.mirrored.repeat(times), chance)

    def _colours(self, count: int, chance: torch.Generator) -> Tensor:
        """What masks are painted in: the colour of deployment, or one of its own for each view."""
        if self.recipe.fill == "mean":
            return self.fill
        return torch.rand(count, 3, 1, 1, generator=chance).to(self.fill.device)

    def remember(self, lesson: Lesson, pairs: Tensor | None, losses: Tensor) -> None:
        """How hard the views were, where that is recalled, beside what was tried for them.

        ``losses`` of more than the masked views are passed over.
        """
        if self.recall is not None and pairs is not None:
            self.recall.remember(lesson.photos, lesson.mirrored, pairs, losses[: len(pairs)])
