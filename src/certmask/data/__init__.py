"""Photos and data sets, local files first."""

from certmask.data.dataset import Dataset, Sample, load_dataset
from certmask.data.photo import prepare, read_photo, to_tensor

__all__ = ["Dataset", "Sample", "load_dataset", "prepare", "read_photo", "to_tensor"]
