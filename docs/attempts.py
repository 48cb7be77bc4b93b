"""All attempts on certified photos, by rule and by what the attacker may do: files that are added are counted, too."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from experiment_tables import lined

from certmask.certificate import Guarantee
from certmask.errors import ResultsError
from certmask.evidence.registry import LOCAL_REGISTER
from certmask.results.columns import AttackFigures, attack_figures
from certmask.results.file import Row
from certmask.results.kinds import NOTHING
from certmask.results.run import Run, read_run
from certmask.rules.registry import REGISTER, as_described_now
from certmask.threat import AnyRectangle, Patch, PhotoPatch, Threat, UpTo

THREATS = ("one patch", "two patches", "any rectangle", "unknown size", "in the photo")
PLURAL = {1: THREATS[0], 2: THREATS[1]}
OPTIONS = [row.option for row in (*REGISTER, *LOCAL_REGISTER)]


@lru_cache
def attack_runs(results: Path) -> tuple[Run, ...]:
    """Every file of attempts on certified photos, in any folder of the results."""
    found = tuple(read_run(path) for path in sorted(results.glob("*/*-attempts.jsonl.gz")))
    if not found:
        raise ResultsError(f"expected attempts in {results}/*/*-attempts.jsonl.gz, got none")
    return found


def option_of(described: Row) -> str:
    """What the command line calls the rule of a defence: a rule may have two names, one on covers of several levels."""
    told, rule = described.get("classes", [described])[0], as_described_now(described["rule"])
    levels = "levels" in told.get("cover", {})
    for row in REGISTER:
        same = row.rule.name == rule["rule"] and all(rule.get(key) == value for key, value in row.told.items())
        if same and row.zooms == levels and bool(rule.get("challenger")) == bool(row.told.get("challenger")):
            return row.option
    return next(row.option for row in LOCAL_REGISTER if row.rule.name == rule["rule"])


def means_of(threat: Threat) -> str:
    """What an attacker may do, in a word or two."""
    if isinstance(threat, Patch):
        return PLURAL[threat.count]
    kinds = {AnyRectangle: THREATS[2], UpTo: THREATS[3], PhotoPatch: THREATS[4]}
    return kinds[type(threat)]


def by_rule(results: Path) -> dict[tuple[str, str], list[tuple[Run, AttackFigures]]]:
    """Attempts by rule and threat: what promises something first, each as the register has it."""
    found: dict[tuple[str, str], list[tuple[Run, AttackFigures]]] = {}
    for run, own in _made(results):
        bare = own.guarantee is Guarantee.NONE
        option = "undefended" if bare else option_of(run.defences[own.defence])
        found.setdefault((option, means_of(run.threat(own.defence))), []).append((run, own))
    order = {key: (not mine[0][1].guarantee.proved, OPTIONS.index(key[0]), THREATS.index(key[1]))
             for key, mine in found.items()}  # fmt: skip
    return {key: found[key] for key in sorted(found, key=order.__getitem__)}


def _made(results: Path) -> Iterator[tuple[Run, AttackFigures]]:
    for run in attack_runs(results):
        yield from ((run, own) for own in attack_figures(run) if own.attempts)


def attempts_table(results: Path) -> str:
    """One row per rule and threat, and the rules that promise something and were not attacked."""
    lines, found = [], by_rule(results)
    for (option, threat), mine in found.items():
        networks = {run.model["weights_sha256"] for run, _ in mine}
        guarantee = mine[0][1].guarantee
        broken = NOTHING if guarantee is Guarantee.NONE else f"{sum(own.broken or 0 for _, own in mine):,}"
        counts = (sum(getattr(own, name) for _, own in mine) for name in ("attempts", "label_changed", "alerted"))
        numbers = " | ".join(f"{count:,}" for count in counts)
        lines.append(f"{option} | {threat} | {guarantee.value} | {len(networks)} | {numbers} | {broken}")
    attacked, rows = {option for option, _ in found}, (*REGISTER, *LOCAL_REGISTER)
    missed = [f"`{row.option}`" for row in rows if row.rule.guarantee.proved and row.option not in attacked]
    table = lined(
        "rule | attacker | certificate | networks | attempts | label changed | alerted | certificates broken",
        lines, words=3,
    )  # fmt: skip
    return f"{table}\n\nRules with a certificate that no attempt was made on: {', '.join(missed) or 'none'}."
