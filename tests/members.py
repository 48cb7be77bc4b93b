"""One table of members: how every rule, tiling and data source is tried.

Registers say who is a member; this table says with what. A member without an entry makes the tests fail, and what all
of a kind must pass is driven by the lists below. Aggregates, attacks, backends and experiments need no entry: their
registers say all that the tests have to know.
"""

from __future__ import annotations

import inspect
import pickle
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from certmask.certificate import Guarantee
from certmask.covers import TILINGS, Cover, band_cover
from certmask.errors import CertmaskError
from certmask.rules import (
    AGGREGATES,
    RULES,
    BandMasking,
    JuryDetection,
    JuryHiCert,
    JuryRecovery,
    MeanProbability,
    Rule,
    Smoothing,
)
from certmask.rules.tournament import LAST_RESORTS
from certmask.threat import Patch, Size

# ------------------------------------------------------------------------------------------------------- rules

VALUES: dict[str, list[Any]] = {
    "pairs": ["all", "aligned"],
    "aggregate": [aggregate() for aggregate in AGGREGATES.values()],
    "challenger": [False, True],
    "threshold": [0.0, 0.5],
    "theta": [None, 0.5],
    "exact": [True, False],
    "share": [0.0, 0.1],
    "thresholds": [0.5],
    "claim_thresholds": [0.5],
    "pooled": [False],
    "last_resort": list(LAST_RESORTS),
}
"""What each parameter of a rule is tried with; the margin is a matter of its own."""

OWN_VALUES: dict[str, dict[str, list[Any]]] = {"hicert": {"threshold": [0.0, 0.75]}}
"""What a rule is tried with instead: palettes have votes below three quarters, and none below one half."""

ON_LEVELS: dict[str, list[Any]] = {
    **VALUES,
    "pairs": ["aligned"],
    "thresholds": [0.0, 0.5, 1.5],
    "pooled": [False, True],
}
"""What rules are tried with on covers of several levels: a threshold that is exceeded by any lead, one that palettes
reach exactly, and one beyond reach."""

PROVED = (Guarantee.DETECTION, Guarantee.RECOVERY)
"""What a theorem stands behind."""


def variants(rule: type[Rule], tried: Mapping[str, list[Any]] = VALUES) -> Iterator[Rule]:
    """Every combination of a rule's parameters; the margin stays 0."""
    names = [name for name in inspect.signature(rule).parameters if name != "margin"]
    tried = {**tried, **OWN_VALUES.get(rule.name, {})}
    for values in product(*(tried[name] for name in names)):
        yield rule(**dict(zip(names, values, strict=True)))


EVERY_RULE = [rule for kind in RULES.values() for rule in variants(kind)]
PROVED_RULES = [rule for rule in EVERY_RULE if rule.guarantee in PROVED]
RECOVERING = [rule for rule in PROVED_RULES if rule.guarantee is Guarantee.RECOVERY]
DETECTING = [rule for rule in PROVED_RULES if rule.guarantee is Guarantee.DETECTION]
ALIGNED = [rule for rule in PROVED_RULES if getattr(rule, "pairs", "all") == "aligned"]
"""Those that ask for pairs within a grid, and so for covers that are made of complete grids."""
COUNTING = [rule for rule in PROVED_RULES if isinstance(rule, (Smoothing, BandMasking))]
"""Those that add up views, and so ask for covers that hide every place more often than not."""
ON_ANY_COVER = [rule for rule in PROVED_RULES if rule not in ALIGNED and rule not in COUNTING]
ZOOMING = [rule for kind in (JuryRecovery, JuryDetection, JuryHiCert) for rule in variants(kind, ON_LEVELS)]
"""Those that judge level by level."""


def told_apart(rules: Sequence[Rule]) -> list[Rule]:
    """Fewer, for what takes long: a last resort does not know aggregates, so one of them tries the majority."""
    return [
        rule
        for rule in rules
        if getattr(rule, "last_resort", "") != "majority"
        or isinstance(getattr(rule, "aggregate", None), (MeanProbability, type(None)))
    ]


# ----------------------------------------------------------------------------------------------------- tilings

TILED: dict[str, tuple[Mapping[str, Any], ...]] = {
    "minimal": ({"mask": (10, 14)}, {"mask": 14, "fold": (1, 2)}),
    "spread": ({"mask": (10, 14)}, {"mask": 14, "fold": 2}),
    "replicated": ({"mask": (12, 10), "fold": (1, 2)},),
    "offset": ({"mask": 14, "fold": (1, 2)}, {"mask": 12}),
    "patchcleanser": ({"per_axis": 3}, {"mask": 14}, {"mask": 14, "align": 4}),
    "zoom": ({"levels": (2, 3)}, {"levels": (2, (3, 2)), "align": 2}),
    "bands": ({"band": 3, "stride": 4}, {"band": 3, "stride": 5}),
    "blocks": ({"band": 4, "stride": 8},),
}
"""What each tiling is asked for on an image of 24×24 against a patch of 5×4."""

IMAGE, PATCH = (24, 24), Patch(5, 4)
EVERY_COVER: list[Cover] = [
    tiling(IMAGE, PATCH, **options) for name, tiling in TILINGS.items() for options in TILED[name]
]


def fits(rule: Rule, cover: Cover) -> bool:
    """Whether a rule's proof works with a cover."""
    try:
        rule.check(cover)
    except CertmaskError:
        return False
    return True


def suited(rule: Rule, cover: Cover) -> Cover:
    """The cover, or bands of the same picture where a rule counts views."""
    return cover if fits(rule, cover) else band_cover(cover.image, cover.patch, 3, 4)


EVERY_DEFENCE = [(cover, rule) for cover in EVERY_COVER for rule in EVERY_RULE if fits(rule, cover)]
"""Covers with rules that take them."""

# ----------------------------------------------------------------------------------------------------- sources


def save_photo(path: Path, label: int, size: Size = (32, 32)) -> None:
    """Noise, another one for each label."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(label).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def write_folders(folder: Path) -> str:
    for label, name in enumerate(("cat", "dog")):
        save_photo(folder / "photos" / name / "a.png", label)
    return str(folder / "photos")


def write_tar(folder: Path) -> str:
    with tarfile.open(folder / "photos.tar", "w") as archive:
        archive.add(write_folders(folder), "inside")
    return f"{folder / 'photos.tar'}:inside"


def write_csv(folder: Path) -> str:
    write_folders(folder)
    (folder / "list.csv").write_text("file,label\nphotos/cat/a.png,0\nphotos/dog/a.png,1\n")
    return str(folder / "list.csv")


def write_shards(folder: Path) -> str:
    photos = Path(write_folders(folder))
    for number, photo in enumerate(sorted(photos.glob("*/*.png"))):
        with tarfile.open(folder / f"shard-{number}.tar", "w") as archive:
            archive.add(photo, str(photo.relative_to(photos)))
    return str(folder / "shard-*.tar")


def write_parquet(folder: Path) -> str:
    from pyarrow import parquet, table

    photos = sorted(Path(write_folders(folder)).glob("*/*.png"))
    parquet.write_table(
        table({"image": [photo.read_bytes() for photo in photos], "label": [0, 1]}), folder / "two.parquet"
    )
    return str(folder / "two.parquet")


def write_cifar10(folder: Path) -> str:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3072), dtype=np.uint8)
    for name in ("test_batch", *(f"data_batch_{number}" for number in range(1, 6))):
        (folder / name).write_bytes(pickle.dumps({b"data": pixels, b"labels": [0, 1]}, protocol=2))
    return str(folder)


WRITTEN: dict[str, Callable[[Path], str]] = {
    "folders": write_folders,
    "tar": write_tar,
    "csv_file": write_csv,
    "remote": lambda folder: f"file://{write_folders(folder)}",
    "shards": write_shards,
    "parquet": write_parquet,
    "cifar10": write_cifar10,
    "demo": lambda _: "demo-cifar10",
}
"""How photos of each form come into a folder, at least two of different classes, and the string that names them."""
