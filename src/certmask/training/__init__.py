"""Training for certificates: Cutout, greedy Cutout, bands, PatchGuard's provable loss, the paper's schedule."""

from certmask.training.course import Exam, train_and_examine
from certmask.training.lessons import Lessons, LessonsInMemory, LessonStream, read_lessons
from certmask.training.loss import check_recipe
from certmask.training.recipe import CUTOUTS, Recipe, paper_rate
from certmask.training.start import starting_point
from certmask.training.teachers import Teachers
from certmask.training.trainer import Trainer

__all__ = [
    "CUTOUTS",
    "Exam",
    "LessonStream",
    "Lessons",
    "LessonsInMemory",
    "Recipe",
    "Teachers",
    "Trainer",
    "check_recipe",
    "paper_rate",
    "read_lessons",
    "starting_point",
    "train_and_examine",
]
