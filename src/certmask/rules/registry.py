"""The register of rules and aggregates: one row each. It drives the command line, its help, the docs and the tests.

No rule is loaded before it is asked for, so that the command line can name them without loading torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from certmask.errors import CertmaskError, ResultsError

if TYPE_CHECKING:
    from certmask.rules.aggregates import Aggregate
    from certmask.rules.rule import Rule
    from certmask.votes import Margin

DEFAULT_PAIRS = "aligned"
"""Which masks a duel combines, where nobody says otherwise: in Python and on the command line."""


@dataclass(frozen=True)
class Listed:
    """A rule as the command line calls it: its class in a file of this room, its idea, and what it is always told.

    ``suits`` is the kind of cover that suits it best: one of several levels, ``zoom``, or ``zoom-once`` where it judges
    hypotheses, but no pairs of them; several masks per place, ``many``; all but a band hidden by each, ``bands``; or a
    ``single`` mask per place.
    """

    option: str
    file: str
    name: str
    idea: str
    told: Mapping[str, Any] = field(default_factory=dict)
    suits: str = "single"

    @property
    def rule(self) -> type[Rule]:
        found: type[Rule] = getattr(import_module(f"certmask.rules.{self.file}"), self.name)
        return found

    @property
    def zooms(self) -> bool:
        """Whether it looks through masks of several levels."""
        return self.suits in ("zoom", "zoom-once")

    @property
    def wants(self) -> frozenset[str]:
        """What the rule can be told, beside what it is told here."""
        return frozenset(inspect.signature(self.rule).parameters) - set(self.told)

    def made(self, margin: Margin | None = None, **wishes: Any) -> Rule:
        """The rule, told what it wants to know of the wishes and nothing else, with the margin in its own unit."""
        known = {**{key: value for key, value in wishes.items() if key in self.wants}, **self.told}
        rule = self.rule(**known)
        return rule if margin is None else self.rule(**known, margin=getattr(margin, rule.unit))


REGISTER = (
    Listed(
        "zoom",
        "jury_recovery",
        "JuryRecovery",
        "every place is judged by large masks, by small ones where those are in doubt; places that disagree duel",
        suits="zoom",
    ),
    Listed(
        "zoom-detection",
        "jury_detection",
        "JuryDetection",
        "answer only if all places agree, judged by large masks, or small ones in doubt; else alert",
        suits="zoom-once",
    ),
    Listed(
        "zoom-hicert",
        "jury_hicert",
        "JuryHiCert",
        "the same, and alert where a place is in doubt under the smallest masks, too (after HiCert, 2025)",
        suits="zoom-once",
    ),
    Listed(
        "pair-detection",
        "pair_detection",
        "PairDetection",
        "answer only if all pairs of places agree, else alert: two patches wherever zoom recovers from one",
        suits="zoom-once",
    ),
    Listed(
        "jury-recovery",
        "jury_recovery",
        "JuryRecovery",
        "every place is judged by all masks that cover it; places that disagree duel, judged by both juries",
        suits="many",
    ),
    Listed("jury-detection", "jury_detection", "JuryDetection", "answer only if all juries agree, else alert"),
    Listed("patchcleanser", "patchcleanser", "PatchCleanser", "double masking (Xiang et al. 2022)"),
    Listed(
        "patchcleanser-challenger",
        "patchcleanser",
        "PatchCleanser",
        "its variant in which masks that disagree duel: fewer passes",
        {"challenger": True},
    ),
    Listed(
        "minority-reports",
        "minority_reports",
        "MinorityReports",
        "alert when a masked view confidently disagrees (McCoyd et al. 2020)",
    ),
    Listed(
        "hicert",
        "hicert",
        "HiCert",
        "alert when a masked view disagrees or is not sure (HiCert, 2025)",
    ),
    Listed(
        "smoothing",
        "smoothing",
        "Smoothing",
        "every band of the picture has a vote, the rest hidden; most votes win (Levine & Feizi 2020)",
        suits="bands",
    ),
    Listed(
        "patchguard-smoothing",
        "band_masking",
        "BandMasking",
        "bands vote with their probabilities, each class without its strongest bands (PG-DS, Xiang et al. 2021)",
        suits="bands",
    ),
    Listed("published", "published", "Published", "unanimity, exactly-k, majority (Lyu et al. 2026)"),
    Listed("undefended", "undefended", "Undefended", "the classifier alone"),
)
AGGREGATE_CLASSES = ("MeanProbability", "MeanLogProbability", "LabelMajority")


def listed(option: str) -> Listed:
    """The row of a rule as the command line calls it."""
    for row in REGISTER:
        if row.option == option:
            return row
    names = [row.option for row in REGISTER]
    raise CertmaskError(f"expected rule to be {', '.join(names[:-1])} or {names[-1]}, got {option!r}")


def rule_of(rule: Rule | str | None, **wishes: Any) -> Rule:
    """The rule itself, or one by its name, told the wishes; None takes the first of the register."""
    from certmask.rules.rule import Rule

    if rule is None or isinstance(rule, str):
        return listed(REGISTER[0].option if rule is None else rule).made(**wishes)
    if not isinstance(rule, Rule):
        got = f"the class {rule.__name__}" if isinstance(rule, type) else repr(rule)
        raise CertmaskError(f"expected a rule, such as JuryRecovery() or 'jury-recovery', got {got}")
    return rule


def suits(rule: Rule | str) -> str:
    """The kind of cover that suits a rule best, ``zoom``, ``many`` or ``single``."""
    if isinstance(rule, str):
        return listed(rule).suits
    return next((row.suits for row in REGISTER if row.rule is type(rule)), "single")


def aggregate_of(aggregate: Aggregate | str | None) -> Aggregate:
    """The aggregate itself, or one by its name; None takes the mean of probabilities."""
    from certmask.rules.aggregates import Aggregate

    if aggregate is None or isinstance(aggregate, str):
        return aggregate_named("mean-probability" if aggregate is None else aggregate)
    if not isinstance(aggregate, Aggregate):
        got = f"the class {aggregate.__name__}" if isinstance(aggregate, type) else repr(aggregate)
        raise CertmaskError(f"expected an aggregate, such as MeanProbability() or 'mean-probability', got {got}")
    return aggregate


def rule_from(description: Mapping[str, Any]) -> Rule:
    """The rule that ``Rule.describe`` described: it names the parameters as the rule's constructor does."""
    from certmask.rules import RULES

    name = description["rule"]
    if name not in RULES:
        raise ResultsError(f"expected a rule among {', '.join(RULES)}, got {name!r}")
    told = as_described_now(description)
    parameters = {key: told[key] for key in inspect.signature(RULES[name]).parameters}
    if "aggregate" in parameters:
        parameters["aggregate"] = aggregate_named(parameters["aggregate"])
    return RULES[name](**parameters)


def as_described_now(description: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says of a rule, with what earlier files do not say because there was no choice."""
    from certmask.rules import RULES

    if description["rule"] not in RULES:
        return dict(description)
    wants = inspect.signature(RULES[description["rule"]]).parameters
    before = {"last_resort": "majority", "thresholds": 0.0, "claim_thresholds": 0.0, "pooled": False}
    return {**{key: value for key, value in before.items() if key in wants}, **description}


def aggregate_named(name: str) -> Aggregate:
    """An aggregate by its name; hyphens stand for spaces."""
    from certmask.rules import AGGREGATES

    by_option = {option_name(own): found for own, found in AGGREGATES.items()}
    if option_name(name) not in by_option:
        raise CertmaskError(f"expected aggregate to be one of {', '.join(by_option)}, got {name!r}")
    return by_option[option_name(name)]()


def option_name(name: str) -> str:
    """How the command line writes a name."""
    return name.replace(" ", "-")
