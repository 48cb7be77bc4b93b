"""A model certified on labelled photos in one call, and the results file that comes of it."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from certmask.certificate import Guarantee
from certmask.certification import Progress, certify_run, recorded, run_margin
from certmask.classifier import Classifier
from certmask.covers import Cover
from certmask.covers.default import default_patch
from certmask.data import Dataset, Framing, Pictures, in_memory, load_dataset
from certmask.data.sticker import classes_of
from certmask.defences import LocalDefence, MaskedDefence, RuledDefence, by_photo
from certmask.deployed.local import local_fields, local_name, local_rule
from certmask.deployed.tokens import cover_for
from certmask.engine import Engine
from certmask.errors import CertmaskError, DataError, ResultsError
from certmask.evidence import EvidenceRule, LocalClassifier
from certmask.evidence.registry import is_local
from certmask.images import Colour, fill_colour
from certmask.results.columns import COLUMNS, UNITS, figures
from certmask.results.file import ResultsFile, Row
from certmask.results.run import Run, check_begun, read_run
from certmask.rules import Rule
from certmask.rules.registry import REGISTER, option_name, rule_of
from certmask.threat import Patch, PhotoPatch, Size, Threat, checked_patch, checked_threat, photo_patch
from certmask.votes import Margin

Model = Classifier | nn.Module | Callable[[Tensor], Tensor] | str | Path
RULES = ("undefended", "zoom")
AnyRule = Rule | EvidenceRule | str


@dataclass(frozen=True, repr=False)
class Evaluation(Run):
    """A results file; ``print`` shows its table, ``certmask.figures`` has every figure."""

    def __str__(self) -> str:
        from rich.console import Console

        from certmask.report.tables import TerminalTable, brief_table

        title = f"{len(self.rows)} images, {self.model['name']}; {UNITS}"
        screen = Console(file=io.StringIO(), highlight=False)
        screen.print(TerminalTable(brief_table(title, COLUMNS, figures(self))))
        return str(screen.file.getvalue()).rstrip()  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"Evaluation({self.path}: {len(self.rows)} images, {', '.join(self.defences)})"


def certify(
    model: Model,
    data: str | Path | Dataset | tuple[Tensor, Any] | Any,
    rules: Sequence[AnyRule] | AnyRule = RULES,
    patch: Threat | Size | int | None = None,
    *,
    patch_in_photo: PhotoPatch | Size | int | str | None = None,
    before_jpeg: bool = False,
    cover: Cover | None = None,
    out: str | Path | None = None,
    images: int | None = None,
    margin: float | str = "auto",
    framing: Framing | float | None = None,
    fill: Colour | float | None = None,
    votes: str | Path | None = None,
    progress: Progress | None = None,
    **classifier: Any,
) -> Evaluation:
    """Certify labelled photos under several rules, which share their votes; as ``certmask certify``, for any model.

    model: a network, a function, a ``Classifier``, or a name, file or folder that ``load_classifier`` knows
    data: what ``certmask certify`` takes (a folder of class folders, a CSV file, ``demo`` …), images
        ``[n, 3, height, width]`` in [0, 1] and labels (and names), or a torch Dataset of pairs
    rules: names that the command line knows, or rules; those on local evidence take a network with a small receptive
        field, and have none but ``undefended`` beside them
    patch: what the attacker may put on a picture, ``32``, or any threat: ``Patch(32, 32, count=2)``,
        ``AnyRectangle(1024)``, ``UpTo(48)``; None takes a seventh of the input along each side
    patch_in_photo: instead, what the attacker may put into the stored photo before it becomes the model's input: pixels
        of the photo, or ``"5%"`` of its shorter side; each photo is certified against what that reaches in the input
    before_jpeg: the patch in the photo was there before its file was compressed
    cover: the masks for all rules; None takes for each rule those that ``certmask certify`` takes
    out: the results file, which is continued if it is there; None takes one in a new temporary folder
    images: only so many, evenly spaced
    margin: for rules given by name, in what each reads; ``auto`` measures it on some of the photos
    framing: how photos become the model's input, or the share that a centre crop keeps; None takes what belongs to a
        model that was given by name, else 0.875
    fill: the colour of the masks, or one number for a grey; None takes the classifier's own
    votes: a folder to keep votes in
    progress: called with ``"passes"`` or ``"images"`` and how many more are done
    Everything else (``size``, ``mean``, ``std``, ``device``, ``class_names``, …) goes to ``Classifier``.
    """
    wanted, model = _named(rules), str(model) if isinstance(model, Path) else model
    dataset = in_memory(data, _framing(framing))
    if isinstance(dataset, Pictures) and not isinstance(model, (Classifier, str)):
        classifier.setdefault("size", dataset.size)
    local = any(isinstance(rule, EvidenceRule) or is_local(name) for name, rule in wanted.items())
    ready = classifier_of(model, classifier, local)
    if dataset is None:
        dataset = _photos(str(data), model, ready, framing)
    dataset = dataset.spread(images)
    inside = _in_photo(patch_in_photo, before_jpeg, patch, cover)
    against = [_against(ready, patch)] if inside is None else _classes(dataset, inside, ready.size)
    voting = {} if local else {name: r for name, r in wanted.items() if not isinstance(r, EvidenceRule)}
    covers = [[cover or _cover(ready, one, rule) for rule in voting.values()] for one in against]
    engine = Engine(ready, [one for own in covers for one in own], fill=fill_colour(fill))
    path = Path(tempfile.mkdtemp(prefix="certmask-"), "certify.jsonl") if out is None else Path(out)
    lead = run_margin(engine, dataset, recorded(path)[0])[0] if margin == "auto" else _given(margin)
    made = [
        _local(ready, wanted, one, lead) if local else _masked(own, voting, lead)
        for one, own in zip(against, covers, strict=True)
    ]
    defences = made[0] if inside is None else by_photo(inside, made)
    certify_run(engine, dataset, defences, path, votes=None if votes is None else Path(votes), progress=progress)
    return read_evaluation(path)


def read_evaluation(path: Path) -> Evaluation:
    """A results file of a certification, checked field by field."""
    run = read_run(path)
    return Evaluation(run.name, run.path, run.digest, run.header, run.rows)


def saved_run(path: Path, header: Row, rows: Sequence[Row]) -> Evaluation:
    """The rows in a results file under this header; one that has some of them already is continued.

    Refused where a picture that is there had other pixels.
    """
    with ResultsFile(path, header) as results:
        check_begun(path, results.header, results.rows)
        there = {row["image"]: row["input_sha256"] for row in results.rows}
        for row in rows:
            if there.get(row["image"], row["input_sha256"]) != row["input_sha256"]:
                raise ResultsError(f"expected the same pictures as in {path}, got another {row['image']}")
        for row in rows:
            if row["image"] not in there:
                results.write(row)
    return read_evaluation(path)


def _named(rules: Sequence[AnyRule] | AnyRule) -> dict[str, AnyRule]:
    """The rules by the names that the results file has for them."""
    listed = [rules] if isinstance(rules, (str, Rule, EvidenceRule, type)) else list(rules)
    if not listed:
        raise CertmaskError("expected at least one rule, got none")
    checked = [(_name(rule), rule) for rule in listed]
    if len(dict(checked)) != len(checked):
        raise CertmaskError(f"expected each rule once, got {', '.join(name for name, _ in checked)}")
    return dict(checked)


def _name(rule: AnyRule) -> str:
    if isinstance(rule, EvidenceRule):
        return local_name(rule)
    if isinstance(rule, str) and is_local(rule):
        return rule
    own = rule_of(rule)
    return rule if isinstance(rule, str) else option_name(own.name)


def _in_photo(
    patch_in_photo: PhotoPatch | Size | int | str | None, before_jpeg: bool, patch: Any, cover: Cover | None
) -> PhotoPatch | None:
    """The patch in the stored photo that was asked for; an error for what makes no sense beside it."""
    if patch_in_photo is None:
        if before_jpeg:
            raise CertmaskError("expected before_jpeg beside patch_in_photo, got it alone")
        return None
    if patch is not None or cover is not None:
        raise CertmaskError("expected a patch in the photo, or a patch or cover of the model's input, got both")
    return photo_patch(patch_in_photo, before_jpeg)


def _classes(dataset: Dataset, threat: PhotoPatch, image: Size) -> list[Patch]:
    stickers = dataset.stickers(threat, image)
    classes = classes_of(stickers)
    if not classes:
        raise DataError(f"expected a photo with a patch that leaves a part of the input alone, got {stickers[0]}")
    return classes


def _masked(covers: Sequence[Cover], wanted: dict[str, Rule | str], margin: Margin) -> list[RuledDefence]:
    made = zip(covers, wanted.items(), strict=True)
    return [MaskedDefence(cover, _rule(rule, margin), name) for cover, (name, rule) in made]


def _local(classifier: Classifier, wanted: dict[str, AnyRule], threat: Threat, margin: Margin) -> list[RuledDefence]:
    """Rules on the local evidence of a classifier; those by name are against the patch, with the margin."""
    patch = checked_patch(threat)
    made = [
        (name, rule if isinstance(rule, EvidenceRule) else local_rule(name, patch, margin.evidence))
        for name, rule in wanted.items()
    ]
    return [LocalDefence(rule, local_fields(classifier), name) for name, rule in made]


def _given(margin: Any) -> Margin:
    if isinstance(margin, bool) or not isinstance(margin, (int, float)):
        raise CertmaskError(f"expected a margin as a number or 'auto', got {margin!r}")
    return Margin.of(margin)


def _rule(rule: Rule | str, margin: Margin) -> Rule:
    """A rule by name is told the margin in its own unit, unless it promises nothing."""
    sure = {} if rule_of(rule).guarantee is Guarantee.NONE else {"margin": margin}
    return rule_of(rule, **sure)


def _cover(classifier: Classifier, patch: Threat, rule: Rule | str) -> Cover:
    bare = rule_of(rule).guarantee is Guarantee.NONE
    return cover_for(classifier, patch, REGISTER[0].option if bare else rule)


def _against(classifier: Classifier, patch: Threat | Size | int | None) -> Threat:
    """The threat that was named, else a patch that suits the model's input."""
    return default_patch(classifier.size) if patch is None else checked_threat(patch)


def classifier_of(model: Model, options: dict[str, Any], local: bool) -> Classifier:
    """The model as it is, or made ready with these options: by name or from what people bring, or a network."""
    from certmask.zoo import load_classifier

    if isinstance(model, (str, Path)):
        return load_classifier(model, local=local, **options)
    if isinstance(model, Classifier):
        if options:
            raise CertmaskError(f"expected no further options beside a Classifier, got {', '.join(options)}")
        return model
    return LocalClassifier(model, **options) if local else Classifier(model, **options)


def _photos(source: str, model: Model, classifier: Classifier, framing: Framing | float | None) -> Dataset:
    from certmask.zoo import class_aliases, framing_of

    own = framing_of(model) if framing is None and isinstance(model, str) else _framing(framing)
    return load_dataset(source, class_aliases(classifier), own)


def _framing(framing: Framing | float | None) -> Framing:
    if framing is None:
        return Framing()
    return framing if isinstance(framing, Framing) else Framing(framing)
