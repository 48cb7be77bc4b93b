"""Photos that wait for the one thread that owns the model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic

from certmask.errors import ChangedModelError
from certmask.service.answers import PhotoAnswer
from certmask.service.examiner import Examiner, Job
from certmask.service.limits import RefusedError

LOG = logging.getLogger("certmask.service")


class PhotoQueue:
    """Hands photos to the examiner in the order in which they came; those that wait together share its batches.

    ``done`` is called in the queue's own thread with every job that is answered. A model that is seen to answer
    otherwise than at first answers no more: ``broken`` is why.
    """

    def __init__(self, examiner: Examiner, done: Callable[[Job, PhotoAnswer | RefusedError, float], None]) -> None:
        self.examiner, self.broken = examiner, ""
        self._done = done
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._taken: set[Job] = set()
        self._worker = Thread(target=self._work, name="certmask-model", daemon=True)

    def start(self) -> None:
        self._worker.start()

    def put(self, job: Job) -> None:
        self._jobs.put(job)

    def finish(self) -> None:
        """Answer what waits, then end."""
        self._jobs.put(None)
        self._worker.join()

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            self._taken.add(first)
            try:
                self._answer(self._waiting(first))
            except ChangedModelError as error:
                self.broken = str(error)
                LOG.error("%s", error)
                self._refuse(RefusedError(500, self.broken))
            except Exception as error:
                LOG.exception("photos in work were not answered")
                self._refuse(RefusedError(500, f"expected to go on, got {type(error).__name__}"))

    def _waiting(self, first: Job) -> Iterator[Job]:
        """The first one and what comes while it is looked at; who waited too long is left out."""
        job: Job | None = first
        while job is not None:
            if self.broken:
                self._tell(job, RefusedError(500, self.broken), 0.0)
            elif monotonic() > job.deadline:
                self._tell(job, RefusedError(503, "expected a turn in time, got a queue that is too long", 1), 0.0)
            else:
                self._taken.add(job)
                yield job
            job = self._next()

    def _next(self) -> Job | None:
        """What waits now; the end stays in the queue."""
        try:
            job = self._jobs.get_nowait()
        except Empty:
            return None
        if job is None:
            self._jobs.put(None)
        return job

    def _answer(self, jobs: Iterator[Job]) -> None:
        last = monotonic()
        for job, found in self.examiner.answers(jobs):
            now = monotonic()
            self._tell(job, found, now - last)
            last = now

    def _refuse(self, refusal: RefusedError) -> None:
        """Tell all whose photos are in work."""
        for job in list(self._taken):
            self._tell(job, refusal, 0.0)

    def _tell(self, job: Job, found: PhotoAnswer | RefusedError, seconds: float) -> None:
        self._taken.discard(job)
        self._done(job, found, seconds)
        if not job.answer.set_running_or_notify_cancel():
            return
        if isinstance(found, RefusedError):
            job.answer.set_exception(found)
        else:
            job.answer.set_result(found)
