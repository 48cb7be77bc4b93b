"""Defences as results files describe them, ready to be used again."""

from __future__ import annotations

from typing import Any

from certmask.defences.local import LocalDefence, local_defence_from
from certmask.defences.masked import MaskedDefence, masked_defence_from

RuledDefence = MaskedDefence | LocalDefence
"""A defence of one rule, on the votes of masked views or on local evidence."""


def defence_from(description: dict[str, Any]) -> RuledDefence:
    """The defence that ``AnyDefence.describe`` described; an error if it cannot be rebuilt to the last pixel."""
    return local_defence_from(description) if "fields" in description else masked_defence_from(description)
