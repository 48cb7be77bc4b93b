"""The page as a whole, and as an app that a server can run."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # Gradio looks when it is imported

import gradio as gr
from fastapi import FastAPI

from certmask.app.attack_tab import AttackTab
from certmask.app.controls import QUIET, Controls, start_of
from certmask.app.door import CACHE, Door
from certmask.app.examples import EXAMPLES, example
from certmask.app.explore_tab import ExploreTab
from certmask.app.explorer import Library
from certmask.app.findings import found
from certmask.app.look_tab import LookTab
from certmask.app.queue import FairQueue
from certmask.app.studio import Studio
from certmask.app.study import study
from certmask.app.style import CSS
from certmask.report.markup import tag
from certmask.service.limits import Limits

LEGIBLE = {"block_info_text_color": "*neutral_600", "block_info_text_color_dark": "*neutral_300"}
"""Colours of remarks beside a label, which the theme has too pale to be read."""
FONTS, FIXED_FONTS = ["system-ui", "sans-serif"], ["ui-monospace", "monospace"]
"""Fonts of the reader's own machine: none is fetched."""
SESSIONS = 64
"""Visitors whose photos are kept; of more, the one who asked longest ago has to upload it again."""
PATIENT = Limits(seconds=3600)
"""For the example at the start, which keeps nobody waiting."""
INTRODUCTION = (
    "A sticker in the picture, a patch, can make an image classifier say anything. Here a photo is looked at under "
    "masks, each of which would hide the patch somewhere; what the classifier says under them is turned into an answer "
    "and, where it can be, into a proof that no such patch changes it, or that none changes it unnoticed."
)


def page_app(studio: Studio, library: Library, uploads: Path, *, alone: bool = True) -> FastAPI:
    """The page as an ASGI app: no telemetry, nothing from other addresses, a bounded queue, uploads deleted soon.

    ``uploads`` is an empty folder that belongs to the page; with ``alone`` it answers this machine and nobody else.
    """
    os.environ["GRADIO_TEMP_DIR"] = str(uploads)
    blocks = page(studio, library).queue()
    blocks._queue = FairQueue(blocks, studio.limits)
    blocks.state_session_capacity = SESSIONS
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Door, limits=studio.limits, uploads=uploads, alone=alone)
    gr.mount_gradio_app(
        app,
        blocks,
        path="",
        allowed_paths=[],
        max_file_size=studio.limits.upload,
        run_history=False,
        show_error=False,
        ssr_mode=False,
        footer_links=[],
        enable_monitoring=False,
        mcp_server=False,
        theme=gr.themes.Default(primary_hue="blue", font=FONTS, font_mono=FIXED_FONTS).set(**LEGIBLE),
        css=CSS,
    )
    return app


def page(studio: Studio, library: Library) -> gr.Blocks:
    """All of it; the example photo is looked at before anybody comes."""
    start = start_of(studio)
    first = study(studio, example(EXAMPLES[0]), start, limits=PATIENT)
    with gr.Blocks(title="certmask", analytics_enabled=False, delete_cache=CACHE) as blocks:
        gr.HTML(tag("div", tag("h1", "certmask"), tag("p", INTRODUCTION), class_="cm"))
        with gr.Column() as above:
            controls = Controls(studio, start)
        with gr.Tabs():
            with gr.Tab("Look") as look:
                LookTab(studio, controls, str(found(first)))
            with gr.Tab("Attack it") as attack:
                AttackTab(studio, controls, start)
            with gr.Tab("Explore a run") as explore:
                ExploreTab(studio, library)
        for tab in (look, attack, explore):
            shown = partial(gr.update, visible=tab is not explore)
            tab.select(shown, None, above, **QUIET)
    return blocks
