"""Rules on local evidence: the defences that look at a picture once, piece by piece, without masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from certmask.certificate import Decision, Guarantee
from certmask.defences.protocol import AnyDefence
from certmask.engine import Engine
from certmask.errors import CertmaskError, ResultsError
from certmask.evidence import EvidenceMaps, EvidenceRule, Field
from certmask.evidence.field import field_from
from certmask.evidence.network import LocalClassifier
from certmask.evidence.registry import evidence_rule_from
from certmask.geometry import IntArray
from certmask.passes import BARE, Ask
from certmask.rules.rule import Asking
from certmask.threat import Patch, Size, threat_from
from certmask.votes import BoolArray, VoteStore


@dataclass(frozen=True, eq=False)
class LocalDefence(AnyDefence):
    """A rule on the evidence of cells with these ``fields``; an engine whose cells see other pixels is refused."""

    rule: EvidenceRule
    fields: tuple[Field, Field]
    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.rule, EvidenceRule):
            raise CertmaskError(f"expected a rule on local evidence, such as RobustMasking(32), got {self.rule!r}")
        self.threat.positions(self.image)

    @property
    def threat(self) -> Patch:
        return self.rule.patch

    @property
    def image(self) -> Size:
        return self.fields[0].extent, self.fields[1].extent

    @property
    def guarantee(self) -> Guarantee:
        return self.rule.guarantee

    @property
    def looks(self) -> str:
        rows, columns = self.fields
        return f"{rows.cells}×{columns.cells} cells, each sees {rows.size}×{columns.size} pixels; one pass"

    def deciding(self, engine: Engine, store: VoteStore) -> Asking[list[Decision]]:
        maps = yield from self._maps(engine, store)
        return [Decision(int(label)) for label in self.rule.answers(maps)]

    def certifying(self, engine: Engine, store: VoteStore, labels: IntArray) -> Asking[BoolArray]:
        maps = yield from self._maps(engine, store)
        return self.rule.holds(maps, labels)

    def _maps(self, engine: Engine, store: VoteStore) -> Asking[EvidenceMaps]:
        """The evidence of all pictures, which takes one pass each."""
        logits = yield from local_logits(self.checked(engine), store)
        return self.rule.evidence(logits, self.fields)

    def checked(self, engine: Engine) -> LocalClassifier:
        """The engine's classifier; an error if its cells are not those of the certificate."""
        classifier = engine.classifier
        if not isinstance(classifier, LocalClassifier):
            raise CertmaskError(f"expected a LocalClassifier for {self.rule.name}, got {classifier}")
        for own, other in zip(self.fields, classifier.fields, strict=True):
            if own is not other and own.describe() != other.describe():
                raise CertmaskError(
                    f"expected the cells that {self.name or self.rule.name} was made for, got others from {classifier}"
                )
        return classifier

    def parameters(self) -> dict[str, Any]:
        return {"rule": self.rule.describe(), "fields": [field.describe() for field in self.fields]}


def local_logits(classifier: LocalClassifier, store: VoteStore) -> Asking[Tensor]:
    """The local logits of all pictures, ``[pictures, rows, columns, classes]``, which takes one pass each."""
    everyone = np.arange(store.pictures)
    bare = np.full(store.pictures, BARE)
    yield Ask(everyone, bare)
    rows = store.slots(everyone, bare)
    return classifier.maps(store.probabilities[rows])


def local_defence_from(description: dict[str, Any]) -> LocalDefence:
    """The defence that ``LocalDefence.describe`` described; an error if it cannot be rebuilt."""
    name = description.get("name", "")
    try:
        patch = threat_from(description["threat"])
        if not isinstance(patch, Patch):
            raise ResultsError(f"expected a patch as the threat, got {patch}")
        rows, columns = map(field_from, description["fields"])
        return LocalDefence(evidence_rule_from(description["rule"], patch), (rows, columns), name)
    except ResultsError as error:
        raise ResultsError(f"{error} in defence {name!r}") from None
    except (KeyError, TypeError, ValueError, IndexError, CertmaskError) as error:
        raise ResultsError(f"expected a defence that can be rebuilt, got {name!r} ({error})") from None
