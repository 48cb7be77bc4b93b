"""What an attacker reaches and wants: juries of corners, a goal per way to beat a rule, views to descend through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from certmask.attacks.levels import levels_of, one_grid_at_a_time, settling_logits
from certmask.covers import Cover
from certmask.defences import LocalDefence, MaskedDefence, RuledDefence
from certmask.geometry import Districts, IntArray, find_districts
from certmask.geometry.shapes import Span
from certmask.threat import Patch

Bits = npt.NDArray[np.bool_]
BARE_VIEW = -1
LEAKS = 2
"""Where masks leak, one view in so many is theirs."""
HIDDEN, TURN, KEEP, DOUBT = 0, 1, 2, 3
Wishes = npt.NDArray[np.int8]
"""One of HIDDEN (out of reach, or left alone), TURN (to the target), KEEP (on the true class) or DOUBT (no class leads
by so much that the level settles anything) per mask."""


class Juries:
    """Looks up juries of single corners; a mask's pixels are its rows times its columns, so two axes are enough.

    ``patch`` is what the attacker puts there, within what the cover is against: if that is a patch, by default the
    same.
    """

    def __init__(self, cover: Cover, patch: Patch | None = None) -> None:
        self.cover, self.patch = cover, patch or cover.patch
        image = cover.image
        self._rows = _prefix_sums([m.rows(image) for m in cover.masks], image[0])
        self._columns = _prefix_sums([m.columns(image) for m in cover.masks], image[1])
        self.coarse: Bits = levels_of(cover) < len(cover.levels) - 1
        """Which masks belong to a level that leaves what it does not settle to a finer one, ``[masks]``."""

    def hidden(self, corners: IntArray) -> IntArray:
        """How many pixels of a patch at each corner ``[…, 2]`` each mask hides, ``[…, masks]``."""
        height, width = self.patch.size
        rows = self._rows[:, corners[..., 0] + height] - self._rows[:, corners[..., 0]]
        columns = self._columns[:, corners[..., 1] + width] - self._columns[:, corners[..., 1]]
        return np.moveaxis(rows * columns, 0, -1)

    def members(self, corners: IntArray) -> Bits:
        """Which masks cover a patch at each corner, ``[…, masks]``: those that a patch there cannot influence."""
        height, width = self.patch.size
        return np.asarray(self.hidden(corners) == height * width)

    def folds(self, corners: IntArray) -> IntArray:
        """How many placed masks cover each corner, ``[…]``."""
        return np.asarray(self.members(corners) @ np.array(self.cover.copies))

    @cached_property
    def districts(self) -> Districts:
        """Locations of the patch that the same masks cover."""
        own = self.patch.single
        return self.cover.districts if self.cover.patches == (own,) else _districts(self.cover, own)


@lru_cache(maxsize=64)
def _districts(cover: Cover, patch: Patch) -> Districts:
    return find_districts(cover.image, patch, cover.masks)


def _prefix_sums(runs: Sequence[Sequence[Span]], length: int) -> npt.NDArray[Any]:
    """Per mask, the number of its pixels before each position of one axis, ``[masks, length + 1]``."""
    marks = np.zeros((len(runs), length + 1), dtype=np.int64)
    for row, pieces in zip(marks, runs, strict=True):
        for low, high in pieces:
            row[low + 1 : high + 1] = 1
    return np.cumsum(marks, axis=1)


@dataclass(frozen=True)
class Places:
    """Corners ``[n, 2]`` of patches, which masks cover a patch there, and which of those let it through all the same.

    ``leaking`` ``[n, masks]`` is what the deployed engine's pictures show; by the geometry it is false everywhere.
    Of several patches on each picture, corners are ``[n, count, 2]`` and ``leaking`` is ``[n, count, masks]``.
    """

    juries: Juries
    corners: IntArray
    leaking: Bits

    def chosen(self, rows: Bits) -> Places:
        """Some of them, ``rows [n]``."""
        return Places(self.juries, self.corners[rows], self.leaking[rows])

    @property
    def covered(self) -> Bits:
        """Which masks keep each patch out of sight, ``[n, count, masks]``."""
        covered = self.juries.members(self.corners) & ~self.leaking
        return covered.reshape(len(covered), -1, covered.shape[-1])

    @property
    def hidden(self) -> Bits:
        """Which masks keep all patches out of sight alone, ``[n, masks]``."""
        return np.asarray(self.covered.all(axis=1))

    @property
    def leaks(self) -> Bits:
        """Which masks let some of a patch through that they should hide, ``[n, masks]``."""
        return np.asarray(self.leaking.reshape(len(self.leaking), -1, self.leaking.shape[-1]).any(axis=1))

    @property
    def pixels(self) -> IntArray:
        """How many of the patches' pixels each mask hides, ``[n, masks]``."""
        hidden = self.juries.hidden(self.corners)
        return np.asarray(hidden.reshape(len(hidden), -1, hidden.shape[-1]).sum(axis=1))


Wish = Callable[[Places, np.random.Generator], Wishes]
"""What is wanted of each mask's vote when the patch is at each of the places: ``[n, masks]``."""


@dataclass(frozen=True)
class Goal:
    """A way to beat a rule: which votes to turn, whether through pairs of masks too, and by how much.

    ``bare`` looks at the picture without masks and at nothing else, ``unmasked`` at that, too. A ``narrow`` goal is
    content with a small lead, beyond the threshold of a vote's level, so that all effort goes to the votes that still
    resist.
    """

    name: str
    wish: Wish
    bare: bool = False
    pairs: bool = False
    narrow: bool = False
    unmasked: bool = False


def turn_all(places: Places, _chance: np.random.Generator) -> Wishes:
    """Turn every vote within reach, those of a leaking jury too."""
    return np.where(places.hidden, HIDDEN, TURN).astype(np.int8)


def spare_one(places: Places, chance: np.random.Generator) -> Wishes:
    """Turn all but the vote of the mask that hides most of the patch: it is the hardest to turn."""
    wishes = turn_all(places, chance)
    spared = np.where(wishes == TURN, places.pixels, -1).argmax(axis=1)
    rows = np.flatnonzero((wishes == TURN).sum(axis=1) > 1)
    wishes[rows, spared[rows]] = KEEP
    return wishes


def exactly_k(places: Places, chance: np.random.Generator) -> Wishes:
    """Turn masks that lie together and have k votes, or as many as add up to less; keep the others."""
    cover, covered = places.juries.cover, places.hidden
    wishes = np.where(covered, HIDDEN, KEEP).astype(np.int8)
    starts = np.array([(mask.top, mask.left) for mask in cover.masks])
    for row, reachable in zip(wishes, map(np.flatnonzero, ~covered), strict=True):
        first = starts[chance.choice(reachable)] if len(reachable) else starts[0]
        votes = 0
        for mask in reachable[np.argsort(np.abs(starts[reachable] - first).sum(axis=1), kind="stable")]:
            if votes + cover.copies[mask] <= cover.k:
                votes += cover.copies[mask]
                row[mask] = TURN
    return wishes


def turn_coarse(places: Places, chance: np.random.Generator) -> Wishes:
    """Turn what is looked at first, so that it settles its questions; leave the finest level alone but for leaks."""
    wishes = turn_all(places, chance)
    wishes[~places.juries.coarse[None] & ~places.leaks] = HIDDEN
    return wishes


def doubt_coarse(places: Places, chance: np.random.Generator) -> Wishes:
    """Let coarser levels settle nothing, and turn the votes of the finest one, which then decide."""
    wishes = turn_all(places, chance)
    wishes[(wishes == TURN) & places.juries.coarse[None] & ~places.leaks] = DOUBT
    return wishes


BARE_PICTURE = Goal("plain", turn_all, bare=True)
TURN_ALL = Goal("turn all", turn_all)
TURN_NARROWLY = Goal("turn all narrowly", turn_all, narrow=True)
WIN_DUELS = Goal("win the duels", turn_all, pairs=True)
SPARE_ONE = Goal("spare one", spare_one)
EXACTLY_K = Goal("exactly k", exactly_k)
SETTLE = Goal("settle coarsely", turn_coarse, narrow=True)
DOUBT_FIRST = Goal("doubt, then turn", doubt_coarse)
SETTLE_DUELS = replace(SETTLE, name="settle duels coarsely", pairs=True)
DOUBT_DUELS = replace(DOUBT_FIRST, name="doubt, then win the duels", pairs=True)
LAST_RESORT = Goal("win the last resort", turn_all, pairs=True, unmasked=True)

EVIDENCE = Goal("turn the evidence", turn_all, bare=True)
EVIDENCE_NARROWLY = replace(EVIDENCE, name="turn the evidence narrowly", narrow=True)

EVERY_WAY = (TURN_ALL, WIN_DUELS, TURN_NARROWLY, SPARE_ONE, EXACTLY_K)
"""All goals that look through masks."""

GOALS: dict[str, tuple[Goal, ...]] = {
    "undefended": (BARE_PICTURE,),
    "published": (SPARE_ONE, SPARE_ONE, SPARE_ONE, EXACTLY_K),
    "jury detection": (TURN_ALL, TURN_NARROWLY),
    "pair detection": (TURN_ALL, TURN_NARROWLY),
    "minority reports": (TURN_ALL, TURN_NARROWLY),
    "hicert": (TURN_ALL, TURN_NARROWLY),
    "jury hicert": (TURN_ALL, TURN_NARROWLY),
    "smoothing": (TURN_ALL, TURN_NARROWLY),
    "patchguard smoothing": (TURN_ALL, TURN_NARROWLY),
    "jury recovery": (WIN_DUELS, TURN_ALL),
    "patchcleanser": (WIN_DUELS, TURN_ALL),
}

LEVEL_GOALS: dict[str, tuple[Goal, ...]] = {
    "jury detection": (SETTLE, DOUBT_FIRST),
    "pair detection": (SETTLE, DOUBT_FIRST),
    "jury hicert": (SETTLE, DOUBT_FIRST),
    "jury recovery": (SETTLE_DUELS, DOUBT_DUELS),
}
"""What else there is against a rule that judges by levels: votes pushed across thresholds, in either direction."""


def goals_against(defence: RuledDefence) -> tuple[Goal, ...]:
    """The goals for a rule, the most promising first; a rule that nobody thought of is attacked in every way."""
    if isinstance(defence, LocalDefence):
        return EVIDENCE, EVIDENCE_NARROWLY
    levelled = LEVEL_GOALS.get(defence.rule.name, ()) if len(defence.cover.levels) > 1 else ()
    return (*GOALS.get(defence.rule.name, EVERY_WAY), *levelled)


class Drawn(NamedTuple):
    """Some views: sets of the surrogate's mask numbers ``[n, views, 2]`` (twice as many as patches), what is wanted of
    each, ``[n, views]``, and by how many logits a class must lead there to settle anything, ``[n, views]``."""

    sets: Tensor
    wanted: Tensor
    bars: Tensor


@dataclass(frozen=True)
class Views:
    """For each attempt, what is wanted of each mask's vote; ``draw`` picks some masks, and pairs where ``paired``.

    Masks that hide the patch are never drawn: no step through them changes anything. Masks that should hide it and leak
    have a share of the views in every draw. ``wishes`` and ``leaking`` are ``[n, masks]``, ``numbers`` ``[masks]`` says
    how the surrogate calls each mask, ``together`` ``[masks, masks]`` which two the rule combines, ``shares``
    ``[masks]`` how often each is drawn, ``bars`` ``[2, masks]`` how many logits settle a claim, and a duel.

    ``covered`` ``[n, count, masks]`` says which masks hide each of an attempt's patches. Where there are several, so
    many masks are drawn together, and twice as many in place of pairs; a set that hides all patches is passed over.
    """

    wishes: Tensor
    leaking: Tensor
    covered: Tensor
    numbers: Tensor
    together: Tensor
    shares: Tensor
    bars: Tensor
    paired: Tensor
    count: int

    def __len__(self) -> int:
        return len(self.wishes)

    def draw(self, chance: torch.Generator) -> Drawn:
        """Some views of each attempt."""
        keys = self._weights().log() - self._noise(self.wishes.shape, chance)
        first = self._leaks_first(keys.topk(min(self.count, self.wishes.shape[1]), dim=1).indices, chance)
        sets = self._with_partners(first, chance)
        wish = self.wishes.gather(1, sets.flatten(1)).view(sets.shape)
        hidden = (wish == HIDDEN).any(dim=2) | self._out_of_sight(sets)
        different = 1 + (sets.sort(dim=2).values.diff(dim=2) > 0).sum(dim=2)
        duels = different > self.covered.shape[1]
        return Drawn(self.numbers[sets], torch.where(hidden, HIDDEN, wish.amax(dim=2)), self.bars[duels.long(), first])

    def _out_of_sight(self, sets: Tensor) -> Tensor:
        """Which sets ``[n, views, masks]`` hide each of the patches with one of their masks, ``[n, views]``."""
        count = self.covered.shape[1]
        own = self.covered.gather(2, sets.flatten(1)[:, None].expand(-1, count, -1))
        return own.view(len(sets), count, *sets.shape[1:]).any(dim=3).all(dim=1)

    def _leaks_first(self, drawn: Tensor, chance: torch.Generator) -> Tensor:
        """The masks that were drawn ``[n, views]``; where some leak, the first views are given to those."""
        share = drawn[:, : -(-drawn.shape[1] // LEAKS)]
        leaks = self.leaking.any(dim=1, keepdim=True)
        own = torch.multinomial((self.leaking | ~leaks).float(), share.shape[1], True, generator=chance)
        return torch.cat([torch.where(leaks, own, share), drawn[:, share.shape[1] :]], dim=1)

    def _with_partners(self, first: Tensor, chance: torch.Generator) -> Tensor:
        """Each mask with others, ``[n, views, masks]``: as many as there are patches in every view, twice as many in
        every other view of the attempts that look at pairs; what is left of a set is the mask itself."""
        allowed = self.together[first] & ((self.wishes == TURN) | (self.wishes == DOUBT))[:, None, :]
        pairing = self.paired[:, None] & (torch.arange(first.shape[1], device=first.device) % 2 == 1)
        sets, count = [first], self.covered.shape[1]
        for number in range(1, 2 * count):
            keys = torch.where(allowed, torch.rand(allowed.shape, device=first.device, generator=chance), -1.0)
            best = keys.max(dim=2)
            taken = (best.values >= 0) & (pairing | (number < count))
            sets.append(torch.where(taken, best.indices, first))
        return torch.stack(sets, dim=-1)

    def _weights(self) -> Tensor:
        """Masks to turn, to keep and to doubt all get their turn, whichever are fewer."""
        weights = torch.zeros_like(self.wishes, dtype=torch.float32)
        for wish in (TURN, KEEP, DOUBT):
            has = (self.wishes == wish) * self.shares
            weights += has / has.sum(dim=1, keepdim=True).clamp(min=1e-9).sqrt()
        return weights

    @staticmethod
    def _noise(shape: torch.Size, chance: torch.Generator) -> Tensor:
        """With these, the largest keys are a draw without replacement in proportion to the weights."""
        uniform = torch.rand(shape, device=chance.device, generator=chance).clamp(min=1e-12, max=1 - 1e-7)
        return (-uniform.log()).log()


def bare_views(count: int, device: torch.device) -> Views:
    """The picture without masks, for ``count`` attempts."""
    wishes = torch.full((count, 1), TURN, dtype=torch.int8, device=device)
    one = torch.ones(1, device=device)
    alone, nobody = one.bool(), torch.tensor([BARE_VIEW], device=device)
    no, bars = wishes < TURN, torch.zeros(2, 1, device=device)
    return Views(wishes, no, no[:, None], nobody, alone[None], one, bars, alone.expand(count), 1)


def masked_views(
    defence: MaskedDefence,
    places: Places,
    numbers: IntArray,
    wishes: Wishes,
    goals: Sequence[Goal],
    count: int,
    device: torch.device,
) -> Views:
    """``count`` views per attempt and step, masked as the defence masks; every level has the same share of them.

    The picture without masks is one more where an attempt's goal is ``unmasked``.
    """
    cover, unmasked = defence.cover, np.array([goal.unmasked for goal in goals])
    levels, more = levels_of(cover), int(unmasked.any())
    shares = len(cover) / np.bincount(levels)[levels] / (levels.max() + 1)
    bare = np.where(unmasked, TURN, HIDDEN).astype(np.int8)[:, None]
    told = (
        np.concatenate([wishes, bare], axis=1)[:, : len(cover) + more],
        np.pad(places.leaks, ((0, 0), (0, more))),
        np.pad(places.covered, ((0, 0), (0, 0), (0, more))),
        np.pad(numbers, (0, more), constant_values=BARE_VIEW),
        np.pad(_together(cover, one_grid_at_a_time(defence.rule, cover)), (0, more)),
        np.pad(shares, (0, more), constant_values=shares.sum() / count).astype(np.float32),
        np.pad(settling_logits(defence.rule, cover), ((0, 0), (0, more))),
        np.array([goal.pairs for goal in goals]),
    )
    wished, leaking, covered, named, together, drawn, bars, paired = (torch.from_numpy(p).to(device) for p in told)
    return Views(wished, leaking, covered, named, together, drawn, bars, paired, count)


def _together(cover: Cover, aligned: bool) -> Bits:
    together = np.full((len(cover), len(cover)), not aligned)
    for grid in cover.grids if aligned else ():
        together[np.ix_(grid, grid)] = True
    return together
