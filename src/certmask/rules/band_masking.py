"""PatchGuard on the votes of bands, PG-DS (Xiang et al. 2021): each class is judged without its strongest bands."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import floor
from typing import Any

import numpy as np
import torch

from certmask.certificate import NO_CLASS, Decision, Guarantee
from certmask.covers import Cover
from certmask.errors import CoverError
from certmask.evidence import EvidenceMaps, Field, RobustMasking
from certmask.evidence.maps import AT_ONCE, ONE
from certmask.geometry import IntArray
from certmask.rules.rule import Asking, Rule
from certmask.rules.smoothing import hidden_by
from certmask.votes import BoolArray, Votes

BANDS = "bands"


class BandMasking(Rule):
    """Answer the class with the most evidence, the probabilities that bands give it, without its strongest window.

    A window is a run of as many bands as a patch can touch; it is left out if it holds more than the ``share`` of the
    class's evidence, with 0 always. A silent band says nothing. The smallest class wins a tie.
    Certificate: that of robust masking for every place, and some band that a patch there does not touch has spoken.
    """

    name = "patchguard smoothing"
    guarantee = Guarantee.RECOVERY

    def __init__(self, share: float = 0.0, margin: float = 0.0) -> None:
        super().__init__(margin)
        self.share = float(RobustMasking(1, share).threshold)

    def check(self, cover: Cover) -> None:
        super().check(cover)
        if cover.tiling != BANDS:
            raise CoverError(
                f"expected a cover of bands, such as band_cover, got {cover}: windows are runs of bands here, and "
                "blocks would need windows in two dimensions"
            )
        touched = int((~hidden_by(cover)).sum(axis=1).max())
        if len(cover) <= 2 * touched:
            raise CoverError(
                f"expected more than {2 * touched} bands, as a patch touches {touched} and as many are masked, got "
                f"{len(cover)}: nothing could be certified"
            )

    def provable(self, cover: Cover) -> bool:
        """Whether votes that are all sure of one class prove it, with this margin: no others lead by more."""
        masking = self.masking(cover)
        sure = torch.tensor([1.0, 0.0]).expand(1, 1, len(cover), 2)
        return bool(masking.holds(masking.evidence(sure, fields_of(cover)), np.zeros(1, dtype=np.int64))[0])

    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        yield votes.ask(votes.ballot.singles[None])
        masking, found = self.masking(votes.cover), list[Decision]()
        for _, maps in _portions(votes, masking):
            heard = _spoken(maps).any(axis=1)
            labels = np.where(heard, masking.answers(maps), NO_CLASS)
            found += [Decision(int(label), alert=bool(label == NO_CLASS)) for label in labels]
        return found

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        yield votes.ask(votes.ballot.singles[None])
        masking, hidden = self.masking(votes.cover), hidden_by(votes.cover).astype(np.float64)
        found = np.zeros(len(labels), dtype=bool)
        for part, maps in _portions(votes, masking):
            heard = (_spoken(maps) @ hidden.T > 0).all(axis=1)
            found[part] = heard & masking.holds(maps, labels[part])
        return found

    def masking(self, cover: Cover) -> RobustMasking:
        """Robust masking on a cover's bands, with the margin of a difference of two sums over untouched bands.

        A margin of votes is twice what one number moves by (``lead_changes``), and numbers move by whole units. So of
        ``n`` bands that no patch touches, two sums move by at most ``n`` times that much each.
        """
        untouched = int(hidden_by(cover).sum(axis=1).max())
        units = floor(self.margin / 2 * ONE)
        return RobustMasking(cover.patch, self.share, 2 * untouched * units / ONE)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "share": self.share}


@lru_cache(maxsize=8)
def fields_of(cover: Cover) -> tuple[Field, Field]:
    """What the bands see: one row of cells; of the columns, those that their masks leave."""
    sees = np.ones((len(cover), cover.image[1]), dtype=bool)
    for band, mask in enumerate(cover.masks):
        for left, right in mask.columns(cover.image):
            sees[band, left:right] = False
    columns = Field(cover.image[1] - cover.mask[1], cover.align, 0, sees, wraps=True)
    return Field.regular(cover.image[0], cover.image[0], 1, 0, 1), columns


def _portions(votes: Votes, masking: RobustMasking) -> Iterator[tuple[slice, EvidenceMaps]]:
    """What the bands say, some pictures at a time."""
    rows, fields = votes.rows(votes.ballot.singles[None]), fields_of(votes.cover)
    step = max(AT_ONCE // (rows.shape[1] * votes.outputs.shape[1]), 1)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        yield part, masking.evidence(votes.outputs[votes.sent(rows[part])][:, None], fields)


def _spoken(maps: EvidenceMaps) -> BoolArray:
    """Which bands are not silent, ``[pictures, bands]``."""
    return np.asarray((maps.values.amax(dim=3)[:, 0] > 0).cpu().numpy())
