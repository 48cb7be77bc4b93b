"""Put a patch on a photo, with any content, and let the bare model and some defences answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from certmask.app.examples import Photo
from certmask.app.lab import as_picture
from certmask.app.studio import Bench, Meter, Question, Studio, Tell
from certmask.attacks import AdaptiveAttack, Descent, Job, PatchAttack, Surrogate, defence_judge
from certmask.attacks.goals import SPARE_ONE
from certmask.attacks.pictures import eight_bits, paste
from certmask.certificate import Decision, Guarantee
from certmask.data import Framing, to_tensor
from certmask.defences import Outcome, examine
from certmask.errors import UsageError, any_of
from certmask.rules.registry import listed
from certmask.rules.rule import Asking, together
from certmask.threat import Patch, Size
from certmask.votes import VoteStore
from certmask.zoo import load_model

NOISE, STICKER, NETWORK, PUBLISHED = "noise", "sticker", "network", "published"
KINDS = {
    "noise": NOISE,
    "my sticker": STICKER,
    "optimized against the model": NETWORK,
    "optimized against the published rule": PUBLISHED,
}
"""What a patch may show, in words and by name."""
TARGETS = {NETWORK: "undefended", PUBLISHED: "published"}
"""Whose answer an optimized patch is to change."""
STEPS, VIEWS = 80, 10
"""Gradient steps of an optimized patch, and masked views in each of one against a rule."""


@dataclass(frozen=True)
class Wish:
    """A patch to put down: what it shows, its top left corner (None: where the attack likes it best), the sticker."""

    kind: str
    corner: Size | None = None
    sticker: Photo | None = None


@dataclass(frozen=True)
class Answered:
    """What one defence says about the clean photo and about the patched one.

    ``passed`` says whether the clean photo passes its test for ``label``, which need not be its own answer.
    """

    rule: str
    guarantee: Guarantee
    label: int
    passed: bool
    clean: Decision
    patched: Outcome

    @property
    def certified(self) -> bool:
        """Whether a theorem promises something about every patch on the clean photo."""
        return self.passed and self.guarantee.proved

    @property
    def broken(self) -> bool:
        """Whether such a promise was broken: a fault in this program."""
        return self.certified and self.guarantee.broken_by(self._decision, self.label)

    @property
    def changed(self) -> bool:
        """Another class than the same defence answered about the clean photo, and no alert."""
        return self.patched.label != self.clean.label and not self.patched.alert

    @property
    def _decision(self) -> Decision:
        return Decision(self.patched.label, self.patched.alert)


@dataclass(frozen=True)
class Patched:
    """A photo with a patch of some ``kind`` on it, and what the bare model and the defences say.

    ``clean`` and ``picture`` are what the model was shown before and after, ``sharp`` is the clean photo for people.
    """

    photo: str
    question: Question
    kind: str
    clean: Image.Image
    picture: Image.Image
    sharp: Image.Image
    corner: Size
    names: Sequence[str]
    answers: Sequence[Answered]
    passes: int
    seconds: float

    @property
    def patch(self) -> Patch:
        """One patch of the threat: that which is put down."""
        return self.question.threat.single


def patched(studio: Studio, photo: Photo, question: Question, wish: Wish, tell: Tell | None = None) -> Patched:
    """Make the patch, put it down, and ask all of them; refused where it takes more than the limits allow."""
    rules = compared(question.rule, question.count)
    if TARGETS.get(wish.kind, rules[0]) not in rules:
        raise UsageError(f"expected one patch at once where the published rule is attacked, got {question.count}")
    clean, meter = studio.seen(photo, question.model), Meter(studio.limits, tell)
    with studio.alone:
        bench = studio.bench(question, rules)
        image = to_tensor(clean)
        with bench.metered(meter):
            before = _decided(bench, image)
            label = _true_label(before[TARGETS.get(wish.kind, rules[-1])][0])
            picture, corner = _attacked(studio, bench, image, label, question.threat.single, wish, meter, tell)
            (after,) = examine(bench.engine, [picture], None, bench.defences)
    certified = _true_label(before[rules[-1]][0])
    answers = [
        Answered(one.name, one.guarantee, certified, before[one.name][1], before[one.name][0], outcome)
        for one, outcome in zip(bench.defences, after.value, strict=True)
    ]
    shown, names, sharp = as_picture(picture), bench.classifier.class_names, studio.sharp(photo, question.model)
    pictures = (clean, shown, sharp, corner)
    return Patched(photo.name, question, wish.kind, *pictures, names, answers, meter.passes, meter.seconds)


def compared(rule: str, count: int = 1) -> tuple[str, ...]:
    """The bare model, the published rule, one that detects and one that recovers: the chosen one in its place.

    The published rule knows one patch at once, and is left out where there are more.
    """
    kind = listed(rule).rule.guarantee
    published = ("published",) if count == 1 else ()
    detection = rule if kind is Guarantee.DETECTION else "zoom-detection"
    return "undefended", *published, detection, rule if kind is Guarantee.RECOVERY else "zoom"


def _decided(bench: Bench, image: Tensor) -> dict[str, tuple[Decision, bool]]:
    """What each defence answers about the clean photo, and whether the photo passes its test for recovery's answer.

    Recovery comes last; what it answers is what the photo shows, as far as anybody here knows.
    """

    def program(_: list[int], store: VoteStore) -> Asking[list[list[tuple[Decision, bool]]]]:
        decisions = yield from together(one.deciding(bench.engine, store) for one in bench.defences)
        labels = np.array([_true_label(one) for one in decisions[-1]])
        passed = yield from together(one.certifying(bench.engine, store, labels) for one in bench.defences)
        found = zip(decisions, passed, strict=True)
        return [[(decision[0], bool(passes[0])) for decision, passes in found]]

    (found,) = bench.engine.run([image], program)
    return {one.name: outcome for one, outcome in zip(bench.defences, found.value, strict=True)}


def _true_label(decision: Decision) -> int:
    """The class of an answer, as the true one; any where there is none."""
    return max(decision.label, 0)


def _attacked(
    studio: Studio, bench: Bench, image: Tensor, label: int, patch: Patch, wish: Wish, meter: Meter, tell: Tell | None
) -> tuple[Tensor, Size]:
    """The photo with the patch that is wished for, and its corner."""
    if wish.kind in (NETWORK, PUBLISHED):
        surrogate = Watched(bench, studio.given(bench.classifier.name), meter, tell)
        return _optimized(bench, surrogate, image, label, patch, wish)
    corner = wish.corner if wish.corner is not None else _middle(image, patch)
    content = eight_bits(_content(studio, patch, wish))
    job = Job(image[None], torch.tensor([label]), patch, torch.tensor([corner])).checked()
    return paste(job.images, content[None], torch.tensor([corner]))[0], corner


def _middle(image: Tensor, patch: Patch) -> Size:
    return (image.shape[1] - patch.height) // 2, (image.shape[2] - patch.width) // 2


def _content(studio: Studio, patch: Patch, wish: Wish) -> Tensor:
    """Noise, the same each time, or the sticker that was brought, squeezed to the patch's size."""
    if wish.kind == NOISE:
        return torch.rand(3, *patch.size, generator=torch.Generator().manual_seed(0))
    if wish.kind != STICKER:
        raise UsageError(f"expected a patch of {any_of(KINDS.values())}, got {wish.kind!r}")
    if wish.sticker is None:
        raise UsageError("expected a picture for the sticker, got none: choose a file first")
    return to_tensor(studio.lab.developed(wish.sticker, Framing(1.0, squash=True), patch.size))


class Watched(Surrogate):
    """The network as an attacker sees it; every step is told, and refused once the time is up."""

    def __init__(self, bench: Bench, model: str, meter: Meter, tell: Tell | None) -> None:
        own = isinstance(bench.classifier.model, nn.Module)
        super().__init__(bench.classifier, network=None if own else load_model(model), engine=bench.engine)
        self._meter, self._tell, self._steps = meter, tell, 0

    def __call__(self, pictures: Tensor, sets: Tensor) -> Tensor:
        self._steps += 1
        self._meter.check()
        if self._tell:
            self._tell(self._steps, "steps of the attack")
        return super().__call__(pictures, sets)


def _optimized(
    bench: Bench, surrogate: Surrogate, image: Tensor, label: int, patch: Patch, wish: Wish
) -> tuple[Tensor, Size]:
    """A patch by gradient descent, against the bare network or against the published rule."""
    (judged,) = (one for one in bench.defences if one.name == TARGETS[wish.kind])
    if wish.kind == NETWORK:
        attack = PatchAttack(surrogate, Descent(STEPS))
    else:
        attack = AdaptiveAttack(surrogate, judged, Descent(STEPS), goals=(SPARE_ONE,), views=VIEWS)
    corners = None if wish.corner is None else torch.tensor([wish.corner])
    found = attack(Job(image[None], torch.tensor([label]), patch, corners), defence_judge(bench.engine, judged))
    top, left = found.corners[0].tolist()
    return found.pictures[0], (top, left)
