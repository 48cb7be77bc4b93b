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
class Fingerprint:
    """Votes ``[4, classes]`` about two fixed pictures, each bare and with its middle hidden."""

    votes: Tensor

    @cached_property
    def name(self) -> str:
        """A hash of the votes, to the last bit."""
        return hashlib.sha256(self._bytes).hexdigest()[:16]

    @property
    def _bytes(self) -> bytes:
        return self.votes.numpy().astype("<f4").tobytes()

    def changes(self, other: Fingerprint) -> Margin:
        """The most by which a lead differs between the two; infinite where they have other classes."""
        if self.votes.shape != other.votes.shape:
            return Margin(float("inf"), float("inf"), float("inf"))
        return lead_changes(self.votes, other.votes)

    def describe(self) -> dict[str, Any]:
        """As a results file or a certificate carries it: float32 numbers, packed as base64."""
        return {"name": self.name, "classes": self.votes.shape[1], "votes": b64encode(self._bytes).decode()}


def fingerprint_from(described: Any) -> Fingerprint:
    """The fingerprint that ``Fingerprint.describe`` described; an error if it was changed since."""
    try:
        numbers = np.frombuffer(b64decode(described["votes"], validate=True), dtype="<f4")
        found = Fingerprint(torch.from_numpy(numbers.astype(np.float32)).view(-1, described["classes"]))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ResultsError(f"expected a fingerprint of behaviour, got one that cannot be read ({error})") from None
    if found.name != described.get("name"):
        raise ResultsError(f"expected the fingerprint {described.get('name')}, got votes that are {found.name}")
    return found
