"""What is asked: the photo, the model, the threat and the defence, as the tabs of the page share them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

import gradio as gr

from certmask.app.door import CACHE
from certmask.app.examples import EXAMPLES, Photo
from certmask.app.findings import notice
from certmask.app.queue import MODEL
from certmask.app.studio import MOST_PATCHES, RULES, Question, Studio, Tell
from certmask.app.study import price
from certmask.covers.default import default_patch
from certmask.errors import CertmaskError
from certmask.report.markup import Markup, tag
from certmask.rules.registry import listed

STARTS = {"resnet26-cifar10": 11}
"""The side of the patch that the page starts with, where one of the default size fools nobody."""
UPLOADED = "your photo"
"""What an upload is called."""
PROGRESS = gr.Progress()
"""Gradio puts each visitor's own in its place."""
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
QUEUED: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": MODEL, "api_visibility": "private"}
"""What asks a model waits in one queue."""


def start_of(studio: Studio) -> Question:
    """The question that the page starts with."""
    return Question(studio.models[0], start_side(studio, studio.models[0]))


def start_side(studio: Studio, model: str) -> int:
    return STARTS.get(model, default_patch(studio.size(model)).height)


def most_side(studio: Studio, model: str) -> int:
    """Patches of up to half the picture's side."""
    return min(studio.size(model)) // 2


def question_of(model: str, side: float, count: float, rule: str) -> Question:
    """What the controls say."""
    return Question(str(model), int(side), int(count), str(rule))


def telling(progress: gr.Progress) -> Tell:
    """How far somebody's question is, told on their page."""
    return lambda done, what: progress((done, None), unit=what)


def answered(work: Callable[..., str]) -> Callable[..., str]:
    """The same function; an error becomes a notice in its place."""

    @wraps(work)
    def told(*arguments: Any, **more: Any) -> str:
        try:
            return work(*arguments, **more)
        except CertmaskError as error:
            return str(notice(str(error)))
        except RuntimeError:
            logging.exception("expected an answer, got a fault")
            return str(notice("expected an answer, got a fault, which the page's own output tells more about"))

    return told


class Controls:
    """The photo, which is each visitor's own, and the question, as every tab reads them.

    ``photo`` are the name of an example, None where there is none, and the visitor's own photo, None once it is gone.
    """

    def __init__(self, studio: Studio, start: Question) -> None:
        self.studio = studio
        self.own = gr.State(None, time_to_live=CACHE[1])
        with gr.Row():
            with gr.Column(min_width=260):
                _heading("The photo")
                self._lay_out_photo()
            with gr.Column(min_width=260):
                _heading("Who looks at it")
                self.model = gr.Dropdown(list(studio.models), value=start.model, label="Model", elem_id="model")
                self.rule = gr.Dropdown(_rules(), value=start.rule, label="Defence (what it proves)", elem_id="rule")
            with gr.Column(min_width=260):
                _heading("The patch that it must withstand")
                self._lay_out_threat(start)
        self.price = gr.HTML(self._price(start), elem_id="price")
        self.refusal = gr.HTML(elem_id="refusal")
        self.photo = [self.examples, self.own]
        self.question = [self.model, self.side, self.count, self.rule]
        self._listen()

    def when_other_photo(self, work: Callable[..., Any], asked: list[Any] | None, told: Any) -> None:
        """What is to be done as soon as another photo is chosen."""
        self.examples.input(work, asked, told, **QUIET)
        self.own.change(work, asked, told, **QUIET)

    def _lay_out_photo(self) -> None:
        own: dict[str, Any] = {"type": "binary", "file_types": ["image"], "height": 120}
        self.examples = gr.Radio(EXAMPLES, value=EXAMPLES[0], label="An example", elem_id="examples")
        self.upload = gr.File(label="or your own", elem_id="photo", **own)

    def _lay_out_threat(self, start: Question) -> None:
        self.side = gr.Slider(
            1,
            most_side(self.studio, start.model),
            start.side,
            step=1,
            label=self._side_label(start.model),
            elem_id="side",
        )
        counts = list(range(1, MOST_PATCHES + 1))
        self.count = gr.Radio(counts, value=1, label="How many at once", elem_id="count")

    def _listen(self) -> None:
        self.examples.input(lambda: (None, None, ""), None, [self.own, self.upload, self.refusal], **QUIET)
        self.upload.clear(lambda: (None, EXAMPLES[0], ""), None, [self.own, self.examples, self.refusal], **QUIET)
        seen = [self.own, self.examples, self.upload, self.refusal]
        self.upload.upload(self._uploaded, [self.upload, self.model], seen, **QUIET)
        self.model.change(self._fitted, self.model, self.side, **QUIET)
        for part in (self.model, self.side, self.count, self.rule):
            part.change(lambda *told: self._price(question_of(*told)), self.question, self.price, **QUIET)

    def _uploaded(self, content: bytes, model: str) -> Any:
        """The new photo, if it is one; else why not."""
        photo = Photo(UPLOADED, content)
        try:
            self.studio.seen(photo, model)
        except CertmaskError as error:
            return gr.skip(), gr.skip(), None, str(notice(f"{error}. The photo before it is kept."))
        return photo, None, gr.skip(), ""

    def _fitted(self, model: str) -> Any:
        """The sizes that a patch may have on another model's input."""
        most, label = most_side(self.studio, model), self._side_label(model)
        return gr.update(maximum=most, value=start_side(self.studio, model), label=label)

    def _side_label(self, model: str) -> str:
        height, width = self.studio.size(model)
        return f"Side in pixels, of {height}×{width}"

    def _price(self, question: Question) -> Markup:
        """What a question may cost, before it is asked."""
        try:
            return tag("p", f"Looking takes {price(self.studio, question).sentence}.", class_="cm cm-note")
        except CertmaskError as error:
            return notice(str(error))


def _heading(words: str) -> None:
    gr.HTML(tag("h2", words, class_="cm cm-step"), padding=False)


def _rules() -> list[tuple[str, str]]:
    """The defences with what they promise."""
    return [(f"{rule} ({listed(rule).rule.guarantee.promise})", rule) for rule in RULES]
