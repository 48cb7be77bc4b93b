"""Workers that die at any moment: every photo is answered once, and nobody is begun again without end."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from PIL import Image

from certmask.data import Sample
from certmask.errors import CertmaskError, ChangedModelError
from certmask.scale.attempts import RETRIES
from certmask.scale.crew import AT_HAND, CRASHES, Crew
from certmask.scale.pool import Pool
from certmask.scale.setting import Setting, Workplace
from certmask.scale.worker import Orders

pytest.importorskip("ray")


class RayError(Exception):
    """As Ray's own: something that is no answer."""


class DiedError(RayError):
    """As Ray's own: a worker, or what it found, is gone."""


class RayTaskError(RayError):
    """As Ray's own: a call ended in an error."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Handle:
    """A worker that is called, and may be dead."""

    def __init__(self, ray: Ray, number: int) -> None:
        self.ray, self.number, self.dead = ray, number, False

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: Call(self, method, arguments))


class Call:
    """What a worker was asked."""

    def __init__(self, handle: Handle, method: str, arguments: tuple[Any, ...]) -> None:
        self.handle, self.method, self.arguments = handle, method, arguments


Answers = Callable[[Handle, str, tuple[Any, ...]], Any]


class Ray:
    """What a crew uses of Ray, in this process: calls are answered in any order, by a function."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, RayActorError=DiedError, WorkerCrashedError=DiedError,
        OutOfMemoryError=DiedError, NodeDiedError=DiedError, ObjectLostError=DiedError,
    )  # fmt: skip

    def __init__(self, answers: Answers, seed: int = 0, never: frozenset[int] = frozenset()) -> None:
        self.answers, self.chance, self.never = answers, random.Random(seed), never
        self.started: list[Handle] = []
        self.most = 0

    def remote(self, _: type) -> Any:
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: self._begun()))

    def _begun(self) -> Handle:
        self.started.append(Handle(self, len(self.started)))
        return self.started[-1]

    def put(self, thing: Any) -> Any:
        return thing

    def wait(self, calls: list[Call], num_returns: int) -> tuple[list[Call], list[Call]]:
        able = [call for call in calls if call.handle.number not in self.never]
        assert able, "expected somebody who can answer, got a wait without end"
        assert num_returns == 1
        self.most = max(self.most, *Counter(call.handle for call in calls).values())
        return [self.chance.choice(able)], []

    def get(self, call: Call) -> Any:
        if call.handle.dead:
            raise DiedError("dead")
        return self.answers(call.handle, call.method, call.arguments)

    def kill(self, handle: Handle) -> None:
        handle.dead = True


def samples(count: int) -> list[Sample]:
    return [Sample(f"{number}", 0, partial(Image.new, "RGB", (1, 1))) for number in range(count)]


def crew(ray: Ray, size: int, monkeypatch: pytest.MonkeyPatch) -> Crew:
    monkeypatch.setattr("certmask.scale.crew.started_record", lambda _: SimpleNamespace(close=lambda: None))
    return Crew(ray, Pool(gpus=0.0), size, cast("Setting", None), Workplace(Path(), 1))


def begun(made: Crew) -> Crew:
    made.begin(cast("Orders", "orders"))
    return made


def names(_: Handle, method: str, arguments: tuple[Any, ...]) -> Any:
    """Who lives long says what it was shown."""
    return [sample.name for sample in pickle.loads(arguments[0])] if method == "rows" else "surveyed"


@pytest.mark.parametrize("seed", range(20))
def test_every_photo_is_answered_once_whoever_dies(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)

    def mortal(handle: Handle, method: str, arguments: tuple[Any, ...]) -> Any:
        if chance.random() < 0.1:
            handle.dead = True
            raise DiedError("died")
        return names(handle, method, arguments)

    ray = Ray(mortal, seed)
    photos = samples(chance.randrange(1, 90))
    with crew(ray, chance.randrange(1, 5), monkeypatch) as made:
        assert made.survey(None) == cast("Any", "surveyed")
        found = [name for answer in begun(made).each("rows", photos, 4, RETRIES) for name in answer]
    assert sorted(found) == sorted(sample.name for sample in photos)
    assert ray.most <= AT_HAND
    assert all(handle.dead for handle in ray.started), "expected nobody to be left"


def test_who_never_comes_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for two workers, but the place of one is taken by others."""
    ray = Ray(names, never=frozenset({0}))
    with crew(ray, 2, monkeypatch) as made:
        assert made.survey(None) == cast("Any", "surveyed")
        assert len(list(begun(made).each("rows", samples(40), 4))) == 10
    assert all(handle.dead for handle in ray.started)


def test_workers_that_die_before_they_work_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def stillborn(*_: Any) -> Any:
        raise DiedError("The actor died.\n\tclass_name: Worker\nout of memory\nmore")

    ray = Ray(stillborn)
    with (
        pytest.raises(
            CertmaskError, match=r"^expected to set up a worker, got one that died each time: out of memory$"
        ),
        crew(ray, 2, monkeypatch) as made,
    ):
        made.survey(None)
    assert len(ray.started) <= 2 * (1 + CRASHES)
    assert all(handle.dead for handle in ray.started)


def test_workers_that_die_as_they_begin_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every one of them, however often it is replaced."""

    def weak(handle: Handle, method: str, arguments: tuple[Any, ...]) -> Any:
        if method == "begin":
            raise DiedError("illegal instruction")
        return names(handle, method, arguments)

    ray = Ray(weak)
    with pytest.raises(CertmaskError, match="illegal instruction"), crew(ray, 2, monkeypatch) as made:
        list(worked(made))
    assert len(ray.started) <= 2 * (1 + CRASHES)


def test_a_node_that_goes_takes_its_workers_not_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight of sixteen die at the same moment, while they load the model."""

    def there(handle: Handle, method: str, arguments: tuple[Any, ...]) -> Any:
        if handle.number < 8:
            raise DiedError("node died")
        return names(handle, method, arguments)

    ray = Ray(there)
    with crew(ray, 16, monkeypatch) as made:
        found = [name for answer in worked(made) for name in answer]
    assert sorted(found) == sorted(sample.name for sample in samples(8))
    assert len(ray.started) <= 16 + 8


def test_what_is_no_death_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that cannot be unpacked is the same of every worker."""

    def odd(handle: Handle, method: str, arguments: tuple[Any, ...]) -> Any:
        if method == "rows":
            raise RayError("cannot be unpickled")
        return names(handle, method, arguments)

    ray = Ray(odd)
    with pytest.raises(CertmaskError, match="cannot be unpickled"), crew(ray, 2, monkeypatch) as made:
        list(worked(made))
    assert len(ray.started) == 2


@pytest.mark.parametrize("size", [1, 2])
def test_who_was_beside_a_photo_that_kills_is_not_blamed(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that takes many workers down before its photos are set aside costs its neighbours one at most."""
    deaths, shown = Counter[str](), Counter[str]()

    def killed(handle: Handle, method: str, arguments: tuple[Any, ...]) -> Any:
        if method == "rows":
            own = names(handle, method, arguments)
            shown[own[0]] += 1
            if own[0] == "4" and deaths["4"] < 1 + RETRIES * 4 + CRASHES:
                deaths["4"] += 1
                handle.dead = True
                raise DiedError("died")
        return names(handle, method, arguments)

    ray = Ray(killed)
    with crew(ray, size, monkeypatch) as made:
        found = [name for answer in begun(made).each("rows", samples(40), 4, RETRIES) for name in answer]
    assert sorted(found) == sorted(sample.name for sample in samples(40))
    assert deaths["4"] == 1 + RETRIES * 4 + CRASHES
    assert all(times == 1 for first, times in shown.items() if first != "4")
    assert len(ray.started) == size + deaths["4"]


def test_photos_that_kill_everybody_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(handle: Handle, method: str, arguments: tuple[Any, ...]) -> Any:
        if method == "rows" and "5" in names(handle, method, arguments):
            raise DiedError("died")
        return names(handle, method, arguments)

    ray = Ray(killed)
    with (
        pytest.raises(CertmaskError, match=r"^expected the photos from 4 on to be done, got \d+ dead workers.*died$"),
        crew(ray, 2, monkeypatch) as made,
    ):
        list(begun(made).each("rows", samples(40), 4))
    assert all(handle.dead for handle in ray.started)


def test_a_survey_that_kills_everybody_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(_: Handle, method: str, __: tuple[Any, ...]) -> Any:
        if method == "survey":
            raise DiedError("died")

    with (
        pytest.raises(CertmaskError, match=r"^expected to try the model with some photos, got a worker that died each"),
        crew(Ray(killed), 2, monkeypatch) as made,
    ):
        made.survey(None)


def worked(made: Crew) -> Iterator[Any]:
    made.survey(None)
    yield from begun(made).each("rows", samples(8), 4)


@pytest.mark.parametrize("method", ["set_up", "survey", "begin", "rows"])
def test_an_error_of_a_worker_is_that_of_the_run(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own kind where it is one of certmask's, and never taken for the death of a worker."""

    def failing(handle: Handle, asked: str, arguments: tuple[Any, ...]) -> Any:
        if asked == method:
            raise RayTaskError(cause)
        return names(handle, asked, arguments)

    for cause, kind in (
        (ChangedModelError("expected this, got that"), ChangedModelError),
        (RayError("expected a record, got none"), CertmaskError),
        (ValueError("a bug"), RuntimeError),
    ):
        ray = Ray(failing)
        with pytest.raises(kind, match=str(cause)), crew(ray, 2, monkeypatch) as made:
            list(worked(made))
        assert len(ray.started) == 2
