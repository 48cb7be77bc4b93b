"""Photos and data sets, local files first.

Names are imported when first used, so that the command line can list the data sources without loading numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from certmask.data.dataset import Dataset as Dataset
    from certmask.data.dataset import Sample as Sample
    from certmask.data.framing import Framing as Framing
    from certmask.data.labels import CIFAR10 as CIFAR10
    from certmask.data.photo import pixel_digest as pixel_digest
    from certmask.data.photo import read_photo as read_photo
    from certmask.data.photo import to_array as to_array
    from certmask.data.photo import to_tensor as to_tensor
    from certmask.data.sources import check_source as check_source
    from certmask.data.sources import class_folders as class_folders
    from certmask.data.sources import load_dataset as load_dataset
    from certmask.data.tensors import Pictures as Pictures
    from certmask.data.tensors import from_torch as from_torch
    from certmask.data.tensors import in_memory as in_memory
    from certmask.data.tensors import pictures as pictures

_FILE_OF = {
    "CIFAR10": "labels",
    "Dataset": "dataset",
    "Framing": "framing",
    "Pictures": "tensors",
    "Sample": "dataset",
    "check_source": "sources",
    "class_folders": "sources",
    "from_torch": "tensors",
    "in_memory": "tensors",
    "load_dataset": "sources",
    "pictures": "tensors",
    "pixel_digest": "photo",
    "read_photo": "photo",
    "to_array": "photo",
    "to_tensor": "photo",
}
__all__ = sorted(_FILE_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _FILE_OF:
        raise AttributeError(f"module 'certmask.data' has no attribute {name!r}")
    return getattr(import_module(f"certmask.data.{_FILE_OF[name]}"), name)
