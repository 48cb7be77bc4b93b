"""The same app as a Ray Serve deployment: two replicas on this machine answer as one process does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from clusters import small_graph
from commands import PROGRAM, certmask
from PIL import Image
from processes import children
from serving import Server, encoded, serving

from certmask.errors import UsageError
from certmask.service.limits import Replicas

pytestmark = pytest.mark.cluster

FEW = ("--patch", "5", "--levels", "2,3", "--batch", "8", "--precision", "fp32", "--backend", "onnxruntime")
REPLICAS = ("--engine", "ray", "--replicas", "2", "--cpus", "0.5")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_graph(tmp_path_factory.mktemp("graph"))


@pytest.fixture
def pictures() -> list[bytes]:
    sizes = ((40, 40), (64, 33), (32, 90))
    noise = [encoded(Image.effect_noise(size, 30 * (n + 1)).convert("RGB")) for n, size in enumerate(sizes)]
    return [*noise, *(encoded(Image.new("RGB", (50, 50), colour)) for colour in ("red", "green", "white"))]


def test_two_replicas_answer_as_one_process_does(graph: Path, pictures: list[bytes], tmp_path: Path) -> None:
    """Answers, refusals and the token are the same; SIGTERM ends it with 0 and leaves no process behind."""
    paths = ["/predict", "/predict?prove=true"]
    with serving(tmp_path, "--model", graph, *FEW) as plain:
        right = {path: [plain.post(photo, path).content for photo in pictures] for path in paths}
        refused = plain.post(b"no photo")
    command = [*PROGRAM, "serve", "--model", str(graph), *FEW, *REPLICAS, "--port", "0"]
    environment = {**os.environ, "CERTMASK_TOKEN": "a-token"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            found = re.fullmatch(r"serving on http://127\.0\.0\.1:(\d+)\n", process.stdout.readline())
            assert found, process.communicate()
            server = Server(process, int(found[1]), tmp_path, "a-token")  # type: ignore[arg-type]
            for path in paths:
                with ThreadPoolExecutor(8) as clients:
                    replies = list(clients.map(lambda n: server.post(pictures[n % 6], path), range(24)))  # noqa: B023
                assert [reply.content for reply in replies] == right[path] * 4
            again = server.post(b"no photo")
            assert (again.status, again.content) == (refused.status, refused.content)
            server.token = "another"
            assert server.post(pictures[0]).status == 401
            below = children(process.pid)
            assert sum("ServeReplica" in _called(pid) for pid in below) == 2
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=90)
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert not [pid for pid in below if _called(pid)], "expected no process to be left behind"


def _called(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def test_more_replicas_than_processors_are_refused(graph: Path) -> None:
    """Ray itself would wait for processors without end."""
    done = subprocess.run(
        [*PROGRAM, "serve", "--model", str(graph), *FEW, "--engine", "ray", "--replicas", "999", "--port", "0"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert re.search(r"^error: expected at most \d+ CPUs for all replicas, got 999 of 1$", done.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("replicas", "told"),
    [
        (Replicas(3, 1.0), ""),
        (Replicas(30, 0.1), ""),
        (Replicas(4, 1.0), "expected at most 3 CPUs for all replicas, got 4 of 1"),
        (Replicas(1, 3.0), "expected room for 1 replicas of 3 CPUs, got nodes of 1, 2"),
        (Replicas(2, 1.5), "expected room for 2 replicas of 1.5 CPUs, got nodes of 1, 2"),
        (Replicas(1, 1.0, 1.0), "expected at most 0 GPUs for all replicas, got 1 of 1"),
    ],
)
def test_a_replica_needs_room_on_one_node(replicas: Replicas, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from certmask.service.replicas import _check_room

    sizes = ((1.0, True), (2.0, True), (64.0, False))
    nodes = [{"Alive": alive, "Resources": {"CPU": cpus}} for cpus, alive in sizes]
    monkeypatch.setattr("certmask.service.replicas.ray", SimpleNamespace(nodes=lambda: nodes, shutdown=lambda: None))
    with pytest.raises(UsageError, match=f"^{re.escape(told)}$") if told else nullcontext():
        _check_room(replicas)


def test_what_is_rays_is_refused_without_it(little_model: Path) -> None:
    for option in ("--replicas", "--cpus", "--gpus"):
        told = certmask("serve", "--model", little_model, option, "1", code=2).stderr
        assert f"expected {option} beside --engine ray" in told
    assert "beside --engine ray" in certmask("serve", "--address", "auto", code=2).stderr
