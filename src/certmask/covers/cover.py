"""A cover: masks plus the fold that was verified, location by location."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, pairwise
from math import comb
from typing import Any

import numpy as np

from certmask.errors import CoverError
from certmask.geometry import Cells, Districts, IntArray, Mask, find_cells, find_districts
from certmask.geometry.shapes import position_spans
from certmask.threat import Box, Patch, Size, Threat, checked_patch, checked_size, checked_threat, threat_from

NOWHERE: Box = (0, 0, 0, 0)
GRIDS_TOLD = "2-"
"""How a digest begins that knows the grids."""


@dataclass(frozen=True)
class Cover:
    """Distinct masks such that every place of a threat lies wholly inside at least ``fold_y · fold_x`` of them.

    The claim is checked when a cover is made: a set of masks that does not cover is an error, never a value. Covers are
    equal where all that is said about them is: masks and their order, copies, grids, tiling, sizes.
    ``copies[i]`` says how often mask ``i`` was placed; ``grids`` lists complete 1-fold covers that the masks form.
    ``align`` is the grid on which masks start. ``levels`` are the covers that a zoom cover is made of, from coarse to
    fine; any other cover is one level and has none.
    ``patches`` are boxes into which everything fits that the threat allows: itself, if it is a patch. Where there are
    several, a level has ``parts``, one cover for each.
    """

    tiling: str
    image: Size
    threat: Threat
    mask: Size
    fold: Size
    masks: tuple[Mask, ...]
    copies: tuple[int, ...]
    grids: tuple[tuple[int, ...], ...] = ()
    align: int = 1
    levels: tuple[Cover, ...] = ()
    patches: tuple[Patch, ...] = ()
    parts: tuple[Cover, ...] = ()
    districts: Districts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for key in ("image", "mask", "fold"):
            object.__setattr__(self, key, checked_size(getattr(self, key), key))
        object.__setattr__(self, "threat", checked_threat(self.threat))
        object.__setattr__(self, "patches", self.patches or (self.patch.single,))
        self._check_patches()
        object.__setattr__(self, "masks", checked_masks(self.masks))
        if len(self.copies) != len(self.masks) or min(self.copies) < 1:
            raise CoverError(f"expected copies of {len(self.masks)} masks, each at least 1, got {self.copies}")
        if any(not 0 <= number < len(self.masks) for grid in self.grids for number in grid):
            raise CoverError(f"expected grids of mask numbers below {len(self.masks)}, got others")
        object.__setattr__(self, "districts", find_districts(self.image, self.patches, self.masks))
        if self.min_fold < self.k:
            worst = int(np.argmin(self._folds))
            raise CoverError(
                f"expected every location of a {' or '.join(patch.label for patch in self.patches)} patch covered at "
                f"least {self.k} times, got {self.min_fold} at {tuple(int(c) for c in self.districts.corner[worst])}"
            )
        if not all(np.isin(self.districts.juries, grid).any(axis=1).all() for grid in self.grids):
            raise CoverError("expected every grid to cover every location on its own, got one with a hole")

    def _check_patches(self) -> None:
        """Whatever the threat allows fits into one of the patches."""
        for height, width in self.threat.boxes_on(self.image):
            if not any(height <= patch.height and width <= patch.width for patch in self.patches):
                raise CoverError(f"expected patches that hold {self.threat}, got none that holds {height}×{width}")
        for patch in self.threat.steps:
            if patch not in self.patches:
                raise CoverError(f"expected a patch of each size of {self.threat}, got none of {patch.label}")

    def __hash__(self) -> int:
        return hash(self.digest)

    def __len__(self) -> int:
        return len(self.masks)

    @property
    def patch(self) -> Patch:
        """The only one that the threat allows; an error where patches differ in size."""
        return checked_patch(self.threat)

    @property
    def k(self) -> int:
        """The fold that was asked for."""
        return self.fold[0] * self.fold[1]

    @cached_property
    def _folds(self) -> IntArray:
        copies: IntArray = np.append(np.array(self.copies, dtype=np.int64), 0)  # the padding -1 finds the 0
        return np.asarray(copies[self.districts.juries].sum(axis=1))

    @property
    def min_fold(self) -> int:
        """The smallest number of placed masks (copies counted) that cover one location."""
        return int(self._folds.min())

    @property
    def max_fold(self) -> int:
        """The largest number of placed masks (copies counted) that cover one location."""
        return int(self._folds.max())

    @property
    def min_jury(self) -> int:
        """The smallest number of *different* masks that cover one location."""
        return int(self.districts.sizes.min())

    @property
    def placed(self) -> int:
        """Masks with copies counted."""
        return sum(self.copies)

    def pairs(self, pairing: str = "all") -> int:
        """Two-mask passes that a recovery certificate may look at."""
        if pairing not in ("all", "aligned"):
            raise CoverError(f"expected pairs to be 'all' or 'aligned', got {pairing!r}")
        if pairing == "all":
            return comb(len(self), 2)
        return self._sets(2)

    def sets(self, most: int) -> int:
        """Passes under one to so many masks of one grid together."""
        return sum(self._sets(size) for size in range(1, most + 1))

    def _sets(self, size: int) -> int:
        """Different sets of so many masks of one grid."""
        if sum(map(len, self.grids)) == len(self):
            return sum(comb(len(grid), size) for grid in self.grids)
        return len({chosen for grid in self.grids for chosen in combinations(sorted(grid), size)})

    @cached_property
    def grid_juries(self) -> tuple[IntArray, ...]:
        """Per grid, the part of every jury that lies in it: ``[districts, largest part]``, padded with -1."""
        parts = []
        for grid in self.grids:
            member = np.isin(self.districts.juries, grid)
            juries = np.sort(np.where(member, self.districts.juries, -1), axis=1)[:, ::-1]
            parts.append(juries[:, : int(member.sum(axis=1).max())])
        return tuple(parts)

    @cached_property
    def cells(self) -> Cells:
        """The places that all levels judge, each hidden by one mask of every grid of every level, coarse to fine.

        Masks are numbered as here.
        """
        number = {mask.footprint(self.image): n for n, mask in enumerate(self.masks)}
        by_patch = zip(*(level.parts or (level,) for level in self.levels), strict=True)
        found = []
        for patch, parts in zip(self.patches, by_patch, strict=True):
            grids = [[cover.masks[n] for n in grid] for cover in parts for grid in cover.grids]
            cells = find_cells(self.image, patch, grids)
            own = [[number[grid[n].footprint(self.image)] for n in cells.masks[:, g]] for g, grid in enumerate(grids)]
            found.append(replace(cells, masks=np.array(own, dtype=np.int64).T))
        return Cells.joined(found)

    @property
    def level_columns(self) -> tuple[slice, ...]:
        """Which of the columns of ``cells.masks`` belong to each level, coarse to fine."""
        ends = np.cumsum([0, *(len((level.parts or (level,))[0].grids) for level in self.levels)]).tolist()
        return tuple(slice(*pair) for pair in pairwise(ends))

    @cached_property
    def boxes(self) -> IntArray:
        """Where a patch hidden by a place's masks may have its top left corner, ``[places, 4]``: rows, columns.

        Places are cells, or districts, of which the first location stands for all.
        """
        if self.levels:
            return self.cells.boxes
        corner = self.districts.corner
        return np.stack([corner[:, 0], corner[:, 0] + 1, corner[:, 1], corner[:, 1] + 1], axis=1)

    @cached_property
    def reaches(self) -> IntArray:
        """Where a patch that a mask hides may have its top left corner, ``[masks, 4]``: the first run of each axis."""
        own = zip(self.masks, self.mask_patches, strict=True)
        return np.array([_reach(mask, self.patches[n], self.image) or NOWHERE for mask, n in own], dtype=np.int64)

    @cached_property
    def mask_patches(self) -> IntArray:
        """The number of a patch that each mask can hide, ``[masks]``: the first, where there are several."""
        hides = [[_reach(mask, patch, self.image) is not None for patch in self.patches] for mask in self.masks]
        return np.asarray(np.argmax(hides, axis=1), dtype=np.int64)

    @property
    def place_patches(self) -> IntArray:
        """The number of the patch whose top left corners are each place's, ``[places]``."""
        return self.cells.patches if self.levels else np.zeros(len(self.districts), dtype=np.int64)

    def for_patch(self, patch: Patch) -> Cover:
        """The same masks held against another patch; an error if they do not cover it once."""
        return Cover(self.tiling, self.image, patch, self.mask, (1, 1), self.masks, self.copies, align=self.align)

    @cached_property
    def digest(self) -> str:
        """A short hash of the image size, the patch, every mask's footprint and the grids that masks form."""
        levels = [cover.digest for cover in self.levels]
        return f"{GRIDS_TOLD}{_digest([*self._told, self.grids, *([levels] if levels else [])])}"

    def digest_as(self, said: str) -> str:
        """The digest as a file says it: earlier ones leave the grids out."""
        return self.digest if said.startswith(GRIDS_TOLD) else _digest(self._told)

    @property
    def _told(self) -> list[Any]:
        return [self.image, self._against, [m.footprint(self.image) for m in self.masks], self.copies]

    @property
    def _against(self) -> Any:
        """The size of a single patch, else all that is said about the threat."""
        plain = isinstance(self.threat, Patch) and self.threat.count == 1
        return self.patch.size if plain else [self.threat.describe(), [patch.size for patch in self.patches]]

    def describe(self) -> dict[str, Any]:
        """What a results file or a certificate says about this cover."""
        return {
            **self._sizes(),
            "placed": self.placed,
            "min_fold": self.min_fold,
            "max_fold": self.max_fold,
            "districts": len(self.districts),
            "digest": self.digest,
        }

    def _sizes(self) -> dict[str, Any]:
        return {
            "tiling": self.tiling,
            "image": list(self.image),
            **self._patches(),
            "mask": list(self.mask),
            "fold": list(self.fold),
            "masks": len(self),
            **({"align": self.align} if self.align > 1 else {}),
            **({"levels": [cover.describe() for cover in self.levels]} if self.levels else {}),
            **({"parts": [cover.describe() for cover in self.parts]} if self.parts else {}),
        }

    def _patches(self) -> dict[str, Any]:
        """What the cover is against: a patch by its size, and more only where there is more to say."""
        if not isinstance(self.threat, Patch):
            return {"threat": self.threat.describe(), "patches": [list(patch.size) for patch in self.patches]}
        several = {} if self.threat.count == 1 else {"count": self.threat.count}
        return {"patch": list(self.threat.size), **several}

    def __repr__(self) -> str:
        return f"Cover({self})"

    def __str__(self) -> str:
        return cover_text(self._sizes())


def _digest(told: list[Any]) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def against(described: dict[str, Any]) -> Threat:
    """The threat that a cover is against, from what ``Cover.describe`` says about it."""
    if "threat" in described:
        return threat_from(described["threat"])
    height, width = described["patch"]
    return Patch(height, width, described.get("count", 1))


def _reach(mask: Mask, patch: Patch, image: Size) -> Box | None:
    """Where a patch under a mask may have its top left corner: the first run of each axis; None if it is too large."""
    rows = position_spans(mask.rows(image), patch.height)
    columns = position_spans(mask.columns(image), patch.width)
    return (*rows[0], *columns[0]) if rows and columns else None


def cover_text(described: dict[str, Any]) -> str:
    """A cover in words, from what ``Cover.describe`` says about it."""
    fold, image = (f"{a}×{b}" for a, b in (described[key] for key in ("fold", "image")))
    patch = against(described).label
    if "levels" in described:
        levels = " → ".join(f"{level['masks']} masks of {mask_text(level)}" for level in described["levels"])
        return f"{described['tiling']}, {levels} against {patch} on {image}"
    return (
        f"{described['tiling']} {fold}, {described['masks']} masks of {mask_text(described)} against {patch} on {image}"
    )


def mask_text(described: dict[str, Any]) -> str:
    """The size of masks, or their sizes, from small to large."""
    sizes = {tuple(part["mask"]) for part in described.get("parts", [described])}
    return ", ".join(f"{height}×{width}" for height, width in sorted(sizes, key=lambda size: (size[0] * size[1], size)))


def checked_masks(masks: Sequence[Mask]) -> tuple[Mask, ...]:
    """At least one mask, and nothing but masks."""
    if not isinstance(masks, Sequence) or not masks:
        raise CoverError(f"expected at least one mask, got {'none' if not masks else repr(masks)}")
    for mask in masks:
        if not isinstance(mask, Mask):
            raise CoverError(f"expected masks, such as Mask(top, left, height, width), got {mask!r}")
    return tuple(masks)


def distinct(masks: Iterable[Mask], image: Size) -> tuple[tuple[Mask, ...], tuple[int, ...], dict[Any, int]]:
    """Keep each footprint once: the masks, how often each was placed, and the index of every footprint."""
    index: dict[Any, int] = {}
    kept: list[Mask] = []
    copies: list[int] = []
    for mask in masks:
        position = index.setdefault(mask.footprint(image), len(kept))
        if position == len(kept):
            kept.append(mask)
            copies.append(0)
        copies[position] += 1
    return tuple(kept), tuple(copies), index


def build(
    tiling: str,
    image: Size,
    threat: Threat,
    mask: Size,
    fold: Size,
    grids: Sequence[Sequence[Mask]],
    complete: bool,
    align: int = 1,
    **more: Any,
) -> Cover:
    """Make a cover from lists of masks; ``complete`` promises that each list is a 1-fold cover of its own.

    ``more`` has levels, patches or parts.
    """
    masks, copies, index = distinct((m for grid in grids for m in grid), image)
    numbered = tuple(dict.fromkeys(tuple(dict.fromkeys(index[m.footprint(image)] for m in grid)) for grid in grids))
    return Cover(tiling, image, threat, mask, fold, masks, copies, numbered if complete else (), align, **more)


def custom_cover(image: Size | int, patch: Patch | Size | int, masks: Sequence[Mask], fold: Size | int = 1) -> Cover:
    """Every place of the patch lies inside as many of your own masks as ``fold`` says; an error if one does not.

    image: the size of the model's input, (height, width) or the side of a square
    patch: what the attacker may put on it; a number stands for a square
    masks: rectangles of any sizes, which may stick out of the image; one that is listed twice counts twice
    fold: the k that is claimed, as a product of two numbers
    """
    image, patch, masks = checked_size(image, "image"), checked_patch(patch), checked_masks(masks)
    size = max(m.height for m in masks), max(m.width for m in masks)
    return build("custom", image, patch, size, checked_size(fold, "fold"), [masks], complete=True)
