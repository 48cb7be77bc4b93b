"""The one checked reader of results files: whoever counts their rows reads them here, field by field."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certmask.certificate import BASES, NO_CLASS, Decision, Guarantee
from certmask.covers.cover import against
from certmask.errors import GeometryError, ResultsError, any_of
from certmask.results.file import Row, content, read_results
from certmask.threat import Patch, PhotoPatch, Size, Threat, threat_from

HALVES = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]|\0")
"""What a file has in it that spells half a character; most that have it spell whole ones, from two halves."""
Shape = Mapping[str, type]

MODEL: Shape = {"name": str, "precision": str, "size": list}
DATA: Shape = {"name": str, "images": int}
RULE: Shape = {"rule": str, "guarantee": str}
COVER: Shape = {"tiling": str, "image": list, "mask": list, "fold": list, "masks": int}
DEFENCE: Shape = {"threat": dict, "image": list}
IMAGE: Shape = {"image": str, "label": int, "passes": int, "seconds": float, "defences": dict}
OUTCOME: Shape = {"alert": bool, "passes": int, "certificate_passes": int}
CLASS: Shape = {"threat": dict}
PHOTO: Shape = {"size": list, "side": int}
IN_PHOTO: Shape = {"size": list, "patch": list, "reach": list, "side": int}
PATCHED: Shape = {"corner": list, "patch": list, "threat": list}
WEAKEST: Shape = {"places": list, "level": int}
ATTEMPT: Shape = {"defence": str, "image": str, "label": int, "alert": bool, "broken": bool}
PATCH: Shape = {"corner": list, "size": list}
Placed = tuple[Size, Size]
"""Corner and size of a patch on the model's input."""
KNOWN_BASES = ("", *BASES)
MOST = sys.float_info.max
LAST_RESORTS = ("bare", "majority")
"""What an answer rests on that no certificate speaks of."""
GOING_ON: Mapping[str, Shape] = {"certify": {"input_sha256": str}, "attack": {"attempt": str}}
"""What whoever goes on with a run reads in its rows, beside what every reader does."""


@dataclass(frozen=True)
class Run:
    """One results file: how a report calls it, where it lies, a hash of it, its header and rows."""

    name: str
    path: Path
    digest: str
    header: Row
    rows: tuple[Row, ...]

    @property
    def kind(self) -> str:
        """``certify`` or ``attack``."""
        return str(self.header["kind"])

    @property
    def model(self) -> dict[str, Any]:
        return dict(self.header["model"])

    @property
    def data(self) -> dict[str, Any]:
        return dict(self.header["data"])

    @property
    def defences(self) -> dict[str, Row]:
        """How every defence is described, by name."""
        return dict(self.header["defences"])

    @property
    def pass_milliseconds(self) -> float | None:
        """The mean time of one pass when certifying; None where no time was recorded."""
        seconds, passes = sum(row["seconds"] for row in self.rows), sum(row["passes"] for row in self.rows)
        return 1000 * seconds / passes if seconds and passes else None

    def guarantee(self, defence: str) -> Guarantee:
        return Guarantee(self.header["defences"][defence]["rule"]["guarantee"])

    def threat(self, defence: str) -> Threat:
        return threat_from(self.header["defences"][defence]["threat"])

    def met(self, defence: str, row: Row) -> Threat:
        """What a row's certificate speaks of: the patch in the input that one in its photo becomes, if any does."""
        return threat_from((self._class(defence, row) or self.header["defences"][defence])["threat"])

    def image(self, defence: str) -> Size:
        """Height and width of the input on which the threat is held off."""
        height, width = self.header["defences"][defence]["image"]
        return height, width

    def patches(self, attempt: Row) -> list[Placed]:
        """Corner and size of each patch of an attempt; of one patch of a known size, the row tells the corner alone.

        None where the row tells nothing, as the earliest do.
        """
        told, defence = attempt.get("patches"), attempt["defence"]
        if told is None and attempt.get("corner"):
            size = self.met(defence, attempt).boxes_on(self.image(defence))[0]
            told = [{"corner": attempt["corner"], "size": size}]
        return [((p["corner"][0], p["corner"][1]), (p["size"][0], p["size"][1])) for p in told or ()]

    def cover(self, defence: str, row: Row | None = None) -> Row | None:
        """How the defence's cover is described, or that for a row; None where it has no masks, or not one for all."""
        own = (row and self._class(defence, row)) or self.header["defences"][defence]
        cover: Row | None = own.get("cover")
        return cover

    def classes(self, defence: str) -> list[Row]:
        """Threats and covers for what a patch in the photo reaches; none where the threat is one in the input."""
        return list(self.header["defences"][defence].get("classes", []))

    def _class(self, defence: str, row: Row) -> Row | None:
        met = [one for one in self.classes(defence) if class_size(one) == row["photo"]["threat"]]
        return met[0] if met else None


def read_run(path: Path) -> Run:
    """One results file of ``certify`` or ``attack``; what cannot be true of one is an error."""
    return _checked(path, path.name, *read_results(path))


def begun_run(path: Path) -> Run | None:
    """One results file, as ``read_run``; None where the run was stopped before its first row."""
    header, rows = read_results(path)
    return _checked(path, path.name, header, rows) if rows else None


def read_runs(paths: Sequence[Path]) -> tuple[list[Run], list[Run]]:
    """Certification runs and attack runs, in the order given; a file of another kind is an error."""
    if not paths:
        raise ResultsError("expected at least one results file, got none")
    resolved = [path.resolve() for path in paths]
    for path in resolved:
        if resolved.count(path) > 1:
            raise ResultsError(f"expected every results file once, got {path.name} twice")
    names = zip(paths, short_names(resolved), strict=True)
    runs = [_checked(path, name, *read_results(path)) for path, name in names]
    return [run for run in runs if run.kind == "certify"], [run for run in runs if run.kind == "attack"]


def short_names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart."""
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = [str(Path(*path.parts[-length:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def check_begun(path: Path, header: Row, rows: Sequence[Row]) -> None:
    """Refuse to continue a run whose rows could not be counted in the end, or lack what going on needs."""
    check_header(header, path)
    for number, row in enumerate(rows, start=2):
        _check(row, GOING_ON[header["kind"]], f"line {number} of {path}")
    _check_rows(header, rows, path)


def check_header(header: Row, path: Path) -> None:
    """Refuse what cannot be the header of ``certify`` or ``attack``."""
    if header.get("kind") not in ("certify", "attack"):
        raise ResultsError(f"expected results of certify or attack, got kind {header.get('kind')!r} in {path}")
    _check_header(header, f"the header of {path}")


def _checked(path: Path, name: str, header: Row, rows: Sequence[Row]) -> Run:
    said = content(path)
    if HALVES.search(said):
        _check_text([header, *rows], path)
    check_header(header, path)
    if not rows:
        raise ResultsError(f"expected at least one row in {path}, got none")
    _check_rows(header, rows, path)
    return Run(name, path, hashlib.sha256(said).hexdigest()[:16], header, tuple(rows))


def _check_rows(header: Row, rows: Sequence[Row], path: Path) -> None:
    """Every row in itself, and that none is there twice."""
    check, one = (_check_image, "image") if header["kind"] == "certify" else (_check_attempt, "attempt")
    promises = {name: _Promise.of(defence) for name, defence in header["defences"].items()}
    for number, row in enumerate(rows, start=2):
        check(row, promises, f"line {number} of {path}")
    for name, times in Counter(str(row[one]) for row in rows if one in row).most_common(1):
        if times > 1:
            raise ResultsError(f"expected every {one} once in {path}, got {name!r} twice")


def _check_text(lines: Sequence[Row], path: Path) -> None:
    """JSON can spell halves of characters, which no file can hold."""
    spelled = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode
    for number, line in enumerate(lines, start=1):
        try:
            spelled(line).encode()
        except UnicodeEncodeError:
            raise ResultsError(
                f"expected whole characters in every line of {path}, got half of one in {number}"
            ) from None


def _check_header(header: Row, where: str) -> None:
    _check(header, {"model": dict, "defences": dict}, where)
    _check(header["model"], MODEL, f"the model in {where}")
    _check_sizes(header["model"], ("size",), where)
    if header["kind"] == "certify":
        _check(header, {"data": dict}, where)
        _check(header["data"], DATA, f"the data in {where}")
    if not header["defences"]:
        raise ResultsError(f"expected at least one defence in {where}, got none")
    for name, defence in header["defences"].items():
        _check_defence(defence, f"{name!r} in {where}")


def _check_defence(defence: Any, where: str) -> None:
    """A defence has a rule with a guarantee, a threat and an input; a cover only where it has masks."""
    _check(defence, {"rule": dict}, f"defence {where}")
    _check(defence["rule"], RULE, f"the rule of {where}")
    if defence["rule"]["guarantee"] not in [g.value for g in Guarantee]:
        raise ResultsError(f"expected a known guarantee, got {defence['rule']['guarantee']!r} for {where}")
    if defence.get("cover") is not None:
        cover = defence["cover"]
        _check(cover, COVER, f"the cover of {where}")
        _check(cover, {"threat": dict} if "threat" in cover else {"patch": list}, f"the cover of {where}")
        _check_sizes(cover, [key for key in ("image", "patch", "mask", "fold") if key in cover], where)
    _check(defence, DEFENCE, f"defence {where}")
    _check_sizes(defence, ("image",), where)
    threat = _checked_threat(defence, where)
    if defence.get("cover") is not None and _masked_against(defence["cover"], where) != threat:
        raise ResultsError(f"expected masks against {threat} for {where}, got some for {against(defence['cover'])}")
    if isinstance(threat, PhotoPatch) != bool(defence.get("classes")):
        raise ResultsError(f"expected classes for a patch in the photo, and for nothing else, got {threat} for {where}")
    for one in defence.get("classes", ()):
        _check_class(one, f"a class of {where}")


def _check_class(one: Any, where: str) -> None:
    """What the patch in some photos is in the input, with masks that are made for it, where there are any."""
    _check(one, CLASS, where)
    threat = _checked_threat(one, where)
    if not isinstance(threat, Patch):
        raise ResultsError(f"expected a patch in the input for {where}, got {threat}")
    if "cover" in one:
        _check(one["cover"], COVER, f"the cover of {where}")
        _check_sizes(one["cover"], ("image", "patch", "mask", "fold"), where)
        if one["cover"]["patch"] != list(threat.size):
            raise ResultsError(f"expected masks against {threat} for {where}, got some for {one['cover']['patch']}")


def _masked_against(cover: Row, where: str) -> Threat:
    """The threat that a cover is described to be against."""
    if "threat" in cover:
        _check(cover, {"threat": dict}, f"the cover of {where}")
    try:
        return against(cover)
    except (GeometryError, TypeError) as error:
        raise ResultsError(f"{error} for the cover of {where}") from None


def _checked_threat(described: Row, where: str) -> Threat:
    try:
        return threat_from(described["threat"])
    except (GeometryError, TypeError) as error:
        raise ResultsError(f"{error} for {where}") from None


def class_size(one: Row) -> list[int]:
    """Height and width of the patch in the input that a class is about."""
    return [one["threat"]["height"], one["threat"]["width"]]


def _check_sizes(fields: Row, keys: Iterable[str], where: str) -> None:
    for key in keys:
        if len(fields[key]) != 2 or not all(_fits(side, int) and side >= 1 for side in fields[key]):
            raise ResultsError(f"expected {key} as height and width in {where}, got {fields[key]!r}")


@dataclass(frozen=True)
class _Promise:
    """What a header says of a defence that every row is held against; ``sides`` only of a patch of unknown size."""

    guarantee: Guarantee
    shape: Shape
    sides: list[int]
    classes: list[list[int]] | None

    @classmethod
    def of(cls, defence: Row) -> _Promise:
        guarantee, steps = Guarantee(defence["rule"]["guarantee"]), threat_from(defence["threat"]).steps
        shape = {**OUTCOME, **({} if defence.get("cover") is None else {"dissent": int})}
        shape |= {} if guarantee is Guarantee.NONE else {"certified": bool}
        classes = [class_size(one) for one in defence["classes"]] if "classes" in defence else None
        return cls(guarantee, shape, [0, *(patch.height for patch in steps)] if steps else [], classes)


def _check_image(row: Row, promises: Mapping[str, _Promise], where: str) -> None:
    _check(row, IMAGE, where)
    _check(row["defences"], dict.fromkeys(promises, dict), where)
    _check_photo(row, promises, where)
    for name, promise in promises.items():
        outcome, here = row["defences"][name], f"{name!r} in {where}"
        _check(outcome, promise.shape, here)
        _check_answer(outcome, "label", here)
        _check_basis(outcome, promise, here)
        _check_side(outcome, promise, here)
        # No patch at all is one of the attacks that a certificate speaks of.
        alarm = outcome["alert"] and promise.guarantee is not Guarantee.DETECTION
        promised = outcome.get("certified") or outcome.get("side")
        if promised and (alarm or promise.guarantee.broken_by(_answer(outcome), row["label"])):
            raise ResultsError(
                f"expected a certified clean image to be answered as promised, got {row['image']!r} under {name!r} "
                f"answered {outcome['label']}{' with an alert' if outcome['alert'] else ''} in {where}"
            )


def _answer(outcome: Row) -> Decision:
    return Decision(outcome["label"], outcome["alert"])


def _check_photo(row: Row, promises: Mapping[str, _Promise], where: str) -> None:
    """The stored photo, which earlier files do not name; where a patch in it is the threat, which class that makes it.

    Every defence has that class, and it holds what is reached; a photo without one is not certified.
    """
    classes = [promise.classes for promise in promises.values() if promise.classes is not None]
    if "photo" not in row and not classes:
        return
    _check(row, {"photo": dict}, where)
    photo = row["photo"]
    _check(photo, IN_PHOTO if classes else PHOTO, f"the photo in {where}")
    _check_sizes(photo, ("size", "patch", "reach") if classes else ("size",), where)
    if not classes:
        return
    threat = photo.get("threat")
    if threat is None and not any(row["defences"][name].get("certified") for name in promises):
        return
    if not all(threat in known for known in classes):
        raise ResultsError(f"expected a class of the header as the threat in {where}, got {threat}")
    if any(least > most for least, most in zip(photo["reach"], threat, strict=True)):
        raise ResultsError(f"expected a class that holds what is reached in {where}, got {threat} for {photo['reach']}")


def _check_basis(outcome: Row, promise: _Promise, where: str) -> None:
    """What an answer rests on and where its proof is weakest, which earlier files do not say.

    Places of other sizes than the certified one may claim what they like, so that the last resort may be asked.
    """
    basis, weakest = outcome.get("basis", ""), outcome.get("weakest")
    if basis not in KNOWN_BASES:
        raise ResultsError(f"expected basis to be {any_of(list(BASES))} for {where}, got {basis!r}")
    if outcome.get("certified") and basis in LAST_RESORTS and not promise.sides:
        raise ResultsError(f"expected a certified answer to rest on its places, got a {basis} one for {where}")
    if weakest is not None:
        _check(weakest, WEAKEST, f"the weakest place of {where}")
        places, lead = weakest["places"], weakest.get("lead")
        boxes = all(
            type(box) is list and len(box) == 4 and all(type(edge) is int and 0 <= edge <= MOST for edge in box)
            for box in places
        )
        sizes = weakest.get("sizes", places)
        known = boxes and places and isinstance(sizes, list) and len(sizes) == len(places)
        if not known or not (isinstance(lead, (int, float)) and _fits(abs(lead), float)):
            raise ResultsError(f"expected boxes and a lead as the weakest place of {where}, got {weakest!r}")


def _check_side(outcome: Row, promise: _Promise, where: str) -> None:
    """A patch of unknown size: certified for one of the sizes, or for none; for the largest, for all."""
    sides = promise.sides
    if not sides or "certified" not in outcome or outcome["certified"] is None:
        return
    if outcome.get("side") not in sides or outcome["certified"] != (outcome["side"] == sides[-1]):
        raise ResultsError(f"expected a certified side among {sides} for {where}, got {outcome.get('side')!r}")


def _check_answer(fields: Row, key: str, where: str) -> None:
    """A class, or none, where the model gave no numbers."""
    if fields.get(key) != NO_CLASS:
        _check(fields, {key: int}, where)


def _check_attempt(row: Row, promises: Mapping[str, _Promise], where: str) -> None:
    _check(row, ATTEMPT, where)
    _check_answer(row, "answer", where)
    if row["defence"] not in promises:
        raise ResultsError(f"expected a defence of the header in {where}, got {row['defence']!r}")
    classes = promises[row["defence"]].classes
    if classes:
        _check(row, {"photo": dict}, where)
        _check(row["photo"], PATCHED, f"the photo in {where}")
        if row["photo"]["threat"] not in classes:
            raise ResultsError(f"expected a class of the header as the threat in {where}, got {row['photo']['threat']}")
    for patch in _listed(row, "patches", where):
        _check(patch, PATCH, f"a patch of {where}")
        _check_sizes(patch, ("size",), where)
        if len(patch["corner"]) != 2 or not all(_fits(at, int) for at in patch["corner"]):
            raise ResultsError(f"expected a corner as row and column in {where}, got {patch['corner']!r}")


def _listed(fields: Row, key: str, where: str) -> list[Any]:
    """What is listed under a key; nothing where it is not there."""
    if key in fields:
        _check(fields, {key: list}, where)
    return list(fields.get(key, []))


def _check(fields: Any, shape: Shape, where: str) -> None:
    if not isinstance(fields, dict):
        raise ResultsError(f"expected named fields in {where}, got {fields!r}")
    for key, kind in shape.items():
        if key not in fields:
            raise ResultsError(f"expected {key!r} in {where}, got none")
        if not _fits(fields[key], kind):
            raise ResultsError(f"expected {key!r} as {_WORDS[kind]} in {where}, got {fields[key]!r}")


def _fits(value: Any, kind: type) -> bool:
    """Whether a value that JSON gave has the kind; numbers are finite and at least 0, and a bool is no number."""
    found = type(value)
    if kind is int or kind is float:
        return (found is kind or found is int) and 0 <= value <= MOST
    return found is kind


_WORDS = {
    int: "a whole number",
    float: "a number of at least 0",
    str: "text",
    bool: "true or false",
    list: "a list",
    dict: "named fields",
}
