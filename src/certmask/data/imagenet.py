"""ImageNet's classes by name and by WordNet id, from the lists inside the package timm; timm itself is not imported."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

from certmask.errors import DataError


def imagenet_names() -> list[str]:
    """English names of the 1,000 ImageNet classes, in order."""
    lemmas = dict(line.split("\t") for line in _lines("imagenet_synset_to_lemma.txt"))
    return [lemmas[synset].split(",")[0] for synset in imagenet_synsets()]


def imagenet_synsets() -> list[str]:
    """WordNet ids (n01440764 …) of the 1,000 ImageNet classes, in order."""
    return list(_lines("imagenet_synsets.txt"))


@cache
def _lines(name: str) -> tuple[str, ...]:
    found = importlib.util.find_spec("timm")
    folders = [Path(place) / "data" / "_info" for place in (found.submodule_search_locations or ())] if found else []
    for folder in folders:
        if (folder / name).is_file():
            return tuple((folder / name).read_text(encoding="utf-8").splitlines())
    raise DataError(f"expected the package timm with its list {name}, got none")
