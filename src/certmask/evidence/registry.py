"""The register of rules on local evidence: one row each, as that of rules on votes. None is loaded before it is asked
for."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from certmask.certificate import Guarantee
from certmask.errors import CertmaskError, ResultsError

if TYPE_CHECKING:
    from certmask.evidence.rule import EvidenceRule
    from certmask.threat import Patch


@dataclass(frozen=True)
class ListedLocal:
    """A rule as the command line calls it: its class in a file of this room, and its idea."""

    option: str
    file: str
    name: str
    idea: str

    @property
    def rule(self) -> type[EvidenceRule]:
        found: type[EvidenceRule] = getattr(import_module(f"certmask.evidence.{self.file}"), self.name)
        return found

    @property
    def wants(self) -> Mapping[str, inspect.Parameter]:
        """What the rule can be told."""
        return inspect.signature(self.rule).parameters

    def made(self, patch: Patch, margin: float | None = None, **wishes: Any) -> EvidenceRule:
        """The rule against a patch, told what it wants to know of the wishes, and the margin, if it promises something.

        The margin is of sums of local logits.
        """
        known = {key: value for key, value in wishes.items() if key in self.wants}
        if margin is None or self.rule.guarantee is Guarantee.NONE:
            return self.rule(patch, **known)
        return self.rule(patch, **known, margin=margin)


LOCAL_REGISTER = (
    ListedLocal(
        "patchguard",
        "robust_masking",
        "RobustMasking",
        "each class is judged without its strongest window of local evidence (Xiang et al. 2021)",
    ),
    ListedLocal(
        "clipped-bagnet",
        "clipped",
        "ClippedBagNet",
        "local evidence is squashed, so that no cell can say much (Zhang et al. 2020)",
    ),
)
SLOPE_BEFORE = 0.05
"""What earlier files do not say of Clipped BagNet, because there was no choice."""
UNDEFENDED = ListedLocal("undefended", "averaging", "Averaging", "the mean of all local logits")
"""The network alone, beside rules on its local evidence."""


def is_local(option: str) -> bool:
    """Whether the command line calls a rule on local evidence so."""
    return any(row.option == option for row in LOCAL_REGISTER)


def listed_local(option: str) -> ListedLocal:
    """The row of a rule on local evidence, or of none beside them, as the command line calls it."""
    for row in (*LOCAL_REGISTER, UNDEFENDED):
        if row.option == option:
            return row
    names = " or ".join(row.option for row in LOCAL_REGISTER)
    raise CertmaskError(f"expected a rule on local evidence, {names}, got {option!r}")


def evidence_rule_from(description: Mapping[str, Any], patch: Patch) -> EvidenceRule:
    """The rule that ``EvidenceRule.describe`` described: it names the parameters as the rule's constructor does."""
    rows = {row.rule.name: row for row in (*LOCAL_REGISTER, UNDEFENDED)}
    if description["rule"] not in rows:
        raise ResultsError(f"expected a rule among {', '.join(rows)}, got {description['rule']!r}")
    row, told = rows[description["rule"]], {"slope": SLOPE_BEFORE, **description}
    return row.rule(patch, **{key: told[key] for key in row.wants if key != "patch"})
