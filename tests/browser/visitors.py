"""The page in a process of its own, and visitors with a real Chromium, which may ask nobody but the page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageOps
from playwright.sync_api import Browser, Locator, Page, sync_playwright

PHOTOS = Path(__file__).parents[2] / "src" / "certmask" / "app" / "photos"
PICTURES = Path(os.environ.get("CERTMASK_PICTURES") or Path(__file__).parents[2] / "docs" / "images")
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SWITCHES = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)
MODEL, SIDE = "resnet26-cifar10", 11
TABS = {"Look": "#look", "Attack it": "#place [data-listens] img", "Explore a run": "#run input"}
"""What can be seen on each tab as soon as it can be used."""
SHOWN = "(where) => [...document.querySelectorAll(`${where} .cm`)].map((part) => part.outerHTML).join()"
DRAWN = "() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
LOADED = "() => [...document.images].every((image) => image.complete && image.naturalWidth)"
SECONDS = 120_000
"""Milliseconds for anything that asks a model, on a machine that may have other things to do."""


UNPLUGGED = """
import socket
from pathlib import Path

def guarded(connect):
    def at_home(line, address):
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1"):
            Path(__file__).with_name("strangers.txt").write_text(repr(address))
            raise OSError("expected a network that is unplugged, got " + repr(address))
        return connect(line, address)
    return at_home

socket.socket.connect = guarded(socket.socket.connect)
socket.socket.connect_ex = guarded(socket.socket.connect_ex)
"""
"""What Python runs before ``certmask app`` and its decoders: nobody but this machine is reached."""


@dataclass(frozen=True)
class Served:
    """Where a page is reached, and the seconds of one processor that it took until then."""

    address: str
    worked: float


@contextmanager
def certmask_app(folder: Path, *arguments: str) -> Iterator[Served]:
    """``certmask app`` on a free port, with the network unplugged; ended as by Ctrl-C, and must then end well."""
    said, unplugged = folder / "said.txt", folder / "unplugged"
    unplugged.mkdir()
    (unplugged / "sitecustomize.py").write_text(UNPLUGGED)
    command = [sys.executable, "-m", "certmask", "app", "--port", "0", "--model", MODEL]
    options = ["--backend", "torch", "--precision", "fp32", *arguments]
    own = {**os.environ, "PYTHONPATH": os.pathsep.join([str(unplugged), *sys.path]), "OMP_NUM_THREADS": "1"}
    with said.open("wb") as out:
        process = subprocess.Popen([*command, *options], stdout=out, stderr=subprocess.STDOUT, cwd=folder, env=own)
    try:
        yield Served(_address(process, said), _worked(process))
        process.terminate()
        assert process.wait(60) == 0, said.read_text()
        assert "Traceback" not in said.read_text()
        assert not (unplugged / "strangers.txt").exists()
    finally:
        process.kill()
        process.wait()


def _address(process: subprocess.Popen[bytes], said: Path) -> str:
    while process.poll() is None:
        found = re.search(r"^the page: (http://127\.0\.0\.1:\d+)$", said.read_text(), re.MULTILINE)
        if found:
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"expected a page, got {said.read_text()}")


def _worked(process: subprocess.Popen[bytes]) -> float:
    """Seconds that a process has computed, on all processors together; Linux alone tells."""
    told = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A real browser without a window: the machine's own, else the one that playwright has."""
    own = os.environ.get("CERTMASK_CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUMS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=own, args=list(SWITCHES))
        yield browser
        browser.close()


@dataclass
class Visitor:
    """Somebody with cookies of their own, and all that their browser asked for or complained of."""

    page: Page
    address: str
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def come(self) -> None:
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.goto(self.address)
        self.page.wait_for_selector("#result .cm-label", timeout=SECONDS)
        self.settle()

    def settle(self) -> None:
        """Wait until what is new is drawn, with its pictures."""
        self.page.evaluate(DRAWN)
        self.page.wait_for_function(LOADED, timeout=SECONDS)

    @property
    def strangers(self) -> list[str]:
        """Requests to anybody but the page itself."""
        return [url for url in self.asked if not url.startswith((f"{self.address}/", "data:", "blob:"))]

    def text(self, where: str) -> str:
        return self.page.locator(where).inner_text()

    def tab(self, name: str) -> None:
        """Open a tab and wait until it can be used."""
        self.page.get_by_role("tab", name=name).click()
        self.page.wait_for_selector(TABS[name], timeout=SECONDS)
        self.settle()

    def choose(self, where: str, name: str) -> None:
        """One of a list that drops down."""
        self.page.locator(f"{where} input").click()
        self.page.get_by_role("option", name=name, exact=True).click()

    def check(self, where: str, name: str) -> None:
        """One of a row of buttons."""
        self.page.locator(where).get_by_label(name, exact=True).check()

    def give(self, where: str, file: Path) -> None:
        """Upload a file."""
        self.page.locator(f"{where} input[type=file]").set_input_files(file)

    def answer(self, button: str, result: str, sign: str = ".cm-note") -> Locator:
        """Press a button and wait for what comes of it."""
        before = self.shown(result)
        self.page.locator(button).click()
        self.changed(result, before)
        self.page.wait_for_selector(f"{result} {sign}, {result} .cm-refused", timeout=SECONDS)
        return self.page.locator(result)

    def shown(self, where: str) -> str:
        """What a part of the page shows, without signs of progress."""
        return str(self.page.evaluate(SHOWN, where))

    def changed(self, where: str, before: str) -> None:
        """Wait until a part of the page shows something else."""
        changed = f"([where, before]) => !['', before].includes(({SHOWN})(where))"
        self.page.wait_for_function(changed, arg=[where, before], timeout=SECONDS)

    def says(self, where: str, words: str) -> None:
        """Wait until a part of the page says something."""
        self.page.locator(where).filter(has_text=words).wait_for(timeout=SECONDS)


@contextmanager
def visiting(browser: Browser, address: str, width: int = 1280, height: int = 900) -> Iterator[Visitor]:
    """A visitor who has come, and whose browser must not have complained or asked anybody else in the end."""
    context = browser.new_context(viewport={"width": width, "height": height}, accept_downloads=True)
    visitor = Visitor(context.new_page(), address)
    try:
        visitor.come()
        yield visitor
        assert visitor.strangers == []
        assert visitor.complaints == []
    finally:
        context.close()


def class_folders(root: Path) -> Path:
    """Photos that anybody may use, so that each fate has some: a cat, an ear, a cat that lies, a rocket."""
    cat = Image.open(PHOTOS / "cat.jpg")
    own = {
        "cat/whole.png": cat,
        "cat/ear.png": cat.crop((250, 0, 400, 150)),
        "cat/turned.png": ImageOps.fit(cat, (288, 288)).rotate(90),
        "airplane/rocket.png": Image.open(PHOTOS / "rocket.jpg"),
    }
    for name, photo in own.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        photo.save(root / name)
    return root


def keep(visitor: Visitor, name: str) -> None:
    """A picture of the page for the docs, if these are to be written."""
    if os.environ.get("CERTMASK_SCREENSHOTS") != "1":
        return
    visitor.page.mouse.move(0, 0)
    visitor.page.wait_for_timeout(600)
    shot = visitor.page.screenshot(full_page=True)
    with Image.open(BytesIO(shot)) as picture:
        picture.convert("RGB").save(PICTURES / f"app-{name}.webp", quality=70, method=6)
