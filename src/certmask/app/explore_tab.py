"""The tab on which a results file is opened: its table, its photos by what became of them, one photo's votes."""

from __future__ import annotations

from typing import Any

import gradio as gr

from certmask.app.controls import PROGRESS, QUEUED, QUIET, answered, telling
from certmask.app.explorer import ALL, MOST_ROWS, Library, chosen_rows, class_names, photo_votes, rows_table, summary
from certmask.app.findings import notice
from certmask.app.studio import Studio
from certmask.errors import CertmaskError
from certmask.report.gallery import FATES
from certmask.report.markup import tag

FATE = "Of a published rule, “certified” says that its own test is passed, which proves nothing."


class ExploreTab:
    """A file, a defence and a fate to choose; the rows that are left; one of them more closely."""

    def __init__(self, studio: Studio, library: Library) -> None:
        self.studio, self.library = studio, library
        names = library.names()
        with gr.Row():
            self.file = gr.Dropdown(names, value=None, label=f"Results file in {library.folder.name}", elem_id="run")
            self.again = gr.Button("Look for new files", scale=0, min_width=230, elem_id="again")
        self.table = gr.HTML("" if names else self._nothing(), elem_id="run-table")
        with gr.Row():
            self.defence = gr.Dropdown([], label="Defence", min_width=220, elem_id="run-defence")
            self.fate = gr.Radio([ALL, *FATES], value=ALL, label="Show", info=FATE, min_width=300, elem_id="fate")
        self.named = gr.Textbox(label="Photos whose names have", max_lines=1, elem_id="named")
        self.rows = gr.HTML(elem_id="rows")
        with gr.Row():
            self.image = gr.Dropdown([], label="Photo", elem_id="image")
            self.button = gr.Button("Show its votes", scale=0, min_width=230, variant="primary", elem_id="votes")
        self.result = gr.HTML(min_height=160, elem_id="photo-votes")
        self._listen()

    def _listen(self) -> None:
        chosen, left = [self.file, self.defence, self.fate, self.named], [self.image, self.rows]
        self.again.click(lambda: gr.update(choices=self.library.names()), None, self.file, **QUIET)
        parts = [self.defence, self.fate, self.named, self.result, self.table]
        opened = self.file.input(self._opened, self.file, parts, **QUIET)
        opened.success(self._filtered, chosen, left, **QUIET)
        filters = [self.defence.input, self.fate.input, self.named.change]
        gr.on(filters, self._filtered, chosen, left, trigger_mode="always_last", **QUIET)
        for part in (self.defence, self.fate, self.image):
            part.change(lambda: "", None, self.result, **QUIET)
        asked = [self.file, self.defence, self.image]
        self.button.click(answered(self._votes), asked, self.result, show_progress="full", **QUEUED)

    def _nothing(self) -> str:
        words = (
            f"There is no results file in {self.library.folder.name}: certmask certify and certmask demo write some."
        )
        return str(tag("p", words, class_="cm cm-note"))

    def _opened(self, name: str) -> Any:
        """A file's defences and its table, or why it cannot be opened."""
        try:
            run = self.library.run(name)
            table = str(summary(run))
        except CertmaskError as error:
            return gr.update(choices=[], value=None), ALL, "", "", str(notice(str(error)))
        return gr.update(choices=list(run.defences), value=list(run.defences)[-1]), ALL, "", "", table

    def _filtered(self, name: str, defence: str | None, fate: str, named: str) -> Any:
        """The photos that are left, in a list and in a table, which show the same ones."""
        if defence is None:
            return gr.update(choices=[], value=None), ""
        try:
            run = self.library.run(name)
            rows = chosen_rows(run, defence, fate, str(named))
            table = rows_table(run, rows, defence, self.library.album(class_names(self.studio, run)))
        except CertmaskError as error:
            return gr.update(choices=[], value=None), str(notice(str(error)))
        images = [str(row["image"]) for row in rows[:MOST_ROWS]]
        return gr.update(choices=images, value=images[0] if images else None), str(table)

    def _votes(self, name: str, defence: str, image: str, progress: gr.Progress = PROGRESS) -> str:
        return str(photo_votes(self.studio, self.library, name, image, defence, telling(progress)))
