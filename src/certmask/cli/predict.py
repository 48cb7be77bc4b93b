"""``certmask predict``."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from certmask.cli.options import (
    RULES,
    AggregateOption,
    AlignOption,
    BackendOption,
    BandOption,
    BatchOption,
    BeforeJpegOption,
    ClaimThresholdsOption,
    DefenceOption,
    DeviceOption,
    DrawOption,
    FoldOption,
    JsonOption,
    LastResortOption,
    LevelsOption,
    MarginOption,
    MaskOption,
    ModelOption,
    PairsOption,
    PatchAreaOption,
    PatchesOption,
    PatchInPhotoOption,
    PatchOption,
    PatchSizesOption,
    PooledOption,
    PrecisionOption,
    ShareOption,
    SlopeOption,
    StrideOption,
    ThetaOption,
    ThresholdOption,
    ThresholdsOption,
    TilingOption,
    ViewsOption,
    WeightsOption,
)
from certmask.rules.registry import DEFAULT_PAIRS

if TYPE_CHECKING:
    from PIL import Image

    from certmask.classifier import Classifier
    from certmask.cli.choices import Choices
    from certmask.data import Framing
    from certmask.data.reach import Stored
    from certmask.data.sticker import Sticker
    from certmask.defences import Explanation, RuledDefence
    from certmask.threat import PhotoPatch


def predict(
    photos: Annotated[list[Path], typer.Argument(help="Photos of any size.")],
    model: ModelOption = "efficientnet-lite0",
    weights: WeightsOption = None,
    patch: PatchOption = None,
    patches: PatchesOption = 1,
    patch_area: PatchAreaOption = None,
    patch_sizes: PatchSizesOption = None,
    patch_in_photo: PatchInPhotoOption = None,
    before_jpeg: BeforeJpegOption = False,
    rule: Annotated[
        list[str] | None,
        typer.Option("--rule", help="One of the rules that `certify` knows; default: zoom.", autocompletion=RULES),
    ] = None,
    defence: DefenceOption = None,
    levels: LevelsOption = None,
    thresholds: ThresholdsOption = None,
    claim_thresholds: ClaimThresholdsOption = None,
    pooled: PooledOption = False,
    last_resort: LastResortOption = None,
    align: AlignOption = None,
    tiling: TilingOption = None,
    mask: MaskOption = None,
    fold: FoldOption = None,
    pairs: PairsOption = DEFAULT_PAIRS,
    aggregate: AggregateOption = "mean-probability",
    threshold: ThresholdOption = None,
    band: BandOption = None,
    stride: StrideOption = None,
    theta: ThetaOption = None,
    share: ShareOption = None,
    slope: SlopeOption = None,
    margin: MarginOption = "auto",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    batch: BatchOption = None,
    backend: BackendOption = "auto",
    views: ViewsOption = "plain",
    json: JsonOption = False,
    draw: DrawOption = None,
) -> None:
    """Label each photo, say whether an alert is raised, and what is guaranteed.

    With --patch-in-photo each photo has a defence of its own, against what such a patch reaches in the model's input.

    Exit code 3 if one raised an alert; 1 if one could not be read, which is told while the others are answered.
    """
    from certmask.cli.choices import Choices
    from certmask.cli.outputs import check_picture
    from certmask.cli.sticker import wanted_patch
    from certmask.errors import UsageError

    wanted = wanted_patch(patch_in_photo, before_jpeg, (patch, patches, patch_area, patch_sizes), defence)
    rules = rule or (["zoom"] if defence is None else [])
    told = [*rules, *([str(defence)] if defence else [])]
    if len(told) > 1:
        raise UsageError(f"expected one rule, got {', '.join(told)}")
    choices = Choices(
        model, weights, rules, defence, patch, mask, tiling, fold, levels, align, thresholds, claim_thresholds,
        pooled, last_resort, pairs, aggregate, threshold, margin, device, precision, batch, backend, views, band,
        stride, theta, share, slope, patches, patch_area, patch_sizes,
    )  # fmt: skip
    if not wanted:
        choices.check()
    if draw and choices.local:
        raise UsageError("expected a rule that looks through masks to draw, got one on local evidence")
    check_picture(draw)
    inputs, failed = _read(photos, choices, wanted)
    found = _explained(inputs, choices) if inputs else {}
    if json:
        records = [
            _record(photo, found[n]) if n in found else _failure(photo, failed[n]) for n, photo in enumerate(photos)
        ]
        typer.echo(jsonlib.dumps(records, ensure_ascii=False, indent=2))
    else:
        _print([(photos[n], one) for n, one in found.items()])
    if draw:
        for n, one in found.items():
            _draw(one, inputs[n].image, draw if len(photos) == 1 else draw.with_stem(f"{draw.stem}-{n + 1}"))
    if failed:
        raise typer.Exit(1)
    if any(one.explanation.alert for one in found.values()):
        raise typer.Exit(3)


@dataclass(frozen=True)
class Shown:
    """A photo as the model sees it, as it is stored, and the patch in the stored one, where that was asked for."""

    image: Image.Image
    photo: Stored
    framing: Framing
    sticker: Sticker | None

    def chosen(self, choices: Choices) -> Choices:
        """What was chosen, against what the patch reaches."""
        from certmask.cli.sticker import typed

        return replace(choices, patch=typed(self.sticker.threat)) if self.sticker else choices


@dataclass(frozen=True)
class Found:
    """What a defence says about one photo, and what the model calls its classes."""

    explanation: Explanation
    defence: RuledDefence
    names: Sequence[str]
    shown: Shown

    @property
    def sticker(self) -> Sticker | None:
        return self.shown.sticker

    @property
    def side(self) -> int | None:
        """The side of the largest square in the stored photo that the certificate speaks of; None without one."""
        from certmask.data.reach import largest_side
        from certmask.threat import Patch, threat_from

        certificate = self.explanation.certificate
        threat = threat_from(certificate.threat)
        if not certificate.holds or not isinstance(threat, Patch):
            return None
        return largest_side(self.shown.photo, self.shown.framing, self.defence.image, threat.size)

    @property
    def covered(self) -> list[str]:
        """The same in words, where the guarantee is proved."""
        if self.side is None or not self.defence.guarantee.proved:
            return []
        photo, when = self.shown.photo, " before it was compressed" if self.sticker and self.sticker.before_jpeg else ""
        size = f"the photo ({photo.width}×{photo.height})"
        if not self.side:
            return [f"covers no patch in {size}: a single pixel reaches more of the input"]
        share = 100 * self.side / min(photo.upright)
        most = f"{self.side}×{self.side} ({share:.1f} % of its shorter side)"
        return [f"covers any patch in {size}{when} of up to {most}"]

    @property
    def name(self) -> str:
        from certmask.certificate import class_name

        return class_name(self.explanation.label, self.names)

    @property
    def sentence(self) -> str:
        """What is guaranteed about this photo with any patch put on it."""
        from certmask.certificate import supposing

        return supposing(self.name, self.finding)

    @property
    def finding(self) -> str:
        """The certificate in words, about the patch in the photo where that was asked for."""
        certificate = self.explanation.certificate
        return certificate.against(str(self.sticker)) if self.sticker else certificate.sentence

    @property
    def reasons(self) -> list[str]:
        """What the answer rests on, and where the proof is weakest or failed, as far as the rule can tell."""
        from certmask.certificate import BASES

        one = self.explanation
        told = [f"{one.basis}: {BASES[one.basis]}"] if one.basis else []
        if one.weakest is None:
            return told
        places = " and ".join(
            f"rows {top}–{bottom - 1}, columns {left}–{right - 1}" for top, bottom, left, right in one.weakest.places
        )
        failed = "not proved of a larger patch" if one.certificate.holds else "not proved"
        holds = "weakest" if one.weakest.proved else failed
        level, levels = one.weakest.level + 1, max(len(cover.levels) for cover in self.defence.covers)
        at = f", settled at level {level} of {levels}" if levels > 1 else ""
        return [*told, f"{holds} with the patch's corner in {places}: a lead of {one.weakest.lead:.2g}{at}"]


def _read(
    photos: Sequence[Path], choices: Choices, wanted: PhotoPatch | None
) -> tuple[dict[int, Shown], dict[int, str]]:
    """By number: the photos as the model sees them, and why others cannot be read, which is told at once."""
    from certmask.data import read_photo
    from certmask.data.reach import stored
    from certmask.data.sticker import checked_sticker
    from certmask.errors import DataError
    from certmask.zoo import framing_of

    framing, size = framing_of(choices.model), choices.card.size
    inputs, failed = {}, {}
    for number, photo in enumerate(photos):
        try:
            image = framing(read_photo(photo), size, str(photo))
            found = stored(photo, wanted.before_jpeg if wanted else False)
            sticker = checked_sticker(found, wanted, framing, size, str(photo)) if wanted else None
            inputs[number] = Shown(image, found, framing, sticker)
        except DataError as error:
            failed[number] = str(error)
            typer.echo(f"error: {error}", err=True)
    return inputs, failed


def _explained(inputs: Mapping[int, Shown], choices: Choices) -> dict[int, Found]:
    """What the defence that was chosen says about each photo, and why; photos with patches of one size share it."""
    from certmask.cli.console import waiting

    own = {n: shown.chosen(choices) for n, shown in inputs.items()}
    by_patch = {one.patch: one for one in own.values()}
    for one in by_patch.values():
        one.check()
    found = dict[int, Found]()
    with waiting("loading the model and looking through its masks"):
        classifier = next(iter(own.values())).classifier()
        for patch, one in by_patch.items():
            shown = {n: inputs[n] for n in inputs if own[n].patch == patch}
            found |= _answered(shown, one, classifier)
    return {n: found[n] for n in inputs}


def _answered(inputs: Mapping[int, Shown], choices: Choices, classifier: Classifier) -> dict[int, Found]:
    """The same for photos that share a defence."""
    from certmask.data import to_tensor
    from certmask.defences import explain
    from certmask.engine import Engine
    from certmask.engine.margin import measured_margin

    covers, fixed = choices.covers(classifier.grid), choices.fixed_margin()
    engine = Engine(classifier, covers)
    tensors = [to_tensor(shown.image) for shown in inputs.values()]
    margin = measured_margin(engine, tensors[:8]) if fixed is None else fixed
    (defence,) = choices.defences(covers, margin, classifier)
    explanations = zip(inputs.items(), explain(engine, tensors, defence), strict=True)
    return {n: Found(one, defence, classifier.class_names, shown) for (n, shown), one in explanations}


def _failure(photo: Path, reason: str) -> dict[str, Any]:
    return {"photo": str(photo), "error": reason}


def _record(photo: Path, found: Found) -> dict[str, Any]:
    one = found.explanation
    return {
        "photo": str(photo),
        "label": one.label,
        "name": found.name,
        "alert": one.alert,
        "certified": one.certificate.holds,
        "guarantee": one.certificate.guarantee.value,
        "meaning": found.sentence,
        "basis": one.basis or None,
        "weakest": one.weakest and one.weakest.describe(),
        "why": one.why(found.names),
        "passes": one.passes,
        "cover": found.defence.looks,
        "rule": found.defence.name,
        "photo_size": [found.shown.photo.height, found.shown.photo.width],
        "certified_side_in_photo": found.side,
        **({"patch_in_photo": found.sticker.describe()} if found.sticker else {}),
    }


def _print(answers: Sequence[tuple[Path, Found]]) -> None:
    from rich.markup import escape

    from certmask.certificate import Guarantee
    from certmask.cli.console import out, passes

    for photo, found in answers:
        one = found.explanation
        alert = "ALERT, this may be an attack" if one.alert else "no alert"
        said = f"{escape(str(photo))}: [bold]{escape(found.name)}[/bold] ({one.label}), {alert}, {passes(one.passes)}"
        for line in (said, *(f"  {escape(told)}" for told in (found.sentence, *found.covered, *found.reasons))):
            out.print(line, soft_wrap=True)
    for defence in {found.defence.looks: found.defence for _, found in answers}.values():
        if defence.guarantee is not Guarantee.NONE:
            out.print(f"by {defence.name}: {defence.looks}", soft_wrap=True)


def _draw(found: Found, image: Image.Image, path: Path) -> None:
    from certmask.cli.console import err
    from certmask.report.map import Map, draw_map

    one = found.explanation
    title = f"{found.name}{' — ALERT' if one.alert else ''}\n{found.finding}"
    (cover,) = found.defence.covers
    proved = one.certificate.holds if one.weakest is None else one.weakest.proved
    shown = Map(cover, one.places, one.label, found.defence.rule.unit, proved, one.weakest)
    draw_map(image, shown, found.names, title, path)
    err.print(f"drawn in {path}", markup=False, soft_wrap=True)
