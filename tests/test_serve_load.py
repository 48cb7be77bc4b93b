"""The service under load: many clients at once, and a thousand bad requests, beside what the library alone says."""

from __future__ import annotations

import gzip
import json
import random
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from PIL import Image
from serving import BOUNDARY, Reply, Server, encoded, form, raw, serving

from certmask.covers import zoom_cover
from certmask.data import read_photo, to_tensor
from certmask.defences import examine
from certmask.deployed import Defence
from certmask.zoo import framing_of, load_classifier

pytestmark = pytest.mark.cluster

MODEL = "resnet26-cifar10"
REQUESTS, CLIENTS, PHOTOS, BAD = 200, 16, 60, 1000
OPTIONS = ("--model", MODEL, "--patch", "5", "--levels", "2,3", "--precision", "fp32", "--batch", "16")
FORM = f"multipart/form-data; boundary={BOUNDARY}"


def photos(count: int) -> list[bytes]:
    """The demo's photos, each in several sizes, kinds and with patches of noise: no two are the same."""
    from certmask.data import load_dataset
    from certmask.zoo import card_of, name_aliases, readable_names

    found = load_dataset("demo-cifar10", name_aliases(readable_names(card_of(MODEL).classes)), framing_of(MODEL))
    chance, made = np.random.default_rng(0), list[bytes]()
    for number in range(count):
        pixels = np.asarray(found.samples[number % len(found)].photo()).copy()
        if number >= len(found):
            top, left = chance.integers(0, 27, 2)
            pixels[top : top + 6, left : left + 6] = chance.integers(0, 256, (6, 6, 3))
        kind, options = (("PNG", {}), ("JPEG", {"quality": 95}), ("BMP", {}))[number % 3]
        made.append(encoded(Image.fromarray(pixels).resize((32 + number % 7, 32)), kind, **options))
    return made


@pytest.fixture(scope="module")
def library() -> Callable[[bytes], tuple[int, bool, int, str]]:
    """What the library says about a photo, each alone: class, alert, passes and basis."""
    classifier = load_classifier(MODEL, None, device="cpu", precision="fp32", batch=16, backend="torch")
    shield, framing = Defence(classifier, zoom_cover(32, 5, (2, 3)), "jury-recovery"), framing_of(MODEL)

    def said(photo: bytes) -> tuple[int, bool, int, str]:
        image = to_tensor(framing(read_photo(BytesIO(photo), "a photo"), classifier.size))
        (finding,) = examine(shield.engine, [image], None, [shield.defence])
        (one,) = finding.value
        return one.label, one.alert, one.passes, one.basis

    return said


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("load"), *OPTIONS, "--seconds", "300", token="a-token") as found:
        yield found


def told(answer: dict[str, object]) -> tuple[object, ...]:
    return tuple(answer[key] for key in ("label", "alert", "passes", "basis"))


def test_sixteen_clients_at_once_get_the_answers_of_the_library(
    server: Server, library: Callable[[bytes], tuple[int, bool, int, str]]
) -> None:
    """Some ask alone, some in batches, some for proofs, which others share batches with; every answer is the same."""
    sent = photos(PHOTOS)

    def asked(number: int) -> list[tuple[object, ...]]:
        photo = sent[number % PHOTOS]
        if number % 10 == 9:
            reply = server.batch([photo, sent[0]])
            return [told(one) for one in reply.content["answers"]]
        reply = server.post(photo, "/predict?prove=true" if number % 20 == 0 else "/predict")
        assert reply.status == 200, reply.body
        return [told(reply.content)]

    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(clients.map(asked, range(REQUESTS)))
    alone = [library(photo) for photo in sent]
    for number, found in enumerate(answers):
        own = alone[number % PHOTOS]
        assert found == ([own, alone[0]] if number % 10 == 9 else [own]), number
    assert len(set(sent)) == PHOTOS
    assert {basis for *_, basis in alone} == {"unanimous", "unbeaten", "bare"}, "expected photos in doubt, too"


def test_all_ask_at_once_and_a_full_queue_turns_away_some(tmp_path: Path) -> None:
    """Every request is answered, rightly or with 503 and a time; none hangs; afterwards there is room."""
    photo = photos(1)[0]
    with serving(tmp_path, *OPTIONS, "--queue", "4") as found, ThreadPoolExecutor(CLIENTS) as clients:
        right = found.post(photo).content
        replies = list(clients.map(lambda _: found.post(photo), range(80)))
        counts = Counter(reply.status for reply in replies)
        assert set(counts) == {200, 503}, counts
        assert all(reply.content == right for reply in replies if reply.status == 200)
        assert all(int(reply.headers["retry-after"]) >= 1 for reply in replies if reply.status == 503)
        assert found.post(photo).content == right


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_bomb(width: int, height: int) -> bytes:
    """A few bytes that claim to be a huge picture."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@dataclass(frozen=True)
class Bad:
    """A request that must be refused."""

    body: bytes
    kind: str = "image/png"
    path: str = "/predict"
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, server: Server) -> Reply:
        return server.ask(self.method, self.path, self.body, {"Content-Type": self.kind, **self.headers})


def bad_requests(count: int) -> list[Bad]:
    """All kinds in turn, cut, filled and named at random."""
    chance, good = random.Random(0), photos(6)
    large = encoded(Image.effect_noise((300, 300), 90).convert("RGB"))
    jpeg, gif = encoded(Image.new("RGB", (64, 64), "red"), "JPEG"), encoded(Image.new("RGB", (9, 9)), "GIF")
    webp = bytes.fromhex("524946461a000000574542505650384c0e0000002ffebfff0f071011fd0f4444ff03")  # 16383×16383
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(/etc/passwd) (r) file\n"
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'
    kinds: list[Callable[[], Bad]] = [
        lambda: Bad(large[: chance.randrange(0, len(large) // 2)]),
        lambda: Bad(jpeg[: chance.randrange(0, len(jpeg) // 3)], "image/jpeg"),
        lambda: Bad(chance.randbytes(chance.randrange(1, 5000))),
        lambda: Bad(b""),
        lambda: Bad(b"a text, not a photo " * chance.randrange(1, 50)),
        lambda: Bad(b"/etc/passwd"),
        lambda: Bad(b"file:///etc/passwd", "application/octet-stream"),
        lambda: Bad(png_bomb(chance.randrange(20_000, 2**31), chance.randrange(20_000, 2**31))),
        lambda: Bad(png_bomb(50_001, 1_001)),
        lambda: Bad(webp),
        lambda: Bad(encoded(Image.new("1", (900, 2)))),
        lambda: Bad(gif, "image/gif"),
        lambda: Bad(gif),
        lambda: Bad(eps, "application/octet-stream"),
        lambda: Bad(svg, "image/svg+xml"),
        lambda: Bad(json.dumps({"path": "/etc/passwd"}).encode(), "application/json"),
        lambda: Bad(good[0], ""),
        lambda: Bad(good[0], "text/plain"),
        lambda: Bad(good[0], "x" * 500),
        lambda: Bad(gzip.compress(good[0]), headers={"Content-Encoding": "gzip"}),
        lambda: Bad(bytes(17 * 2**20)),
        lambda: Bad(good[0], "multipart/form-data"),
        lambda: Bad(good[0], FORM),
        lambda: Bad(form([good[0]])[:-6], FORM),
        lambda: Bad(form([good[0]])[: chance.randrange(1, 60)], FORM),
        lambda: Bad(form(good[:2]), FORM),
        lambda: Bad(form([]), FORM),
        lambda: Bad(form([good[0]] * 17), FORM, "/predict/batch"),
        lambda: Bad(form([]), FORM, "/predict/batch"),
        lambda: Bad(b"--" + BOUNDARY.encode() + b"\r\n" + bytes(50) + b"\r\n--" + BOUNDARY.encode() + b"--", FORM),
        lambda: Bad((b"\r\n--" + BOUNDARY.encode()) * 50_000, FORM, "/predict/batch"),
        lambda: Bad(good[0], f"multipart/form-data; boundary={'b' * 71}"),
        lambda: Bad(form([good[0]], "ö"), "multipart/form-data; boundary=\xf6"),
        lambda: Bad(good[0], path="/predict?prove=perhaps"),
        lambda: Bad(good[0], path="/predict/../../etc/passwd"),
        lambda: Bad(good[0], path="/predict/" + "x" * chance.randrange(1, 3000)),
        lambda: Bad(good[0], method="PUT"),
        lambda: Bad(good[0], method="DELETE", path="/healthz"),
        lambda: Bad(good[0], headers={"Authorization": "Bearer another-token"}),
        lambda: Bad(good[0], headers={"Authorization": "Basic YS10b2tlbg=="}),
    ]
    return [kinds[number % len(kinds)]() for number in range(count)]


def test_a_thousand_bad_requests_are_refused_with_a_reason_while_good_ones_go_on(
    server: Server, library: Callable[[bytes], tuple[int, bool, int, str]]
) -> None:
    good = photos(4)
    alone, over, answered = [library(photo) for photo in good], Event(), Counter[int]()

    def ask_on() -> None:
        while not over.is_set():
            for photo, right in zip(good, alone, strict=True):
                reply = server.post(photo)
                assert reply.status == 200, reply.body
                assert told(reply.content) == right
                answered[0] += 1

    asked = bad_requests(BAD)
    with ThreadPoolExecutor(9) as clients:
        going = clients.submit(ask_on)
        try:
            replies = list(clients.map(lambda one: one.ask(server), asked))
        finally:
            over.set()
        going.result()
    odd = [
        (one, reply.status, reply.body[:200])
        for one, reply in zip(asked, replies, strict=True)
        if not 400 <= reply.status < 500
    ]
    assert odd == []
    assert all(reply.reason.startswith("expected ") for reply in replies)
    assert {reply.status for reply in replies} == {400, 401, 404, 405, 413, 415, 422}
    assert answered[0] >= len(good)
    assert server.ask("GET", "/healthz").content["queue"] == 0
    assert "Traceback" not in server.said.read_text()


def test_what_is_no_http_is_refused(server: Server) -> None:
    for request in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /predict HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"nonsense\r\n\r\n",
    ):
        assert raw(server.port, request)[:12] == b"HTTP/1.1 400", request[:60]
    assert server.ask("GET", "/healthz").status == 200


def test_photos_that_are_damaged_at_random_never_harm_the_service(server: Server) -> None:
    """Some can still be read, the others are refused; in either case the next one is answered."""
    chance, good = random.Random(1), photos(12)
    extra = [encoded(Image.effect_noise((40, 30), 50).convert("RGB"), kind) for kind in ("TIFF", "WEBP", "PPM")]
    for number in range(300):
        photo = bytearray((good + extra)[number % (len(good) + len(extra))])
        for _ in range(chance.randrange(1, 12)):
            photo[chance.randrange(len(photo))] = chance.randrange(256)
        reply = server.post(bytes(photo[: chance.randrange(len(photo) // 2, len(photo) + 1)]))
        assert reply.status in (200, 400, 413), (number, reply.body)
    assert "Traceback" not in server.said.read_text()
