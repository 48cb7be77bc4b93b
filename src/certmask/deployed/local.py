"""Rules on local evidence, by name or as they are, and the cells that they are for."""

from __future__ import annotations

from typing import Any

from certmask.classifier import Classifier
from certmask.errors import CertmaskError
from certmask.evidence import EvidenceRule, Field, LocalClassifier
from certmask.evidence.registry import LOCAL_REGISTER, UNDEFENDED, listed_local
from certmask.threat import checked_patch


def local_rule(option: str, patch: Any, margin: float | None = None) -> EvidenceRule:
    """A rule on local evidence by its name on the command line, against a patch."""
    return listed_local(option).made(checked_patch(patch), margin)


def local_name(rule: EvidenceRule) -> str:
    """What results files call a rule on local evidence: as the command line does."""
    rows = (*LOCAL_REGISTER, UNDEFENDED)
    return next((row.option for row in rows if row.rule is type(rule)), rule.name)


def local_fields(classifier: Classifier) -> tuple[Field, Field]:
    """The fields of a classifier's cells; an error if it has none."""
    if not isinstance(classifier, LocalClassifier):
        raise CertmaskError(f"expected a LocalClassifier for a rule on local evidence, got {classifier}")
    return classifier.fields
