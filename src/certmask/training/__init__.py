"""Occlusion training: Cutout, greedy Cutout, the paper's schedule."""

from certmask.training.recipe import CUTOUTS, Recipe, paper_rate
from certmask.training.trainer import Photos, Trainer

__all__ = ["CUTOUTS", "Photos", "Recipe", "Trainer", "paper_rate"]
