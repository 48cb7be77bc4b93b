"""``certmask serve``: the library's answers over HTTP, whoever else asks and whatever comes; limits, logs, signals."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from commands import PROGRAM, certmask
from conftest import tiny_network
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families
from serving import BOUNDARY, Server, encoded, form, serving
from torch import Tensor, nn

from certmask.deployed import Defence
from certmask.results.file import read_results
from certmask.service.examiner import Examiner, Job
from certmask.service.limits import Limits, RefusedError
from certmask.service.queue import PhotoQueue
from certmask.threat import threat_from

FEW = ("--patch", "5", "--levels", "2,3", "--batch", "8", "--precision", "fp32")
SHARED = ("label", "name", "alert", "certified", "guarantee", "basis", "passes")
"""What an answer and a record of ``certmask predict --json`` both have."""


@pytest.fixture(scope="module")
def pictures(photos: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Photos of several kinds, sizes and colours; one lies on its side, one is turned by EXIF."""
    folder, made = tmp_path_factory.mktemp("pictures"), []
    cat, cup = (Image.open(photos[name]).convert("RGB") for name in ("cat", "cup"))
    turned = Image.Exif()
    turned[0x0112] = 6
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 48, 3), dtype=np.uint8))
    for name, image, options in (
        ("cat.png", cat, {}),
        ("cup.jpg", cup, {"quality": 80}),
        ("turned.jpg", cat, {"exif": turned}),
        ("grey.png", cup.convert("L"), {}),
        ("clear.png", cat.convert("RGBA").resize((40, 90)), {}),
        ("small.bmp", cup.resize((33, 40)), {}),
        ("noise.webp", noise, {"lossless": True}),
        ("halves.tiff", Image.blend(cat.resize((50, 50)), cup.resize((50, 50)), 0.5), {}),
        ("tiny.ppm", cup.resize((5, 5)), {}),
    ):
        image.save(folder / name, **options)
        made.append(folder / name)
    return made


@pytest.fixture(scope="module")
def server(little_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = ("--most-bytes", "2000000", "--most-pixels", "1000000", "--most-photos", "4", "--queue", "40")
    with serving(tmp_path_factory.mktemp("server"), "--model", little_model, *FEW, *limits) as found:
        yield found


def predicted(little_model: Path, *photos: Path, rule: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        certmask("predict", *photos, "--model", little_model, *FEW, *rule, "--json").stdout
    )
    return found


def test_answers_are_those_of_predict(server: Server, little_model: Path, pictures: list[Path]) -> None:
    """Of photos of every kind: the same framing, class, basis, passes, proof, and the same words about it."""
    records = predicted(little_model, *pictures)
    answers = [server.post(path.read_bytes(), "/predict?prove=true").content for path in pictures]
    for record, answer in zip(records, answers, strict=True):
        assert {key: answer[key] for key in SHARED} == {key: record[key] for key in SHARED}
        assert answer["guaranteed"] == record["meaning"]
    bases = {answer["basis"] for answer in answers}
    assert {"unanimous", "unbeaten"} <= bases, "expected photos about which places agree, and others"
    assert len({answer["certified"] for answer in answers}) == 2
    assert all(answer["forced"] == (answer["basis"] == "unbeaten") for answer in answers)


def test_without_a_proof_nothing_is_said_to_be_proved(server: Server, pictures: list[Path]) -> None:
    answer, proved = (server.post(pictures[0].read_bytes(), f"/predict{ask}").content for ask in ("", "?prove=true"))
    assert answer["guaranteed"] == (
        "not proved of this photo; of a clean one that is certified against any 5×5 patch on a 32×32 input: "
        "the true class is answered, whatever the patch shows and wherever it is"
    )
    assert (answer["certified"], answer["proof_passes"]) == (None, None)
    assert proved["proof_passes"] > 0
    same = set(answer) - {"guaranteed", "certified", "proof_passes"}
    assert {key: answer[key] for key in same} == {key: proved[key] for key in same}


@pytest.mark.parametrize("rule", ["undefended", "published", "zoom-detection", "patchcleanser"])
def test_every_rule_says_what_it_is_worth(rule: str, little_model: Path, pictures: list[Path], tmp_path: Path) -> None:
    own = ("--rule", rule, "--patch", "5", "--batch", "8", "--precision", "fp32")
    with serving(tmp_path, "--model", little_model, *own) as found:
        answers = found.batch([path.read_bytes() for path in pictures], "/predict/batch?prove=true").content["answers"]
    told = certmask(
        "predict", *pictures, "--model", little_model, *own, "--json", code=3 if rule == "zoom-detection" else 0
    )
    for answer, record in zip(answers, json.loads(told.stdout), strict=True):
        same = ("label", "name", "alert", "guarantee", "basis", "passes")
        assert {key: answer[key] for key in same} == {key: record[key] for key in same}
        if rule in ("undefended", "published"):
            words = {
                "undefended": "no guarantee",
                "published": "published test: no guarantee against an adaptive attacker",
            }
            assert (answer["certified"], answer["guaranteed"]) == (None, words[rule])
        else:
            assert (answer["certified"], answer["guaranteed"]) == (record["certified"], record["meaning"])
        assert answer["forced"] is None or answer["basis"]
    assert rule != "zoom-detection" or any(answer["alert"] for answer in answers)


def test_a_bad_photo_does_not_spoil_a_batch(server: Server, pictures: list[Path]) -> None:
    cat, cup = (path.read_bytes() for path in pictures[:2])
    reply = server.batch([cat, b"no photo", cup, cat[:500]])
    assert reply.status == 200
    first, text, second, cut = reply.content["answers"]
    assert (first, second) == (server.post(cat).content, server.post(cup).content)
    assert text == {"error": "expected a readable image in the upload, got no image", "status": 400}
    assert cut["status"] == 400
    assert server.batch([cat]).content["answers"] == [first]
    assert server.post(form([cat]), "/predict", f"multipart/form-data; boundary={BOUNDARY}").content == first


def test_the_defence_is_the_one_that_certify_writes_down(
    server: Server, little_model: Path, class_folders: Path, tmp_path: Path
) -> None:
    """Fingerprint and description are those in the header of a results file."""
    run = tmp_path / "run.jsonl"
    certmask("certify", class_folders, "--model", little_model, *FEW, "--rule", "zoom", "--out", run)
    header = read_results(run)[0]
    told, health = server.ask("GET", "/defence").content, server.ask("GET", "/healthz").content
    assert health["fingerprint"] == header["model"]["fingerprint"]["name"]
    assert {key: told["model"][key] for key in told["model"] if key != "device"} == {
        key: header["model"][key] for key in header["model"] if key != "device"
    }
    digest = told["defence"].pop("sha256")
    assert told["defence"] == header["defences"]["zoom"]
    described = json.dumps(header["defences"]["zoom"], sort_keys=True).encode()
    assert digest == hashlib.sha256(described).hexdigest()[:16]
    assert told["framing"] == {"resize": "bicubic", "crop": 1.0}
    assert told["framing"].items() <= header["data"].items()
    assert threat_from(told["defence"]["threat"]).on((32, 32)) == "any 5×5 patch on a 32×32 input"
    answer = server.post(encoded(Image.new("RGB", (9, 9)))).content
    assert (answer["defence"], answer["defence_sha256"], answer["fingerprint"]) == (
        "zoom",
        digest,
        health["fingerprint"],
    )


def test_the_page_loads_nothing(server: Server) -> None:
    """Every route and field is on it; no script, style sheet, picture or font from anywhere."""
    page, schema = server.ask("GET", "/docs"), server.ask("GET", "/openapi.json").content
    text = page.body.decode()
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert re.findall(r"(?:src|href|@import|url)\W+([^\"')>]+)", text) == ["openapi.json"]
    assert "<script" not in text
    assert set(schema["paths"]) == {"/predict", "/predict/batch", "/defence", "/healthz", "/metrics"}
    assert all(f"{path}</code>" in text for path in schema["paths"])
    assert all(f"<code>{name}</code>" in text for name in schema["components"]["schemas"]["PhotoAnswer"]["properties"])


def test_metrics_count_what_happened(server: Server, pictures: list[Path]) -> None:
    def counts() -> dict[tuple[str, ...], float]:
        families = text_string_to_metric_families(server.ask("GET", "/metrics").body.decode())
        return {(s.name, *sorted(s.labels.values())): s.value for family in families for s in family.samples}

    before = counts()
    answer = server.post(pictures[0].read_bytes()).content
    server.post(b"nothing")
    server.ask("GET", "/somewhere/holiday.jpg")
    after = counts()
    for key, grown in {
        ("certmask_requests_total", "/predict", "200"): 1,
        ("certmask_requests_total", "/predict", "400"): 1,
        ("certmask_requests_total", "404", "elsewhere"): 1,
        ("certmask_photos_total", "answered"): 1,
        ("certmask_photos_total", "refused"): 1,
        ("certmask_passes_sum",): answer["passes"],
    }.items():
        assert after[key] - before.get(key, 0) == grown, key
    assert after["certmask_queue_photos",] == 0
    assert not any("holiday" in part for key in after for part in key)


def test_only_this_machine_is_listened_to(server: Server) -> None:
    """127.0.0.2 is this machine, too, but not the address of the service: on all addresses, it would answer there."""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", server.port), timeout=5)


def test_logs_have_neither_names_nor_content(server: Server, pictures: list[Path]) -> None:
    cat = pictures[0].read_bytes()
    for body in (form([cat]), form([b"secret-content"]), form([b"x"])[:-9]):
        server.post(body, "/predict", f"multipart/form-data; boundary={BOUNDARY}")
    server.ask("GET", "/secret-holiday/../etc/passwd?photo=secret-holiday.png")
    server.post(cat, "/predict?prove=secret-holiday")
    said = server.said.read_text()
    assert "POST /predict 200" in said
    assert "POST /predict 400" in said
    assert not re.search("secret|holiday|passwd|IHDR|PNG", said)


def test_limits_hold_before_anything_is_spent(server: Server, pictures: list[Path]) -> None:
    """Too many bytes, told or not; pixels by the header; photos; a compressed body; each with a reason."""
    cat = pictures[0].read_bytes()
    wide = encoded(Image.new("1", (2000, 600)))
    large = {"Content-Type": "image/png"}
    chunks = (bytes(100_000) for _ in range(80))
    replies = {
        "bytes": server.post(bytes(2_000_001)),
        "chunks": server.ask("POST", "/predict", chunks, large),
        "pixels": server.post(wide),
        "photos": server.batch([cat] * 5),
        "gzip": server.ask("POST", "/predict", cat, {**large, "Content-Encoding": "gzip"}),
    }
    found = {name: (reply.status, reply.reason.partition(",")[0]) for name, reply in replies.items()}
    assert found == {
        "bytes": (413, "expected an upload of at most 2"),
        "chunks": (413, "expected an upload of at most 2"),
        "pixels": (413, "expected a photo of at most 1"),
        "photos": (413, "expected 1 to 4 photos in a request"),
        "gzip": (415, "expected a body that is not compressed"),
    }
    assert server.post(cat).status == 200


def test_a_photo_that_takes_too_many_passes_is_refused_alone(
    little_model: Path, pictures: list[Path], tmp_path: Path
) -> None:
    """The limit counts what an answer takes and, where it is asked for, its proof."""
    records = predicted(little_model, *pictures)
    costs = sorted(record["passes"] for record in records)
    most = costs[len(costs) // 2]
    assert costs[0] <= most < costs[-1]
    with serving(tmp_path, "--model", little_model, *FEW, "--most-passes", str(most)) as found:
        answers = found.batch([path.read_bytes() for path in pictures]).content["answers"]
        proof = found.post(pictures[0].read_bytes(), "/predict?prove=true")
        said = found.said.read_text()
    for record, answer in zip(records, answers, strict=True):
        if record["passes"] <= most:
            assert (answer["label"], answer["passes"]) == (record["label"], record["passes"])
        else:
            assert answer == {
                "error": f"expected a photo that takes at most {most} passes, got one that takes more",
                "status": 422,
            }
    assert proof.status == 422
    assert f"passes and is refused beyond {most}" in said


def test_slow_clients_run_out_of_time_and_hold_up_nobody(
    little_model: Path, pictures: list[Path], tmp_path: Path
) -> None:
    """A full queue says when to come back and never hangs; who does not send in time is told so."""
    cat = pictures[0].read_bytes()
    with serving(tmp_path, "--model", little_model, *FEW, "--queue", "2", "--seconds", "5") as found:
        right = found.post(cat).content
        slow = [_half_sent(found.port, cat) for _ in range(2)]
        _until(lambda: found.ask("GET", "/healthz").content["queue"] == 2)
        refused = [found.post(cat) for _ in range(3)]
        assert [reply.status for reply in refused] == [503] * 3
        assert all(1 <= int(reply.headers["retry-after"]) <= 600 for reply in refused)
        assert refused[0].reason == "expected room for 1 more in a queue of 2, got 2 in it"
        slow[0].sendall(cat[len(cat) // 2 :])
        assert b"200 OK" in slow[0].recv(4096)
        assert found.post(cat).content == right
        late = b""
        while not late.endswith(b"}"):
            late += slow[1].recv(4096)
        assert b"408 Request Timeout" in late
        assert b"expected an upload within 5 s" in late
        _until(lambda: found.ask("GET", "/healthz").content["queue"] == 0)
        for line in slow:
            line.close()
        assert found.batch([cat] * 3).status == 413, "more photos than the queue could ever take"


def _half_sent(port: int, photo: bytes) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), timeout=60)
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: {len(photo)}\r\n\r\n"
    line.sendall(head.encode() + photo[: len(photo) // 2])
    return line


def _until(holds: Any) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_token_is_needed_where_one_is_set(little_model: Path, pictures: list[Path], tmp_path: Path) -> None:
    cat = pictures[0].read_bytes()
    with serving(tmp_path, "--model", little_model, *FEW, token="open-sesame") as found:
        assert found.post(cat).status == 200
        assert found.ask("GET", "/metrics").status == 200
        for wrong in ("", "open", "open-sesame-", "OPEN-SESAME", "ö", "x" * 10_000):
            found.token = wrong
            for method, path in (
                ("POST", "/predict"),
                ("POST", "/predict/batch"),
                ("GET", "/defence"),
                ("GET", "/metrics"),
            ):
                headers = {"Authorization": f"Bearer {wrong}".encode("latin-1")} if wrong else {}
                reply = found.ask(method, path, cat if method == "POST" else None, headers)  # type: ignore[arg-type]
                assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer"), wrong
        basic = found.ask("POST", "/predict", cat, {"Authorization": "Basic open-sesame"})
        assert basic.status == 401
        assert found.ask("GET", "/healthz").status == 200
        assert "sesame" not in found.said.read_text()


def test_sigterm_ends_it_once_all_is_answered(little_model: Path, pictures: list[Path], tmp_path: Path) -> None:
    """Requests that are in the house get their answers; the exit code is 0; nobody listens any more."""
    cat = pictures[0].read_bytes()
    with serving(tmp_path, "--model", little_model, *FEW) as found, ThreadPoolExecutor(12) as clients:
        right = found.post(cat, "/predict?prove=true").content
        late = _half_sent(found.port, cat)
        waiting = [clients.submit(found.post, cat, "/predict?prove=true") for _ in range(12)]
        _until(lambda: found.ask("GET", "/healthz").content["queue"] > 6)
        os.kill(found.process.pid or 0, signal.SIGTERM)
        time.sleep(0.2)
        late.sendall(cat[len(cat) // 2 :])
        assert b"200 OK" in late.recv(4096)
        late.close()
        answers = [one.result() for one in waiting]
        found.process.join(60)
        assert found.process.exitcode == 0
        assert [reply.content for reply in answers] == [right] * 12
        with pytest.raises(ConnectionRefusedError):
            found.ask("GET", "/healthz")


def test_killed_and_restarted_it_answers_as_before(little_model: Path, pictures: list[Path], tmp_path: Path) -> None:
    """kill -9 in the midst of requests; on the same port, at once, the same answers. It leaves nothing behind."""
    cat = pictures[0].read_bytes()
    options = ("--model", little_model, *FEW)
    folder = tmp_path / "here"
    folder.mkdir()
    with serving(folder, *options) as found, ThreadPoolExecutor(4) as clients:
        right, port = found.post(cat).content, found.port
        asked = [clients.submit(found.post, cat) for _ in range(40)]
        _until(lambda: sum(one.done() for one in asked) > 3)
        assert found.end(signal.SIGKILL) == -signal.SIGKILL
        ended = [one.exception() for one in asked]
        assert any(ended), "expected it to be killed before all were answered"
        assert all(one.result().content == right for one, error in zip(asked, ended, strict=True) if not error)
    with serving(folder, *options, port=port) as again:
        assert again.port == port
        assert again.post(cat).content == right
        assert again.end() == 0
    assert {path.name[:5] for path in folder.iterdir()} == {"said-"}


def test_a_taken_port_and_a_wrong_address_are_one_line(server: Server, little_model: Path, tmp_path: Path) -> None:
    little = ("serve", "--model", little_model, *FEW)
    taken = certmask(*little, "--port", str(server.port), code=2)
    assert taken.stderr.startswith(f"error: expected a free address, got 127.0.0.1 port {server.port} (")
    assert "already in use" in taken.stderr
    assert taken.stderr.count("\n") == 1
    assert "expected a free address" in certmask(*little, "--host", "not an address", "--port", "0", code=2).stderr


def test_an_odd_token_is_refused(little_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for odd in ("", " ", "with\nnewline", "ünlaut"):
        monkeypatch.setenv("CERTMASK_TOKEN", odd)
        assert "CERTMASK_TOKEN" in certmask("serve", "--model", little_model, code=2).stderr


def test_a_missing_package_names_the_extra(little_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for engine, package, extra in (("plain", "fastapi", "serve"), ("ray", "ray", "ray-serve")):
        monkeypatch.setattr(
            "certmask.service.find_spec", lambda name, gone=package: None if name == gone else find_spec(name)
        )
        done = certmask("serve", "--model", little_model, "--engine", engine, code=1)
        assert done.stderr == f"error: expected the package {package}, got none: pip install 'certmask[{extra}]'\n"


def test_help_loads_neither_a_web_server_nor_ray() -> None:
    heavy = ("fastapi", "uvicorn", "prometheus_client", "ray")
    program = f"""
import sys
sys.argv = ["certmask", "serve", "--help"]
try:
    from certmask.cli import main
    main()
finally:
    print({{*{heavy}}} & {{*sys.modules}})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("set()"), done.stderr


def test_the_program_itself_starts_says_where_it_is_and_stops(little_model: Path) -> None:
    """As a user starts it: a process of its own, with a pipe for a terminal; Ctrl-C is a way to end it, too."""
    arguments = ["serve", "--model", str(little_model), *FEW, "--port", "0", "--backend", "torch"]
    with subprocess.Popen([*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        assert re.fullmatch(r"serving on http://127\.0\.0\.1:\d+\n", lines[2]), lines
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")


class Blinker(nn.Module):
    """A network that changes its mind once somebody pulls the switch."""

    switch = Event()

    def __init__(self) -> None:
        super().__init__()
        self.network = tiny_network()

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.network(images)
        return -found if self.switch.is_set() else found


def queued(shield: Defence, limits: Limits | None = None) -> PhotoQueue:
    queue = PhotoQueue(Examiner(shield, limits or Limits()), lambda *_: None)
    queue.start()
    return queue


def job(image: Tensor, seconds: float = 60, prove: bool = False) -> Job:
    return Job(image, time.monotonic() + seconds, prove)


def test_a_model_that_changes_answers_no_more(images: Tensor) -> None:
    """The canary in every batch sees it: what was in work is refused, and so is all that comes later."""
    queue = queued(Defence(Blinker(), 6, size=24, batch=8))
    first = job(images[0])
    queue.put(first)
    assert first.answer.result(60).alert is False
    Blinker.switch.set()
    for _ in range(2):
        later = job(images[1])
        queue.put(later)
        with pytest.raises(RefusedError, match="expected the same answer") as refused:
            later.answer.result(60)
        assert refused.value.status == 500
    assert "changed" in queue.broken
    queue.finish()


def test_an_unforeseen_error_costs_the_photos_in_work_alone(images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = queued(Defence(tiny_network(), 6, size=24, batch=8))
    right = job(images[0])
    queue.put(right)
    right.answer.result(60)
    with monkeypatch.context() as broken:
        broken.setattr(queue.examiner.engine, "forward", None)
        lost = job(images[0])
        queue.put(lost)
        with pytest.raises(RefusedError, match="expected to go on, got AttributeError"):
            lost.answer.result(60)
    again = job(images[0])
    queue.put(again)
    assert again.answer.result(60) == right.answer.result()
    queue.finish()


def test_who_waited_too_long_is_not_looked_at(images: Tensor) -> None:
    """In the queue: 503, come back; in work, between two looks: 504."""
    examiner = Examiner(Defence(tiny_network(), 6, size=24, batch=8), Limits(seconds=7))
    made = list[int]()
    examiner.engine.progress = made.append
    queue = PhotoQueue(examiner, lambda *_: None)
    late = job(images[0], seconds=-1)
    queue.put(late)
    queue.start()
    queue.finish()
    with pytest.raises(RefusedError) as refused:
        late.answer.result(60)
    assert (refused.value.status, refused.value.retry_after, made) == (503, 1, [])
    ((_, found),) = examiner.answers([job(images[0], seconds=-1)])
    assert isinstance(found, RefusedError)
    assert (found.status, found.reason) == (504, "expected an answer within 7 s, got none in that time")
