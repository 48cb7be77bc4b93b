"""The page: its parts, and what happens when they are used."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # Gradio looks when it is imported
os.environ["HF_HUB_OFFLINE"] = "1"

import gradio as gr
from fastapi import FastAPI

from certmask.app.canvas import framed_picture
from certmask.app.confrontation import confronted
from certmask.app.door import Door
from certmask.app.explorer import ALL, Library, chosen_rows, class_names, photo_votes, rows_table, summary
from certmask.app.examples import EXAMPLES, Photo, example
from certmask.app.findings import found, notice, picture
from certmask.app.patching import KINDS, STICKER, Wish, patched
from certmask.app.studio import MOST_PATCHES, RULES, Question, Studio
from certmask.app.study import price, study
from certmask.app.style import CSS
from certmask.covers.default import default_patch
from certmask.errors import CertmaskError
from certmask.report.gallery import FATES
from certmask.report.markup import Markup, tag
from certmask.rules.registry import listed

STARTS = {"resnet26-cifar10": 11}
"""The side of the patch that the page starts with, where one of the default size fools nobody."""
UPLOADED, CACHE = "your photo", (600, 1800)
"""What an upload is called, and how often old ones are deleted and how old they are then, in seconds."""
ONE_AT_A_TIME: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "model", "api_visibility": "private"}
CLICKED = """
element.addEventListener('click', (event) => {
  const image = event.target.closest('img');
  if (!image) return;
  const box = image.getBoundingClientRect();
  trigger('click', {across: (event.clientX - box.left) / box.width, down: (event.clientY - box.top) / box.height});
});
"""
"""Where on the picture somebody clicked, as shares of its width and height."""
INTRODUCTION = (
    "A sticker in the picture can make an image classifier say anything. Here a photo is looked at through masks, each of "
    "which would hide such a patch, and what the masks say is turned into an answer and, where it can be, into a proof."
)


def page_app(studio: Studio, library: Library) -> FastAPI:
    """The page as an ASGI app: no telemetry, nothing from other addresses, a bounded queue, uploads deleted soon."""
    uploads = Path(tempfile.mkdtemp(prefix="certmask-app-"))
    os.environ["GRADIO_TEMP_DIR"] = str(uploads)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    blocks = page(studio, library)
    blocks.queue(max_size=studio.limits.queue, default_concurrency_limit=1)
    app.add_middleware(Door, limits=studio.limits, uploads=uploads)
    app.state.uploads = uploads
    fonts = ["system-ui", "sans-serif"]
    return gr.mount_gradio_app(
        app,
        blocks,
        path="",
        allowed_paths=[],
        max_file_size=studio.limits.upload,
        show_error=True,
        ssr_mode=False,
        footer_links=[],
        enable_monitoring=False,
        mcp_server=False,
        theme=gr.themes.Default(primary_hue="blue", font=fonts, font_mono=["ui-monospace", "monospace"]),
        css=CSS,
    )


def page(studio: Studio, library: Library) -> gr.Blocks:
    """All of it; the example photo is looked at before anybody comes."""
    start = _start(studio)
    first = study(studio, example(EXAMPLES[0]), start)
    with gr.Blocks(title="certmask", analytics_enabled=False, delete_cache=CACHE) as blocks:
        gr.HTML(tag("div", tag("h1", "certmask"), tag("p", INTRODUCTION), class_="cm"))
        asked = Asked(studio, start)
        with gr.Tabs():
            with gr.Tab("Look"):
                _look(studio, asked, str(found(first)))
            with gr.Tab("Attack it"):
                _attack(studio, asked, start)
            with gr.Tab("Explore a run"):
                _explore(studio, library)
    return blocks


def _start(studio: Studio) -> Question:
    model = studio.models[0]
    return Question(model, STARTS.get(model, default_patch(studio.size(model)).height))


class Asked:
    """The photo and the question, as every part of the page reads them; the photo is each visitor's own."""

    def __init__(self, studio: Studio, start: Question) -> None:
        self.studio = studio
        self.photo = gr.State(example(EXAMPLES[0]), time_to_live=CACHE[1])
        with gr.Row():
            with gr.Column(min_width=260):
                self.examples = gr.Radio(EXAMPLES, value=EXAMPLES[0], label="Example photo", elem_id="examples")
                self.upload = gr.File(
                    label="or your own photo", type="binary", file_types=["image"], height=120, elem_id="photo"
                )
            with gr.Column(min_width=260):
                self.model = gr.Dropdown(list(studio.models), value=start.model, label="Model", elem_id="model")
                self.rule = gr.Dropdown(_rules(), value=start.rule, label="Defence", elem_id="rule")
            with gr.Column(min_width=260):
                most = _most_side(studio, start.model)
                self.side = gr.Slider(
                    1, most, start.side, step=1, label="Side of the patch, pixels of the input", elem_id="side"
                )
                self.count = gr.Radio(
                    list(range(1, MOST_PATCHES + 1)), value=1, label="Patches at once", elem_id="count"
                )
        self.price = gr.HTML(_price(studio, start), elem_id="price")
        self.question = [self.model, self.side, self.count, self.rule]
        self._listen()

    def _listen(self) -> None:
        def chosen(name: str) -> Any:
            return example(name), None, ""

        def uploaded(content: bytes | None, model: str) -> Any:
            if content is None:
                return gr.skip(), gr.skip(), ""
            photo = Photo(UPLOADED, content)
            self.studio.seen(photo, model)
            return photo, None, ""

        self.refusal = gr.HTML(elem_id="refusal")
        seen = [self.photo, self.upload, self.refusal]
        self.examples.input(_told(chosen, seen), self.examples, seen, **ONE_AT_A_TIME)
        self.upload.upload(
            _told(uploaded, seen), [self.upload, self.model], [self.photo, self.examples, self.refusal], **ONE_AT_A_TIME
        )
        self.model.change(
            lambda model: gr.update(
                maximum=_most_side(self.studio, model),
                value=STARTS.get(model, default_patch(self.studio.size(model)).height),
            ),
            self.model,
            self.side,
            api_visibility="private",
        )
        for part in self.question:
            part.change(
                lambda *told: _price(self.studio, _question(*told)), self.question, self.price, **ONE_AT_A_TIME
            )


def _rules() -> list[tuple[str, str]]:
    """The defences with what they promise."""
    return [(f"{rule} ({listed(rule).rule.guarantee.promise})", rule) for rule in RULES]


def _most_side(studio: Studio, model: str) -> int:
    """Patches of up to half the picture's side."""
    return min(studio.size(model)) // 2


def _question(model: str, side: float, count: float, rule: str) -> Question:
    return Question(str(model), int(side), int(count), str(rule))


def _price(studio: Studio, question: Question) -> Markup:
    """What a question may cost, before it is asked."""
    try:
        return tag("p", f"{price(studio, question).sentence}.", class_="cm cm-note")
    except CertmaskError as error:
        return notice(str(error))


def _told(work: Callable[..., Any], outputs: list[Any]) -> Callable[..., Any]:
    """The same; an error becomes a notice in the last of the outputs, and the others stay as they are."""

    @functools.wraps(work)
    def told(*arguments: Any, **more: Any) -> Any:
        try:
            return work(*arguments, **more)
        except CertmaskError as error:
            return (*[gr.skip()] * (len(outputs) - 1), notice(str(error)))

    return told


def _progress(progress: gr.Progress) -> Callable[[int, str], None]:
    return lambda done, what: progress((done, None), unit=what)


def _look(studio: Studio, asked: Asked, first: str) -> None:
    """Look at the photo through the defence that is chosen."""
    button = gr.Button("Look at it", variant="primary", elem_id="look")
    result = gr.HTML(first, min_height=160, elem_id="result")

    def look(photo: Photo, *told: Any, progress: gr.Progress = gr.Progress()) -> Any:
        return str(found(study(studio, photo, _question(*told), _progress(progress))))

    button.click(_alone(look), [asked.photo, *asked.question], result, show_progress="full", **ONE_AT_A_TIME)


def _alone(work: Callable[..., str]) -> Callable[..., Any]:
    """A function with one output; an error becomes a notice in it."""

    @functools.wraps(work)
    def told(*arguments: Any, **more: Any) -> Any:
        try:
            return work(*arguments, **more)
        except CertmaskError as error:
            return notice(str(error))

    return told


def _attack(studio: Studio, asked: Asked, start: Question) -> None:
    """Put a patch on the photo and compare what is answered."""
    size = studio.size(start.model)
    with gr.Row():
        with gr.Column(min_width=280):
            place = gr.HTML(
                _aim(studio, example(EXAMPLES[0]), start, 0, 0), js_on_load=CLICKED, elem_id="place"
            )
        with gr.Column(min_width=280):
            kind = gr.Radio(list(KINDS.items()), value="network", label="The patch shows", elem_id="kind")
            sticker = gr.File(
                label="Your sticker", type="binary", file_types=["image"], height=110, visible=False, elem_id="sticker"
            )
            free = gr.Checkbox(True, label="Let the attack choose the place", elem_id="free")
            top = gr.Slider(0, size[0] - 1, 0, step=1, label="Row of its top left corner", elem_id="top")
            left = gr.Slider(0, size[1] - 1, 0, step=1, label="Column of its top left corner", elem_id="left")
            button = gr.Button("Put it there and ask all four", variant="primary", elem_id="attack")
    result = gr.HTML(min_height=160, elem_id="attacked")

    def aim(photo: Photo, down: float, across: float, *told: Any) -> str:
        return _aim(studio, photo, _question(*told), int(down), int(across))

    def clicked(event: gr.EventData, model: str, side: float) -> Any:
        height, width = studio.size(model)
        row, column = (round(share * length - side / 2) for share, length in ((event.down, height), (event.across, width)))
        return max(0, min(row, height - int(side))), max(0, min(column, width - int(side))), False

    def confront(
        photo: Photo, what: str, own: bytes | None, choose: bool, down: float, across: float, *told: Any,
        progress: gr.Progress = gr.Progress(),
    ) -> str:  # fmt: skip
        question = _question(*told)
        corner = None if choose else _fitting(studio, question, int(down), int(across))
        wish = Wish(what, corner, Photo("your sticker", own) if own else None)
        return str(confronted(patched(studio, photo, question, wish, _progress(progress))))

    aimed = [asked.photo, top, left, *asked.question]
    for part in (asked.photo, top, left, asked.side, asked.model):
        part.change(_alone(aim), aimed, place, show_progress="hidden", api_visibility="private")
    place.click(clicked, [asked.model, asked.side], [top, left, free], show_progress="hidden", api_visibility="private")
    kind.change(
        lambda what: (gr.update(visible=what == STICKER), what not in ("noise", STICKER)),
        kind,
        [sticker, free],
        api_visibility="private",
    )
    asked.model.change(
        lambda model: [gr.update(maximum=length - 1, value=0) for length in studio.size(model)],
        asked.model,
        [top, left],
        api_visibility="private",
    )
    button.click(
        _alone(confront),
        [asked.photo, kind, sticker, free, top, left, *asked.question],
        result,
        show_progress="full",
        **ONE_AT_A_TIME,
    )


def _fitting(studio: Studio, question: Question, top: int, left: int) -> tuple[int, int]:
    """The corner nearest to the wanted one at which the patch lies wholly inside the input."""
    height, width = studio.size(question.model)
    return max(0, min(top, height - question.side)), max(0, min(left, width - question.side))


def _aim(studio: Studio, photo: Photo, question: Question, top: int, left: int) -> Markup:
    """The photo as the model sees it, with a frame where the patch is to be."""
    seen, corner = studio.seen(photo, question.model), _fitting(studio, question, top, left)
    words = "click to place the patch; the frame shows where it is and how large"
    address = framed_picture(seen, corner, (question.side, question.side))
    return tag("div", picture(address, f"{photo.name} as the model sees it; {words}", words), class_="cm")


def _explore(studio: Studio, library: Library) -> None:
    """Open a results file: its table, its photos by what became of them, one photo's votes."""
    names = library.names()
    with gr.Row():
        file = gr.Dropdown(names, value=None, label=f"Results file below {library.folder.name}", elem_id="run")
        again = gr.Button("Look for new files", scale=0, elem_id="again")
    table = gr.HTML("" if names else _nothing(library), elem_id="run-table")
    with gr.Row():
        defence = gr.Dropdown([], label="Defence", elem_id="run-defence")
        kind = gr.Radio([ALL, *FATES], value=ALL, label="Show", elem_id="fate")
    rows = gr.HTML(elem_id="rows")
    with gr.Row():
        image = gr.Dropdown([], label="Photo", elem_id="image")
        button = gr.Button("Show its votes", scale=0, variant="primary", elem_id="votes")
    result = gr.HTML(min_height=160, elem_id="photo-votes")

    def opened(name: str) -> Any:
        run = library.run(name)
        defences = list(run.defences)
        return gr.update(choices=defences, value=defences[-1]), ALL, "", str(summary(run))

    def filtered(name: str, who: str, what: str) -> Any:
        run = library.run(name)
        chosen = chosen_rows(run, who, what)
        images = [str(row["image"]) for row in chosen]
        shown = rows_table(run, chosen, who, library.album(class_names(studio, run)))
        return gr.update(choices=images, value=images[0] if images else None), str(shown)

    def votes(name: str, who: str, photo: str, progress: gr.Progress = gr.Progress()) -> str:
        return str(photo_votes(studio, library, name, photo, who, _progress(progress)))

    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    again.click(lambda: gr.update(choices=library.names()), None, file, **quiet)
    parts = [defence, kind, result, table]
    file.input(_told(opened, parts), file, parts, **quiet).success(
        _told(filtered, [image, rows]), [file, defence, kind], [image, rows], **quiet
    )
    for part in (defence, kind):
        part.input(_told(filtered, [image, rows]), [file, defence, kind], [image, rows], **quiet)
    button.click(_alone(votes), [file, defence, image], result, show_progress="full", **ONE_AT_A_TIME)


def _nothing(library: Library) -> Markup:
    words = f"There is no results file below {library.folder.name}: certmask certify and certmask demo write some."
    return tag("p", words, class_="cm cm-note")
