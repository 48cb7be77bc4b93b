"""Covers with rules: the defences that look through masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from certmask.certificate import Decision, Guarantee
from certmask.covers import Cover, cover_from
from certmask.defences.protocol import AnyDefence
from certmask.engine import Engine
from certmask.errors import CertmaskError, ResultsError
from certmask.geometry import IntArray
from certmask.rules import Rule
from certmask.rules.registry import as_described_now, rule_from
from certmask.rules.rule import Asking, Proofs
from certmask.threat import Size, Threat
from certmask.votes import BoolArray, VoteStore


@dataclass(frozen=True)
class MaskedDefence(AnyDefence):
    """A cover and a rule; an error if the rule's proof does not work with the cover."""

    cover: Cover
    rule: Rule
    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.cover, Cover):
            raise CertmaskError(
                f"expected a cover, such as default_cover(224, Patch(32, 32)), got {type(self.cover).__name__}"
            )
        if not isinstance(self.rule, Rule):
            raise CertmaskError(f"expected a rule, such as JuryRecovery(), got {self.rule!r}")
        self.rule.check(self.cover)

    @property
    def threat(self) -> Threat:
        return self.cover.threat

    @property
    def image(self) -> Size:
        return self.cover.image

    @property
    def guarantee(self) -> Guarantee:
        return self.rule.guarantee

    @property
    def covers(self) -> Sequence[Cover]:
        return (self.cover,)

    @property
    def looks(self) -> str:
        return str(self.cover)

    @property
    def most_passes(self) -> int:
        return 1 + self.rule.most_passes(self.cover)

    def deciding(self, engine: Engine, store: VoteStore) -> Asking[list[Decision]]:
        return self.rule.deciding(engine.votes(self.cover, store))

    def certifying(self, engine: Engine, store: VoteStore, labels: IntArray) -> Asking[BoolArray]:
        return self.rule.certifying(engine.votes(self.cover, store), labels)

    def proving(self, engine: Engine, store: VoteStore, labels: IntArray) -> Asking[Proofs]:
        return self.rule.proving(engine.votes(self.cover, store), labels)

    def parameters(self) -> dict[str, Any]:
        return {"rule": self.rule.describe(), "cover": self.cover.describe()}


def masked_defence_from(description: dict[str, Any]) -> MaskedDefence:
    """The defence that ``MaskedDefence.describe`` described; an error if it cannot be rebuilt to the last mask."""
    name = description.get("name", "")
    try:
        defence = MaskedDefence(cover_from(description["cover"]), rule_from(description["rule"]), name)
    except ResultsError as error:
        raise ResultsError(f"{error} in defence {name!r}") from None
    except (KeyError, TypeError, CertmaskError) as error:
        raise ResultsError(f"expected a defence that can be rebuilt, got {name!r} ({error})") from None
    said, rebuilt = as_described_now(description["rule"]), defence.rule.describe()
    for key in {**said, **rebuilt}:
        if said.get(key) != rebuilt.get(key):
            raise ResultsError(
                f"expected the rule of defence {name!r} with {key} {said.get(key)!r}, "
                f"got {rebuilt.get(key)!r} when it was rebuilt"
            )
    return defence
