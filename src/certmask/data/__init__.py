"""Photos and data sets, local files first."""

from certmask.data.dataset import Dataset, Sample
from certmask.data.framing import Framing
from certmask.data.photo import pixel_digest, read_photo, to_array, to_tensor
from certmask.data.sources import CIFAR10, check_source, class_folders, load_dataset

__all__ = [
    "CIFAR10",
    "Dataset",
    "Framing",
    "Sample",
    "check_source",
    "class_folders",
    "load_dataset",
    "pixel_digest",
    "read_photo",
    "to_array",
    "to_tensor",
]
