"""Shards of one run put together: the results file that one machine would have written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from certmask.errors import ResultsError
from certmask.results.file import ResultsFile, Row, first_difference, read_results, read_set_aside
from certmask.results.run import check_begun


@dataclass(frozen=True)
class Shard:
    """A results file of ``certify --shard``, checked; photos that were set aside have a reason instead of a row."""

    path: Path
    header: Row
    rows: list[Row]
    set_aside: dict[str, str]

    @property
    def part(self) -> dict[str, int]:
        """Its number, of how many, and the photos of which all are shards."""
        part: dict[str, int] = self.header["data"]["shard"]
        return part

    @property
    def whole_header(self) -> Row:
        """The header of the run that this is a shard of."""
        data = {key: value for key, value in self.header["data"].items() if key != "shard"}
        data |= {key: self.part[key] for key in ("images", "digest")}
        return {key: value for key, value in {**self.header, "data": data}.items() if key != "certmask_results"}


def merge_shards(paths: Sequence[Path], out: Path) -> int:
    """Write all rows of all shards of one run under one header, and return how many they are.

    Refused: a shard that is missing, unfinished or there twice, a photo in two of them, another function, defence or
    data set. ``out`` must be new; it appears with all its rows, or not at all.
    """
    shards = sorted(map(_read_shard, paths), key=lambda shard: shard.part["number"])
    _check_company(shards)
    rows = list(chain.from_iterable(zip_longest(*(shard.rows for shard in shards))))
    if out.suffix == ".gz":
        raise ResultsError(f"expected a results file that is not packed, got {out}")
    if out.exists():
        raise ResultsError(f"expected a new file for the merged run, got one that is there at {out}")
    half = out.with_name(f"{out.name}.half")
    half.unlink(missing_ok=True)
    with ResultsFile(half, shards[0].whole_header) as merged:
        for row in rows:
            if row is not None:
                merged.write(row)
        for name, reason in chain.from_iterable(shard.set_aside.items() for shard in shards):
            merged.set_aside(name, reason)
        check_begun(out, merged.header, merged.rows)
        os.replace(half, out)
    return len(merged.rows)


def _read_shard(path: Path) -> Shard:
    """One file, every row checked, with a row or a reason for each of its photos."""
    header, rows = read_results(path)
    check_begun(path, header, rows)
    if header["kind"] != "certify":
        raise ResultsError(f"expected results of certify --shard, got those of {header['kind']} in {path}")
    _check_part(header["data"].get("shard"), path)
    shard = Shard(path, header, rows, read_set_aside(path))
    found, wanted = len(rows) + len(shard.set_aside), header["data"]["images"]
    if found != wanted:
        raise ResultsError(
            f"expected all {wanted} photos of shard {_told(shard)}, got {found} in {path}: finish it with its command"
        )
    return shard


def _check_part(part: Any, path: Path) -> None:
    keys = ("number", "of", "images")
    if not isinstance(part, dict) or not all(isinstance(part.get(key), int) for key in keys) or "digest" not in part:
        raise ResultsError(f"expected a shard of a run, as certify --shard writes it, got another run in {path}")


def _told(shard: Shard) -> str:
    return f"{shard.part['number']}/{shard.part['of']}"


def _check_company(shards: Sequence[Shard]) -> None:
    """An error unless these are all shards of one run, each once."""
    if not shards:
        raise ResultsError("expected all shards of a run, got none")
    first = shards[0]
    for other in shards[1:]:
        difference = first_difference(first.whole_header, other.whole_header)
        if difference:
            told = difference.replace("the file has", f"{first.path} has")
            raise ResultsError(f"expected shards of one run, got another {told} in {other.path}")
    numbers, of = [shard.part["number"] for shard in shards], first.part["of"]
    if any(shard.part["of"] != of for shard in shards):
        raise ResultsError(f"expected shards of one cut, got {', '.join(map(_told, shards))}")
    twice = next((shard for shard in shards if numbers.count(shard.part["number"]) > 1), None)
    if twice:
        raise ResultsError(f"expected every shard once, got {_told(twice)} twice, in {twice.path}")
    missing = sorted(set(range(1, of + 1)) - set(numbers))
    if missing:
        raise ResultsError(f"expected all {of} shards, got none of {', '.join(f'{n}/{of}' for n in missing[:10])}")
    _check_photos(shards)


def _check_photos(shards: Sequence[Shard]) -> None:
    """An error unless all photos are there, and none is in two shards."""
    seen: dict[str, Shard] = {}
    for shard in shards:
        for name in (*(row["image"] for row in shard.rows), *shard.set_aside):
            if name in seen:
                raise ResultsError(f"expected every photo once, got {name} in {seen[name].path} and {shard.path}")
            seen[name] = shard
    if len(seen) != shards[0].part["images"]:
        raise ResultsError(f"expected all {shards[0].part['images']} photos of the run, got {len(seen)}")
