"""Who waits for an answer: bounded in all, and for each visitor, so that nobody keeps others out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import gradio as gr
from gradio.queueing import Event, Queue

from certmask.service.limits import Limits

MODEL = "model"
"""What questions to a model are called, of which one is computed at a time."""
SMALL, SMALL_EACH = 128, 32
"""Other requests that may wait, such as previews and prices: of all visitors, and of one."""
ANOTHER = "expected one question at a time, got another one: its turn comes once the first is answered"
TOO_FAST = f"expected at most {SMALL_EACH} changes that wait for the page, got more: try again in a moment"
FULL = "expected room in the queue, got none: try again in a moment"

Taken = tuple[bool, Any, Any]
"""Whether a request is taken, its number or why not, and what kind of answer that is."""


class FairQueue(Queue):  # type: ignore[misc]
    """Gradio's queue, in which a visitor has one question to a model at most, and no more than a share of the rest.

    A visitor is a page that is open in a browser. Whoever writes requests by hand can be many visitors.
    """

    def __init__(self, blocks: gr.Blocks, limits: Limits) -> None:
        super().__init__(
            live_updates=True,
            concurrency_count=blocks.max_threads,
            update_intervals=1,
            max_size=None,
            blocks=blocks,
            default_concurrency_limit=1,
        )
        self._limits, self._door = limits, asyncio.Lock()

    async def push(self, body: Any, request: Any, username: str | None) -> Taken:
        """Take a request, or say why not."""
        async with self._door:
            refused = self._refused(str(body.session_hash), self._is_question(body.fn_index))
            taken: Taken = refused or await super().push(body, request, username)
            return taken

    def _is_question(self, number: int | None) -> bool:
        function = self.blocks.fns.get(number)
        return function is not None and function.concurrency_id == MODEL

    def _refused(self, visitor: str, question: bool) -> Taken | None:
        waiting = [event for event in self._waiting() if (event.concurrency_id == MODEL) == question]
        running = [event for event in self._running() if (event.concurrency_id == MODEL) == question]
        own = sum(event.session_hash == visitor for event in (*waiting, *running))
        if own >= (1 if question else SMALL_EACH):
            return False, ANOTHER if question else TOO_FAST, "error"
        if len(waiting) >= (self._limits.queue if question else SMALL):
            return False, FULL, "queue_full"
        return None

    def _waiting(self) -> Iterator[Event]:
        for line in self.event_queue_per_concurrency_id.values():
            yield from line.queue

    def _running(self) -> Iterator[Event]:
        for events in self.active_jobs:
            yield from events or ()
