"""Occlusion training: Cutout, greedy Cutout, the paper's schedule."""

from certmask.training.photos import Photos, PhotosInMemory, PhotoStream, read_photos
from certmask.training.recipe import CUTOUTS, Recipe, paper_rate
from certmask.training.trainer import Trainer

__all__ = ["CUTOUTS", "PhotoStream", "Photos", "PhotosInMemory", "Recipe", "Trainer", "paper_rate", "read_photos"]
