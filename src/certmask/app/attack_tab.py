"""The tab on which a patch is put on the photo, and the bare model and some defences answer."""

from __future__ import annotations

from typing import Any

import gradio as gr

from certmask.app.canvas import framed_picture, picture_uri
from certmask.app.confrontation import confronted
from certmask.app.controls import PROGRESS, QUEUED, QUIET, Controls, answered, question_of, telling
from certmask.app.examples import EXAMPLES, Photo, chosen_photo
from certmask.app.findings import picture
from certmask.app.patching import KINDS, NETWORK, PUBLISHED, STICKER, Wish, patched
from certmask.app.studio import Question, Studio
from certmask.report.markup import tag
from certmask.threat import Size

CLICKED = """
element.dataset.listens = '';
element.addEventListener('click', (event) => {
  const image = event.target.closest('img');
  if (!image) return;
  const box = image.getBoundingClientRect();
  trigger('click', {across: (event.clientX - box.left) / box.width, down: (event.clientY - box.top) / box.height});
});
"""
"""Where on the picture somebody clicked, as shares of its width and height; a picture that listens says so."""
AIM, FREE = "the patch goes into the frame; click to put it elsewhere", "click where the patch is to go"


class AttackTab:
    """A picture to click on, what the patch shows, a button, and what all of them answer."""

    def __init__(self, studio: Studio, controls: Controls, start: Question) -> None:
        self.studio, self.controls = studio, controls
        with gr.Row():
            with gr.Column(min_width=280):
                aim = self._aim(EXAMPLES[0], None, True, 0, 0, start.model, start.side)
                self.place = gr.HTML(aim, js_on_load=CLICKED, elem_id="place")
            with gr.Column(min_width=280):
                self._lay_out_patch(studio.size(start.model))
        self.result = gr.HTML(min_height=160, elem_id="attacked")
        self._listen()

    def _lay_out_patch(self, size: Size) -> None:
        own: dict[str, Any] = {"type": "binary", "file_types": ["image"], "height": 110, "visible": False}
        self.kind = gr.Radio(list(KINDS.items()), value=NETWORK, label="The patch shows", elem_id="kind")
        self.sticker = gr.File(label="Your sticker", elem_id="sticker", **own)
        self.free = gr.Checkbox(True, label="Let the attack choose the place", elem_id="free")
        with gr.Column(visible=False) as self.corner:
            self.top = gr.Slider(0, size[0] - 1, 0, step=1, label="Row of its top left corner", elem_id="top")
            self.left = gr.Slider(0, size[1] - 1, 0, step=1, label="Column of its top left corner", elem_id="left")
        self.button = gr.Button("Put it there and ask them all", variant="primary", elem_id="attack")

    def _listen(self) -> None:
        controls, aimed = (
            self.controls,
            [*self.controls.photo, self.free, self.top, self.left, *self.controls.question[:2]],
        )
        controls.when_other_photo(answered(self._aim), aimed, self.place)
        moved = [part.change for part in (self.free, self.top, self.left, controls.side, controls.model)]
        gr.on(moved, answered(self._aim), aimed, self.place, trigger_mode="always_last", **QUIET)
        controls.when_other_photo(lambda: "", None, self.result)
        wished = (self.kind, self.sticker, self.free, self.top, self.left)
        for part in (*controls.question, *wished):
            part.change(lambda: "", None, self.result, **QUIET)
        self.place.click(self._clicked, [controls.model, controls.side], [self.top, self.left, self.free], **QUIET)
        self.free.change(lambda free: gr.update(visible=not free), self.free, self.corner, **QUIET)
        self.kind.change(self._chosen, self.kind, [self.sticker, self.free], **QUIET)
        controls.model.change(self._fitted, controls.model, [self.top, self.left], **QUIET)
        asked = [*controls.photo, *wished, *controls.question]
        self.button.click(answered(self._attack), asked, self.result, show_progress="full", **QUEUED)

    def _aim(
        self, name: str | None, own: Photo | None, free: bool, top: float, left: float, model: str, side: float
    ) -> str:
        """The photo, with a frame where the patch is to be unless the attack is ``free`` to choose."""
        photo = chosen_photo(name, own)
        sharp, size, words = self.studio.sharp(photo, model), self.studio.size(model), FREE if free else AIM
        corner, patch = self._inside(model, int(side), top, left), (int(side), int(side))
        address = picture_uri(sharp) if free else framed_picture(sharp, size, corner, patch)
        return str(tag("div", picture(address, f"the photo, {photo.name}; {words}", words), class_="cm"))

    def _clicked(self, event: gr.EventData, model: str, side: float) -> Any:
        """The patch with its centre where somebody clicked."""
        height, width = self.studio.size(model)
        corner = event.down * height - side / 2, event.across * width - side / 2
        return *self._inside(model, int(side), *corner), False

    def _inside(self, model: str, side: int, top: float, left: float) -> Size:
        """The corner nearest to the wanted one at which the patch lies wholly inside the input."""
        height, width = self.studio.size(model)
        return max(0, min(round(top), height - side)), max(0, min(round(left), width - side))

    def _chosen(self, kind: str) -> Any:
        """Stickers need a file; only a patch that is optimized knows where it likes to be."""
        return gr.update(visible=kind == STICKER), kind in (NETWORK, PUBLISHED)

    def _fitted(self, model: str) -> Any:
        """The places on another model's input."""
        return [gr.update(maximum=length - 1, value=0) for length in self.studio.size(model)]

    def _attack(
        self, name: str | None, own: Photo | None, kind: str, sticker: bytes | None, free: bool, top: float,
        left: float, *told: Any,
        progress: gr.Progress = PROGRESS,
    ) -> str:  # fmt: skip
        question = question_of(*told)
        corner = None if free else self._inside(question.model, question.side, top, left)
        wish = Wish(kind, corner, Photo("your sticker", sticker) if sticker else None)
        return str(confronted(patched(self.studio, chosen_photo(name, own), question, wish, telling(progress))))
