"""``certmask serve`` and clients who mean harm: photos that take for ever, headers without end, or no end of them."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import tiny_network
from fastapi.testclient import TestClient
from PIL import Image
from processes import children
from serving import BOUNDARY, HTTPException, Server, encoded, form, raw, serving

from certmask.data import Framing, read_photo, to_tensor
from certmask.deployed import Defence
from certmask.service.app import service_app
from certmask.service.connection import HEADERS
from certmask.service.darkroom import Darkroom
from certmask.service.decoders import Decoder
from certmask.service.limits import Limits, RefusedError
from certmask.service.photos import photos_in

FEW = ("--patch", "5", "--levels", "2", "--batch", "8", "--precision", "fp32")
SMALL = Limits(upload=10**7, pixels=10**6)
HALF = b"POST /predict HTTP/1.1\r\nHost: x\r\nX-Half: "
GOOD = encoded(Image.radial_gradient("L").convert("RGB"))


@cache
def scan_bomb(scans: int = 60_000) -> bytes:
    """A progressive JPEG with scans of no content, each of which goes through all of the picture: minutes of work."""
    photo = encoded(Image.new("L", (4000, 4000), 128), "JPEG", progressive=True)
    empty = b"\xff\xda" + struct.pack(">H", 8) + bytes([1, 1, 0, 1, 63, 0])
    return photo[:-2] + empty * scans + photo[-2:]


def tag_bomb(tags: int, block: int = 2**20) -> bytes:
    """A TIFF of one block, which every tag says is its own, but the last, which lies beyond the end of the file.

    A newer Pillow warns about each by itself, an older one about the last alone.
    """
    plain = ((256, 8), (257, 8), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 8), (279, 64))
    entries = [(tag, 4, 1, value) for tag, value in plain] + [(40_000 + n, 7, block, 8) for n in range(tags)]
    entries.append((40_000 + tags, 7, block, 8 + 2 * block))
    table = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<I", 8 + block) + bytes(block) + table + bytes(4)


@pytest.fixture(scope="module")
def server(little_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("--decode-seconds", "1", "--most-connections", "12")
    with serving(tmp_path_factory.mktemp("guarded"), "--model", little_model, *FEW, *options) as found:
        yield found


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    found = Decoder(Darkroom(Framing(), (24, 32), SMALL))
    found.start()
    yield found
    found.end()


def test_photos_that_take_for_ever_are_given_up_and_others_go_on(server: Server) -> None:
    """Both decoders are taken, twice over; a good photo waits for its turn and has its answer."""
    right = server.post(GOOD).content
    with ThreadPoolExecutor(5) as clients:
        bombs = [clients.submit(server.post, scan_bomb()) for _ in range(4)]
        _until(lambda: server.ask("GET", "/healthz").content["queue"] == 4)
        good = clients.submit(server.post, GOOD)
        assert good.result().content == right
    for bomb in bombs:
        assert bomb.result().status == 422
        assert bomb.result().reason == "expected a photo that is decoded within 1 s, got one that takes longer"
    answers = server.batch([scan_bomb(), GOOD]).content["answers"]
    assert (answers[0]["status"], answers[1]) == (422, right)


def test_sigterm_ends_it_whatever_is_decoded(little_model: Path, tmp_path: Path) -> None:
    """The time of the requests runs out, which a decoder that could go on for an hour does not change."""
    hour = ("--seconds", "2", "--decode-seconds", "3600")
    with serving(tmp_path, "--model", little_model, *FEW, *hour) as found, ThreadPoolExecutor(5) as clients:
        assert found.post(GOOD).status == 200
        bombs = [clients.submit(found.post, scan_bomb()) for _ in range(5)]
        _until(lambda: found.ask("GET", "/healthz").content["queue"] == 5)
        below = children(found.process.pid or 0)
        assert found.end() == 0
        assert {bomb.result().status for bomb in bombs} == {503, 504}
    assert len(below) == 2
    assert not any(map(_runs, below))


def test_a_decoder_that_dies_takes_one_photo_with_it(little_model: Path, tmp_path: Path) -> None:
    """As by a crash; should the service itself be killed, its decoders end, too, even in the midst of a bomb."""
    with serving(tmp_path, "--model", little_model, *FEW, "--decode-seconds", "3") as found:
        pid, right = found.process.pid or 0, found.post(GOOD).content
        with ThreadPoolExecutor(1) as clients:
            before = _work(pid)
            bomb = clients.submit(found.post, scan_bomb())
            _until(lambda: _work(pid) > before + 0.2)
            for child in children(pid):
                os.kill(child, signal.SIGKILL)
            assert bomb.result().reason == "expected a readable image in the upload, got one that crashes the decoder"
        assert [found.post(GOOD).content for _ in range(3)] == [right] * 3
        below = children(pid)
        with ThreadPoolExecutor(1) as clients:
            before = _work(pid)
            lost = clients.submit(found.post, scan_bomb())
            _until(lambda: _work(pid) > before + 0.2)
            found.end(signal.SIGKILL)
            assert isinstance(lost.exception(), OSError | HTTPException)
    _until(lambda: not any(map(_runs, below)))


def _until(holds: object) -> None:
    end = time.monotonic() + 60
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)


def _work(service: int) -> float:
    """Seconds that a service's decoders have computed."""
    stats = [Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split() for child in children(service)]
    return sum(int(stat[11]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "I;16", "CMYK"])
def test_a_decoder_makes_the_pixels_of_predict(decoder: Decoder, mode: str) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    picture = Image.linear_gradient("L").resize((90, 70)).rotate(30)
    tones = np.asarray(picture).astype(np.uint16) * 257
    picture = Image.fromarray(tones) if mode == "I;16" else picture.convert(mode)
    photo = encoded(picture, "TIFF", exif=turned)
    right = to_tensor(Framing()(read_photo(BytesIO(photo), "a photo"), (24, 32)))
    found = decoder.developed(memoryview(photo), 30)
    assert torch.equal(found, right)
    assert float(found.std()) > 0.1


def test_a_photo_that_takes_too_much_memory_is_refused() -> None:
    """A strip of which only a hundredth is kept would be a gigabyte before the cut; the next photo is decoded."""
    decoder = Decoder(Darkroom(Framing(crop=0.01), (24, 32), SMALL))
    for _ in range(3):
        with pytest.raises(RefusedError, match=r"expected a photo that is decoded in 5\d\d MiB of memory") as refused:
            decoder.developed(encoded(Image.new("RGB", (190, 1))), 60)
        assert refused.value.status == 422
        assert decoder.developed(GOOD, 60).shape == (3, 24, 32)
    decoder.end()


def test_a_decoder_knows_neither_torch_nor_the_web(tmp_path: Path) -> None:
    call = "import sys, certmask.service.darkroom; print({'torch', 'fastapi', 'uvicorn'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_an_upload_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, own = list[object](), Image.open

    def counted(*arguments: object, **options: object) -> Image.Image:
        opened.append(arguments)
        return own(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Image, "open", counted)
    assert len(Darkroom(Framing(), (24, 32), SMALL).developed(GOOD)) == 24 * 32 * 3
    assert len(opened) == 1


def test_uploads_are_kept_once() -> None:
    """What is handed to a decoder is a part of the body as it came, not a copy."""
    for body, kind in ((bytearray(GOOD), "image/png"), (bytearray(form([GOOD, b"", GOOD])), "multipart/form-data")):
        photos = photos_in(body, f"{kind}; boundary={BOUNDARY}", 3)
        assert [bytes(photo) for photo in photos if photo] == [GOOD] * (len(photos) - (len(photos) > 1))
        assert all(photo.obj is body for photo in photos)


def test_decoders_say_nothing_in_the_log(server: Server) -> None:
    """One photo, of which Pillow has several or dozens of things to say, is one line."""
    with pytest.warns(UserWarning, match="larger than file|Truncated File Read"):
        read_photo(BytesIO(tag_bomb(20)), "a photo")
    for _ in range(10):  # its decoders have a second, which is short on a busy machine
        before, until = len(server.said.read_text().splitlines()), time.monotonic() + 60
        if (status := server.post(tag_bomb(20)).status) == 200:
            break
        _until(lambda lines=before: len(server.said.read_text().splitlines()) > lines)
    assert status == 200
    said: list[str] = []
    while not said and time.monotonic() < until:  # the line is written once the answer is sent
        said = [line[:24] for line in server.said.read_text().splitlines()[before:]]
        time.sleep(0.05)
    assert said == ["note: POST /predict 200,"]


def test_headers_have_an_end(server: Server) -> None:
    """Some are usual, too many are refused, and who goes on sending is cut off."""
    line, many = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: ", HEADERS - 2000
    assert raw(server.port, line + b"a" * many + b"\r\n\r\n")[:12] == b"HTTP/1.1 200"
    refused = raw(server.port, line + b"a" * HEADERS)
    assert refused[:12] == b"HTTP/1.1 400"
    assert refused.endswith(
        b'{"error": "expected an HTTP request with at most 32,768 bytes of headers, got something else"}'
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as endless, pytest.raises(ConnectionError):
        endless.sendall(line + bytes(64 * 2**20))


def test_connections_are_counted(server: Server) -> None:
    """With the last place taken the next one is told so; there is room again as soon as one leaves."""
    lines = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(12)]
    try:
        assert raw(server.port, b"").endswith(b'{"error": "expected at most 12 connections at once, got more"}')
    finally:
        for line in lines:
            line.close()
    _until(lambda: server.ask("GET", "/healthz").status == 200)


def test_who_does_not_ask_in_time_is_cut_off(little_model: Path, tmp_path: Path) -> None:
    """Silent, with half a header, byte by byte, after an answer, or with a body that nobody waits for any more."""
    asked = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    body = b"POST /elsewhere HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n"
    with serving(tmp_path, "--model", little_model, *FEW, "--seconds", "2") as found, ThreadPoolExecutor(5) as clients:
        said = list(clients.map(lambda start: _dribbled(found.port, start), (b"", HALF, asked + HALF, body)))
        assert found.ask("GET", "/healthz").status == 200
    silent, half, after, late = said
    for reply in (silent, half, after):
        assert reply.endswith(b'{"error": "expected a request within 2 s, got a part of it"}')
    assert (after.count(b"200 OK"), after.count(b"408")) == (1, 1)
    assert late.startswith(b"HTTP/1.1 404")


def _dribbled(port: int, start: bytes) -> bytes:
    """All that comes back to who sends a start, and then a byte now and again until the line is cut."""
    said = b""
    with socket.create_connection(("127.0.0.1", port), timeout=0.1) as line:
        line.sendall(start)
        for _ in range(600):
            with suppress(TimeoutError), suppress(ConnectionError):
                got = line.recv(65536)
                said += got
                if not got:
                    return said
            try:
                line.sendall(b"a" if start else b"")
            except ConnectionError:
                return said
    raise AssertionError(f"expected the line to be cut, got {said!r}")


def test_a_path_with_a_slash_is_another_path(server: Server) -> None:
    """No redirect, which would take the upload twice."""
    assert server.post(GOOD, "/predict/").status == 404


def test_an_unforeseen_error_is_a_line_of_json(monkeypatch: pytest.MonkeyPatch) -> None:
    app = service_app(Defence(tiny_network(), 6, size=24, batch=8))
    monkeypatch.setattr(app.state.reception.examiner, "describe", None)
    reply = TestClient(app, raise_server_exceptions=False).get("/defence")
    assert (reply.status_code, reply.json()) == (500, {"error": "expected to go on, got TypeError"})
