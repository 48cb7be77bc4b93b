"""Models and defences that are at hand: loaded when they are first asked for, a few kept, one question at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from threading import RLock
from time import monotonic
from typing import TypeVar

from PIL import Image

from certmask.app.examples import Photo
from certmask.app.lab import Lab
from certmask.backends import BACKENDS, default_backend
from certmask.backends.devices import present_device
from certmask.certificate import Guarantee
from certmask.classifier import Classifier
from certmask.company import probes
from certmask.covers import Cover
from certmask.data import Framing
from certmask.defences import MaskedDefence
from certmask.deployed.tokens import cover_for
from certmask.engine import Engine
from certmask.engine.margin import measured_margin
from certmask.errors import UsageError, any_of
from certmask.results.file import Row
from certmask.rules.registry import REGISTER, listed
from certmask.service.limits import Limits, RefusedError
from certmask.threat import Patch, Size, Threat
from certmask.votes import Margin
from certmask.zoo import Card, backend_of, card_of, framing_of, load_classifier
from certmask.zoo.models import short_name

T = TypeVar("T")
KEPT_MODELS, KEPT_BENCHES = 3, 8
BATCH, MOST_BATCH = 8, 32
"""Images in a batch on a CPU, where one photo fills no larger one, and the most for a run that had so many."""
RULES = tuple(row.option for row in REGISTER if row.suits != "bands" and row.option != "pair-detection")
"""The rules of the page: those that look at any classifier through masks; some know one patch at once."""
SHARP = 256
"""Pixels of a picture's side for people, at least half of it."""
MOST_PATCHES = 2
"""Patches at once: with more, passes are beyond what people wait for."""

Tell = Callable[[int, str], None]
"""Told how much is done, and of what."""


@dataclass(frozen=True)
class Question:
    """Which model is to be defended against which patch, and how."""

    model: str
    side: int
    count: int = 1
    rule: str = REGISTER[0].option

    @property
    def threat(self) -> Patch:
        return Patch(self.side, self.side, self.count)


def in_passes(count: int) -> str:
    """So many passes, in words."""
    return "1 pass" if count == 1 else f"{count:,} passes"


class Meter:
    """Counts passes as they are made and tells of them; what takes too many of them, or too long, is refused."""

    def __init__(self, limits: Limits, tell: Tell | None = None) -> None:
        self.limits, self.passes = limits, 0
        self._tell, self._start = tell, monotonic()

    @property
    def seconds(self) -> float:
        return monotonic() - self._start

    def __call__(self, passes: int) -> None:
        self.passes += passes
        if self._tell:
            self._tell(self.passes, "passes")
        self.check()
        most = self.limits.passes
        if most is not None and self.passes > most:
            raise RefusedError(422, f"expected a photo that takes at most {in_passes(most)}, got one more")

    def check(self) -> None:
        """Refuse to go on once the time is up."""
        if self.seconds > self.limits.seconds:
            raise RefusedError(504, f"expected an answer within {self.limits.seconds:g} s, got none in that time")


@dataclass(frozen=True)
class Bench:
    """An engine with the defences that share it."""

    engine: Engine
    defences: Sequence[MaskedDefence]

    @property
    def classifier(self) -> Classifier:
        return self.engine.classifier

    @contextmanager
    def metered(self, meter: Meter) -> Iterator[None]:
        """The meter counts what the engine does meanwhile."""
        self.engine.progress = meter
        try:
            yield
        finally:
            self.engine.progress = None


class Studio:
    """The models that a page offers, each loaded once, and what they are defended with.

    Whoever uses one of its benches holds ``alone``: engines answer one question at a time. It is closed in the end.
    """

    def __init__(
        self,
        models: Sequence[str],
        limits: Limits,
        *,
        device: str = "auto",
        precision: str = "auto",
        backend: str = "auto",
    ) -> None:
        if not models:
            raise UsageError("expected at least one model, got none")
        self._given = {short_name(model): model for model in models}
        if len(self._given) < len(set(models)):
            raise UsageError(f"expected models of different names, got {any_of(models)}")
        self.limits, self.lab = limits, Lab(limits)
        self.device, self.precision = str(present_device(device)), precision
        self.backend = default_backend(self.device) if backend == "auto" else backend
        self.alone, self._loading = RLock(), RLock()
        self._classifiers: OrderedDict[Hashable, Classifier] = OrderedDict()
        self._benches: OrderedDict[Hashable, Bench] = OrderedDict()

    @property
    def models(self) -> tuple[str, ...]:
        """What the page calls them: files and folders by their own names, not by where they lie."""
        return tuple(self._given)

    def given(self, model: str) -> str:
        """The model as ``load_classifier`` takes it; an error for one that is not offered, so that nobody loads it."""
        if model not in self._given:
            raise UsageError(f"expected the model {any_of(self.models)}, got {model!r}")
        return self._given[model]

    def card(self, model: str) -> Card:
        """A model's classes and input."""
        return card_of(self.given(model))

    def size(self, model: str) -> Size:
        """Height and width of a model's input."""
        return self.card(model).size

    def seen(self, photo: Photo, model: str) -> Image.Image:
        """What a model is shown of a photo."""
        return self.lab.developed(photo, framing_of(self.given(model)), self.size(model))

    def sharp(self, photo: Photo, model: str) -> Image.Image:
        """The same part of the photo for people: where the model's input is small, with more pixels."""
        framing, (height, width) = framing_of(self.given(model)), self.size(model)
        scale = max(1, SHARP // max(height, width))
        return self.lab.developed(photo, _scaled(framing, scale), (scale * height, scale * width))

    def close(self) -> None:
        """End the processes that decode photos."""
        self.lab.close()

    def classifier(self, model: str, made: Row | None = None) -> Classifier:
        """A model, loaded unless it is one of the last few; computed as a results file says, if it can be here."""
        given, made = self.given(model), made or {}
        backend, precision = backend_of(given) or self.backend, self.precision
        if backend_of(given) is None and _is_at_hand(made, self.device):
            backend, precision = str(made["backend"]), str(made["precision"])
        batch, usual = made.get("batch"), BATCH if self.device == "cpu" and backend_of(given) is None else None
        shape = batch if batch is not None and batch <= MOST_BATCH else usual

        def load() -> Classifier:
            return load_classifier(given, device=self.device, precision=precision, backend=backend, batch=shape)

        with self._loading:
            return _kept(self._classifiers, (model, backend, precision, shape), load, KEPT_MODELS)

    def cover(self, question: Question) -> Cover:
        """The masks of a question's defence; an error for a threat that they cannot be made for."""
        return masks_for(self.classifier(question.model), question.threat, question.rule)

    def bench(self, question: Question, rules: Sequence[str] = ()) -> Bench:
        """An engine with the rule that is asked about, or with several against the same threat."""
        return self._bench(question.model, question.threat, tuple(rules or [question.rule]))

    def _bench(self, model: str, threat: Threat, rules: tuple[str, ...]) -> Bench:
        def build() -> Bench:
            classifier = self.classifier(model)
            covers = [masks_for(classifier, threat, rule) for rule in rules]
            for cover, rule in zip(covers, rules, strict=True):
                _defence(cover, rule)  # what does not go together is refused before anything is measured
            margin = measured_margin(Engine(classifier, covers), list(probes(classifier.size)))
            return bench_of(
                classifier, [_defence(cover, rule, margin) for cover, rule in zip(covers, rules, strict=True)]
            )

        return _kept(self._benches, (model, threat, rules), build, KEPT_BENCHES)


def bench_of(classifier: Classifier, defences: Sequence[MaskedDefence]) -> Bench:
    """A bench for defences as they are."""
    return Bench(Engine(classifier, [defence.cover for defence in defences]), defences)


def _is_at_hand(made: Row, device: str) -> bool:
    """Whether a results file's backend is installed and computes its precision on this device."""
    for backend in BACKENDS:
        if backend.name == made.get("backend") and made.get("precision") in backend.precisions:
            return backend.serves(device) and find_spec(backend.package) is not None
    return False


def _scaled(framing: Framing, scale: int) -> Framing:
    """The framing that shows an input with so many more pixels a side the same part of a photo."""
    resized = framing.resized
    if resized is None:
        return framing
    if isinstance(resized, int):
        return replace(framing, resized=scale * resized)
    return replace(framing, resized=(scale * resized[0], scale * resized[1]))


def _defence(cover: Cover, rule: str, margin: Margin | None = None) -> MaskedDefence:
    """A rule with its masks; what promises something is told the margin."""
    row = listed(rule)
    return MaskedDefence(cover, row.made(None if row.rule.guarantee is Guarantee.NONE else margin), rule)


def masks_for(classifier: Classifier, threat: Threat, rule: str) -> Cover:
    """The masks that ``certmask predict`` takes for a rule; beside the bare classifier, those that would have a say."""
    if rule not in RULES:
        raise UsageError(f"expected the defence {any_of(RULES)}, got {rule!r}")
    return cover_for(classifier, threat, rule)


def _kept(shelf: OrderedDict[Hashable, T], key: Hashable, make: Callable[[], T], most: int) -> T:
    """What is on the shelf, or is made and put there; what was not asked for longest makes room."""
    if key not in shelf:
        made = make()
        while len(shelf) >= most:
            shelf.popitem(last=False)
        shelf[key] = made
    shelf.move_to_end(key)
    return shelf[key]
