"""A fingerprint of behaviour: what the certified function says about fixed pictures, bare and masked.

It tells apart what no hash of weights does: another activation, plain attributes, negated logits, a library's switch.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certmask.errors import ResultsError
from certmask.votes import Margin, lead_changes


@dataclass(frozen=True, eq=False)
class Evidence:
    """What cells said about the fixed pictures: a hash of all their numbers, and signed sums ``[4, sums, classes]``.

    A sum counts some cells and takes away the others; no more is told of them, as a header has little room.
    """

    numbers: str
    sums: Tensor

    @property
    def bytes(self) -> bytes:
        return self.sums.numpy().astype("<f8").tobytes()

    def change(self, other: Evidence) -> float:
        """The most by which a sum differs, which is the least by which differences of sums over cells have moved."""
        if self.sums.shape != other.sums.shape:
            return float("inf")
        return float((self.sums - other.sums).abs().amax())

    def describe(self) -> dict[str, Any]:
        return {"numbers_sha256": self.numbers, "sums": b64encode(self.bytes).decode(), "of": self.sums.shape[1]}


def evidence_of(numbers: Tensor, sums: Tensor) -> Evidence:
    """From all numbers of the passes, and the sums, ``[4, sums, classes]`` in float64."""
    return Evidence(hashlib.sha256(numbers.numpy().astype("<f4").tobytes()).hexdigest(), sums)


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Votes ``[4, classes]`` about two fixed pictures, each bare and with its middle hidden; of cells, their evidence.

    Votes are then softmaxes of means, which say little about cells. Older files have no evidence.
    """

    votes: Tensor
    evidence: Evidence | None = None

    @cached_property
    def name(self) -> str:
        """A hash of the votes and of all evidence, to the last bit."""
        told = b"" if self.evidence is None else self.evidence.numbers.encode() + self.evidence.bytes
        return hashlib.sha256(self._bytes + told).hexdigest()[:16]

    @property
    def _bytes(self) -> bytes:
        return self.votes.numpy().astype("<f4").tobytes()

    def changes(self, other: Fingerprint) -> Margin:
        """The most by which a lead differs between the two; infinite where they have other classes."""
        if self.votes.shape != other.votes.shape:
            return Margin(float("inf"), float("inf"), float("inf"))
        found = lead_changes(self.votes, other.votes)
        if self.evidence is None or other.evidence is None:
            return found
        return found._replace(evidence=max(found.evidence, self.evidence.change(other.evidence)))

    def describe(self) -> dict[str, Any]:
        """As a results file or a certificate carries it: votes as float32, sums as float64, packed as base64."""
        told = {"name": self.name, "classes": self.votes.shape[1], "votes": b64encode(self._bytes).decode()}
        return told if self.evidence is None else {**told, "evidence": self.evidence.describe()}


def fingerprint_from(described: Any) -> Fingerprint:
    """The fingerprint that ``Fingerprint.describe`` described; an error if it was changed since."""
    try:
        numbers = np.frombuffer(b64decode(described["votes"], validate=True), dtype="<f4")
        votes = torch.from_numpy(numbers.astype(np.float32)).view(-1, described["classes"])
        found = Fingerprint(votes, _evidence_from(described["evidence"], votes) if "evidence" in described else None)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ResultsError(f"expected a fingerprint of behaviour, got one that cannot be read ({error})") from None
    if found.name != described.get("name"):
        raise ResultsError(f"expected the fingerprint {described.get('name')}, got votes that are {found.name}")
    return found


def _evidence_from(described: Any, votes: Tensor) -> Evidence:
    numbers = np.frombuffer(b64decode(described["sums"], validate=True), dtype="<f8")
    sums = torch.from_numpy(numbers.astype(np.float64)).view(len(votes), described["of"], votes.shape[1])
    return Evidence(str(described["numbers_sha256"]), sums)
