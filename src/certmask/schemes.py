"""Schemes from what a results file says about them."""

from __future__ import annotations

import inspect
from typing import Any

from certmask.covers import Cover
from certmask.covers.tilings import TILINGS
from certmask.errors import CertmaskError, ResultsError
from certmask.evaluation import Scheme
from certmask.geometry import Patch
from certmask.rules import AGGREGATES, RULES, Rule


def scheme_from(description: dict[str, Any]) -> Scheme:
    """The scheme that ``Scheme.describe`` described; an error if it cannot be rebuilt to the last mask."""
    name = description.get("name", "")
    try:
        scheme = Scheme(_cover(description["cover"]), _rule(description["rule"]), name)
    except ResultsError as error:
        raise ResultsError(f"{error} in scheme {name!r}") from None
    except (KeyError, TypeError, CertmaskError) as error:
        raise ResultsError(f"expected a scheme that can be rebuilt, got {name!r} ({error})") from None
    _check_same(description, scheme.describe(), name)
    return scheme


def _cover(description: dict[str, Any]) -> Cover:
    tiling = description["tiling"]
    if tiling not in TILINGS:
        raise ResultsError(f"expected a tiling among {', '.join(TILINGS)}, got {tiling!r}")
    image, patch, mask = tuple(description["image"]), Patch(*description["patch"]), tuple(description["mask"])
    if tiling == "patchcleanser":
        return TILINGS[tiling](image, patch, mask=mask)
    return TILINGS[tiling](image, patch, mask, tuple(description["fold"]))


def _rule(description: dict[str, Any]) -> Rule:
    """A rule's description names its parameters as its constructor does."""
    name = description["rule"]
    if name not in RULES:
        raise ResultsError(f"expected a rule among {', '.join(RULES)}, got {name!r}")
    parameters = {key: description[key] for key in inspect.signature(RULES[name]).parameters}
    if "aggregate" in parameters:
        parameters["aggregate"] = AGGREGATES[parameters["aggregate"]]()
    return RULES[name](**parameters)


def _check_same(said: dict[str, Any], rebuilt: dict[str, Any], name: str) -> None:
    for part in ("cover", "rule"):
        for key in {**said[part], **rebuilt[part]}:
            if said[part].get(key) != rebuilt[part].get(key):
                raise ResultsError(
                    f"expected the {part} of scheme {name!r} with {key} {said[part].get(key)!r}, "
                    f"got {rebuilt[part].get(key)!r} when it was rebuilt"
                )
