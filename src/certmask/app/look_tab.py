"""The tab on which a photo is looked at through a defence."""

from __future__ import annotations

from typing import Any

import gradio as gr

from certmask.app.canvas import picture_uri
from certmask.app.controls import PROGRESS, QUEUED, Controls, answered, question_of, telling
from certmask.app.examples import Photo
from certmask.app.findings import found, picture
from certmask.app.studio import Studio
from certmask.app.study import study
from certmask.report.markup import tag


class LookTab:
    """A button, and what was found; it starts with what was found about the example."""

    def __init__(self, studio: Studio, controls: Controls, first: str) -> None:
        self.studio = studio
        button = gr.Button("Look at it", variant="primary", elem_id="look")
        result = gr.HTML(first, min_height=160, elem_id="result")
        asked, seen = [controls.photo, *controls.question], [controls.photo, controls.model]
        button.click(answered(self._look), asked, result, show_progress="full", **QUEUED)
        for part in (controls.photo, controls.model):
            part.change(answered(self._preview), seen, result, show_progress="hidden", **QUEUED)

    def _look(self, photo: Photo, *told: Any, progress: gr.Progress = PROGRESS) -> str:
        return str(found(study(self.studio, photo, question_of(*told), telling(progress))))

    def _preview(self, photo: Photo, model: str) -> str:
        """Another photo than what was found is about."""
        address, alt = picture_uri(self.studio.seen(photo, model)), f"{photo.name} as the model sees it"
        return str(tag("div", tag("div", picture(address, alt, "not looked at yet"), class_="cm-pair"), class_="cm"))
