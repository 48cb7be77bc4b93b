"""What was proved, in sentences made from the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from certmask.certificate import Guarantee
from certmask.results.columns import AttackFigures, Figures
from certmask.results.kinds import percent
from certmask.results.run import Run
from certmask.results.statistics import Share
from certmask.threat import Patch, PhotoPatch

LIMITS = (
    "Nothing here speaks of another threat: more patches, a larger one or another shape than stated, a patch on the "
    "photo before it was resized unless that is the threat; or of another function: other weights, precision, batch "
    "shape, fill colour, masks or preprocessing."
)


def setting(run: Run, lines: Sequence[Figures]) -> str:
    """Which model, which photos, which threat."""
    data, model = run.data, run.model
    done = f"{len(run.rows):,} of {data['images']:,} images" if len(run.rows) != data["images"] else _images(run)
    place = f", {model['device']}" if model.get("device") else ""
    return (
        f"{model['name']} ({model['precision']}{place}), {done} of {data['name']}. "
        f"Threat: {_threats(lines)}, with any content, anywhere {_whereon(lines)}."
    )


def _whereon(lines: Sequence[Figures]) -> str:
    if not any(isinstance(line.threat, PhotoPatch) for line in lines):
        return "on the model's input"
    return "in its file; each certificate is against what that reaches in the model's input"


def caption(run: Run, lines: Sequence[Figures]) -> str:
    """The same in a line, for a table."""
    return f"{run.model['name']} on {run.data['name']}, {_images(run)}, {_threats(lines)} ({run.name})"


def _images(run: Run) -> str:
    return "1 image" if len(run.rows) == 1 else f"{len(run.rows):,} images"


def _threats(lines: Sequence[Figures]) -> str:
    found = []
    for threat, image in dict.fromkeys((line.threat, line.image) for line in lines):
        if isinstance(threat, Patch) and threat.count == 1:
            share = 100 * prod(threat.size) / prod(image)
            found.append(f"one {threat.label} patch ({share:.1f} % of {image[0]}×{image[1]})")
        elif isinstance(threat, PhotoPatch):
            found.append(str(threat).replace("any", "one", 1))
        else:
            found.append(threat.on(image))
    return "; ".join(found)


def proved(lines: Sequence[Figures]) -> list[str]:
    """What the best defence of each guarantee proves, what the published test says, or that nothing is proved."""
    groups = [[line for line in lines if line.guarantee is guarantee] for guarantee in Guarantee if guarantee.proved]
    proofs = [_proved(rivals) for rivals in groups if rivals]
    tested = [
        f"{line.defence} passes its test on {counted(line.certified)}; {line.guarantee.sentence}."
        for line in lines
        if line.guarantee is Guarantee.PUBLISHED and line.certified
    ]
    return [*proofs, *tested, *([] if proofs else ["No defence of this run has a proved guarantee."])]


def _proved(rivals: Sequence[Figures]) -> str:
    """What the defence proves that certifies most; among equals, the one whose proofs are cheapest."""
    line = max(rivals, key=lambda x: (x.certified.count if x.certified else 0, -(x.proof_passes or 0.0)))
    if line.certified is None or not line.certified.count:
        whom = line.defence if len(rivals) == 1 else f"none of {len(rivals)} defences"
        return f"Certified {line.guarantee.value}: {whom} proves it for {'no' if len(rivals) == 1 else 'any'} image."
    best = f" (none of the {len(rivals)} such defences for more)" if len(rivals) > 1 else ""
    detects = line.guarantee is Guarantee.DETECTION
    alerts = f" On {counted(line.false_alerts)} it raises a false alert." if detects else ""
    return (
        f"Certified {line.guarantee.value}: {line.defence} proves it for {counted(line.certified)}{best}; "
        f"for these, {line.guarantee.sentence}.{alerts} {_rest(line.certified)}"
    )


def _rest(certified: Share) -> str:
    rest = certified.of - certified.count
    if not rest:
        return "No image is left without proof."
    others = "the other image" if rest == 1 else f"the other {rest:,} images"
    return f"For {others} nothing was proved, which does not mean that an attack exists."


def counted(share: Share) -> str:
    """Count, share and interval."""
    images = "1 image" if share.of == 1 else f"{share.of:,} images"
    low, high = map(percent, share.interval)
    return f"{share.count:,} of {images} ({share.percent} %, 95 % interval {low} to {high} %)"


def cautions(run: Run) -> list[str]:
    """What a reader of this run's figures must not overlook."""
    found = []
    missing = run.data["images"] - len(run.rows)
    if missing > 0:
        found.append(f"The run is not finished: {missing:,} images are still to come.")
    covered = [name for name in run.defences if run.cover(name) or any("cover" in one for one in run.classes(name))]
    masked = [name for name in covered if run.guarantee(name).proved]
    if masked:
        found.append(_margin(min(float(run.defences[name]["rule"].get("margin", 0.0)) for name in masked)))
    batch = run.model.get("batch")
    others = Counter(row["batch"] for row in run.rows if row.get("batch", batch) != batch)
    found += [f"{count:,} images ran with batch {size}, not {batch}: their certificates are for that function."
              for size, count in sorted(others.items(), key=str)]  # fmt: skip
    unmet = sum("photo" in row and row["photo"].get("threat", row) is None for row in run.rows)
    if unmet:
        photos = "1 photo" if unmet == 1 else f"{unmet:,} photos"
        found.append(f"In {photos} the patch reaches too much of the input: nothing could be proved there.")
    return found


def _margin(margin: float) -> str:
    if not margin:
        return (
            "The margin is 0: the certificates hold as long as the deployed classifier answers equal masked pictures "
            "with equal winners, to the last bit where two classes are close."
        )
    moved = f"no number that a rule reads moves by more than {margin / 2:.3g}"
    return f"The certificates hold as long as {moved} (half the margin)."


def attacked(lines: Sequence[AttackFigures]) -> list[str]:
    """What attempts did, and how strong the attack is known to be."""
    tried = [line for line in lines if line.attempts]
    proofs = [line for line in tried if line.guarantee.proved and line.certified]
    sentences = []
    if proofs and not any(line.broken for line in proofs):
        total = sum(line.attempts for line in proofs)
        sentences.append(f"None of {total:,} attempts on proved certificates broke one, as the proofs say.")
    sentences += [
        f"{line.defence}: {line.broken:,} of {line.attempts:,} attempts changed the answer on images that pass "
        f"the published test ({line.images_lost:,} of {line.images:,} images lost)."
        for line in tried
        if line.guarantee is Guarantee.PUBLISHED
    ]
    sentences += [
        f"{line.defence}: {line.label_changed:,} of {line.attempts:,} attempts changed the answer on images that were "
        f"answered rightly and not certified ({line.images_lost:,} of {line.images:,} images lost)."
        for line in tried
        if not line.certified
    ]
    bare = [line for line in tried if line.guarantee is Guarantee.NONE]
    if not bare:
        return [*sentences, "The undefended model was not attacked: the attack's strength is unknown."]
    changed, total = sum(line.label_changed for line in bare), sum(line.attempts for line in bare)
    return [*sentences, f"The same attack changes the undefended model's label in {changed:,} of {total:,} attempts."]


def broken_proofs(name: str, lines: Sequence[AttackFigures]) -> list[str]:
    """The worst news: a proved certificate that an attack broke."""
    return [
        f"{name}: {line.broken:,} attempts broke a certificate of {line.defence} that was called proved. "
        "That is a fault in the program or in its use; do not rely on the figures of this defence."
        for line in lines
        if line.broken and line.guarantee.proved
    ]
