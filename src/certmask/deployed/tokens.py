"""Masks that suit a rule and a network: those of several levels begin where its tokens do."""

from __future__ import annotations

from dataclasses import replace

from certmask.classifier import Classifier
from certmask.covers import Cover, zoom_cover
from certmask.covers.default import Wishes, suited_cover
from certmask.errors import GeometryError
from certmask.rules import Rule
from certmask.rules.registry import REGISTER, option_name, suits
from certmask.threat import Size, Threat


def cover_for(classifier: Classifier, patch: Threat, rule: Rule | str) -> Cover:
    """The masks that suit a rule best, those of levels on the network's tokens."""
    wishes = on_tokens(classifier.size, patch, Wishes(), classifier.grid)
    return suited_cover(classifier.size, patch, wishes, suits(rule))


def on_tokens(image: Size, patch: Threat, wishes: Wishes, grid: int) -> Wishes:
    """The wishes, with masks of levels on a network's tokens of side ``grid``, if nobody asked for another grid.

    Not where tokens are so large that levels fall together, or that a mask hides the whole picture.
    """
    if wishes.align is not None or grid == 1:
        return wishes
    finer = zoom_cover(image, patch, wishes.levels)
    try:
        coarser = zoom_cover(image, patch, wishes.levels, grid)
    except GeometryError:  # no masks of the wanted size begin and end on tokens
        return wishes
    kept = len(_sizes(coarser)) == len(_sizes(finer)) and image not in _sizes(coarser)
    return replace(wishes, align=grid) if kept else wishes


def _sizes(cover: Cover) -> set[Size]:
    return {level.mask for level in cover.levels}


def named(rule: Rule, cover: Cover) -> str:
    """What results files call a rule with this cover: as the command line does."""
    zoom = (row.option for row in REGISTER if cover.levels and row.zooms and row.rule is type(rule))
    return next(zoom, option_name(rule.name))
