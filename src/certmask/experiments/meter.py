"""Time and energy of a run, written beside its results file."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from certmask.certify import Progress
from certmask.errors import ResultsError
from certmask.experiments.energy import Counter


@dataclass(frozen=True)
class Session:
    """One uninterrupted stretch of a run, compiling left out."""

    passes: int
    seconds: float
    joules: float | None


class Meter:
    """Listens to a run's progress; the clock starts with the first word, which comes after warming up."""

    def __init__(self, progress: Progress, energy: Counter) -> None:
        self._progress, self._energy = progress, energy
        self._passes, self._began = 0, 0.0
        self._joules: float | None = None

    def __call__(self, what: str, count: int) -> None:
        if not self._began:
            self._began, self._joules = time.perf_counter(), self._energy()
        if what == "passes":
            self._passes += count
        self._progress(what, count)

    def session(self) -> Session:
        seconds = time.perf_counter() - self._began if self._began else 0.0
        after = self._energy()
        joules = None if after is None or self._joules is None else after - self._joules
        return Session(self._passes, seconds, joules)


def meter_path(results: Path) -> Path:
    return results.with_suffix(".meter.json")


def add_session(results: Path, session: Session) -> None:
    """Note a session; one without a pass says nothing and is not noted."""
    if session.passes:
        sessions = [asdict(s) for s in (*read_sessions(results), session)]
        meter_path(results).write_text(json.dumps(sessions, indent=1) + "\n", encoding="utf-8")


def read_sessions(results: Path) -> list[Session]:
    """What was noted beside a results file; nothing if there is no such note."""
    path = meter_path(results)
    if not path.is_file():
        return []
    try:
        return [Session(**session) for session in json.loads(path.read_text(encoding="utf-8"))]
    except (ValueError, TypeError) as error:
        raise ResultsError(f"expected passes, seconds and joules of every session in {path}, got {error}") from None


def milliseconds_per_pass(sessions: list[Session]) -> float | None:
    passes = sum(s.passes for s in sessions)
    return 1000 * sum(s.seconds for s in sessions) / passes if passes else None


def joules_per_pass(sessions: list[Session]) -> float | None:
    """Over the sessions whose energy is known."""
    known = [(s.passes, s.joules) for s in sessions if s.joules is not None]
    passes = sum(count for count, _ in known)
    return sum(joules for _, joules in known) / passes if passes else None
