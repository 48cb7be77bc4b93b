"""The tab on which a photo is looked at through a defence."""

from __future__ import annotations

from typing import Any

import gradio as gr

from certmask.app.canvas import picture_uri
from certmask.app.controls import PROGRESS, QUEUED, QUIET, Controls, answered, question_of, telling
from certmask.app.examples import Photo, chosen_photo
from certmask.app.findings import PART, found, picture
from certmask.app.studio import Studio
from certmask.app.study import study
from certmask.report.markup import tag


class LookTab:
    """A button, and what was found; it starts with what was found about the example."""

    def __init__(self, studio: Studio, controls: Controls, first: str) -> None:
        self.studio = studio
        button = gr.Button("Look at it", variant="primary", elem_id="look")
        result = gr.HTML(first, min_height=160, elem_id="result")
        asked, seen = [*controls.photo, *controls.question], [*controls.photo, controls.model]
        button.click(answered(self._look), asked, result, show_progress="full", **QUEUED)
        controls.when_other_photo(answered(self._preview), seen, result)
        for part in controls.question:
            part.change(answered(self._preview), seen, result, **QUIET)

    def _look(self, name: str | None, own: Photo | None, *told: Any, progress: gr.Progress = PROGRESS) -> str:
        question = question_of(*told)
        return str(found(study(self.studio, chosen_photo(name, own), question, telling(progress))))

    def _preview(self, name: str | None, own: Photo | None, model: str) -> str:
        """The photo alone: what was found is about another one, or another question."""
        photo = chosen_photo(name, own)
        address, alt = picture_uri(self.studio.sharp(photo, model)), f"the photo, {photo.name}"
        shown = picture(address, alt, f"{PART}; not looked at yet")
        return str(tag("div", tag("div", shown, class_="cm-pair"), class_="cm"))
