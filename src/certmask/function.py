"""Is the function that is here the one that was certified? Equal as described, and in behaviour within the margin."""

from __future__ import annotations

from collections.abc import Iterable

from certmask.backends.devices import settings
from certmask.certificate import Guarantee
from certmask.company import rounding_of
from certmask.defences.local import local_defence_from
from certmask.engine import Engine
from certmask.engine.fingerprint import fingerprint_from
from certmask.errors import ResultsError
from certmask.evidence import EvidenceRule
from certmask.results.file import OWN_SOURCE, Row, provenance
from certmask.rules import Rule
from certmask.rules.registry import rule_from

MACHINE = ("name", "device", "architecture_sha256", "files_sha256", "fingerprint")
"""What need not be equal to the letter: how the model is called, how its layers are printed (library versions differ in
that), which files it was read from, the machine, whose rounding the margin absorbs, and the fingerprint, which would
show another architecture."""


def check_function(header: Row, engine: Engine, rules: Iterable[Rule | EvidenceRule], where: str) -> list[str]:
    """Refuse an engine that is not the function that a header says was certified; else what else differs, in words.

    Equal in everything that describes it, and on the fixed pictures no lead differs by more than a rule's margin.
    """
    said, found = header["model"], engine.describe()
    for key in {**said, **found}:
        if key not in MACHINE and said.get(key) != found.get(key):
            raise ResultsError(
                f"expected the function that {where} certified, with {key} {said.get(key)!r}, got {found.get(key)!r}"
            )
    versions, here = header.get("versions", {}), provenance(engine.classifier.packages)
    own = (f"{key} {versions.get(key)}, here {here[key]}" for key in OWN_SOURCE if here[key] != versions.get(key))
    return [*check_behaviour(header, engine, rules, where), *own]


def check_behaviour(header: Row, engine: Engine, rules: Iterable[Rule | EvidenceRule], where: str) -> list[str]:
    """Refuse an engine that answers otherwise about the fixed pictures than the certified one, beyond the margin."""
    said, differences = header["model"].get("fingerprint"), list(_differences(header, engine))
    if said is None:
        return [f"{where} has no fingerprint of behaviour: only weights and settings were compared", *differences]
    before, here = fingerprint_from(said), engine.fingerprint()
    changes = here.changes(before)
    if here.evidence is not None and before.evidence is None:
        differences.append(f"{where} has no sums of local evidence: only its mean was compared")
    for rule in rules:
        bare = rule.guarantee is Guarantee.NONE
        change = changes.probability if bare else getattr(changes, rule.unit)
        allowed = 2 * rounding_of(engine.classifier.precision) if bare else rule.margin
        if not change <= allowed:
            reason = "; ".join(differences) or "something that no hash sees, such as another forward pass"
            raise ResultsError(
                f"expected the function that {where} certified, got one whose leads on fixed pictures differ by "
                f"{change:.2g}, more than the {allowed:.2g} that {rule.name} allows ({reason}): certify again here"
            )
    return differences


def rules_of(header: Row) -> list[Rule | EvidenceRule]:
    """The rules of all defences in a header."""
    return [_rule_of(defence) for defence in header["defences"].values()]


def _rule_of(defence: Row) -> Rule | EvidenceRule:
    if "fields" in defence:
        return local_defence_from({**defence, **defence.get("classes", [{}])[0]}).rule
    return rule_from(defence["rule"])


def continued_header(before: Row, header: Row, engine: Engine, where: str) -> tuple[Row, list[str]]:
    """The header under which a run goes on, and what differs, in words.

    Its fingerprint and what only explains it are those with which the file began, if what is here is the same function.
    """
    said = before.get("model", {})
    told = {**said, **header["model"]}.keys() - {"fingerprint"}
    if "fingerprint" not in said or any(said.get(key) != header["model"].get(key) for key in told):
        return header, []
    notes = check_behaviour(before, engine, rules_of(header), where)
    kept = {key: value for key, value in before.items() if key in ("settings", "checked")}
    model = {**header["model"], "fingerprint": before["model"]["fingerprint"]}
    return {**header, **kept, "model": model}, notes


def _differences(header: Row, engine: Engine) -> Iterable[str]:
    """What else is not as it was: the machine, switches of libraries, versions."""
    for said, here in (
        ({"device": header["model"].get("device")}, engine.classifier.describe()),
        (header.get("settings", {}), settings()),
        (_libraries(header), provenance(engine.classifier.packages)),
    ):
        yield from (f"{key} {value}, here {here.get(key)}" for key, value in said.items() if here.get(key) != value)


def _libraries(header: Row) -> Row:
    """The versions that a header names, without certmask's own."""
    return {key: value for key, value in header.get("versions", {}).items() if key not in OWN_SOURCE}
