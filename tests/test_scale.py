"""Certification on Ray: the rows of one machine, whatever dies on the way; nothing is lost, counted twice or left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import CRASHING, NODE, all_gone, cluster_of, crashing_decoder, driven, marked, processes_with, small_graph
from commands import PROGRAM, certmask
from PIL import Image
from processes import await_growth, started

from certmask.data import CIFAR10
from certmask.errors import ResultsError
from certmask.results.file import read_results, read_set_aside

pytestmark = pytest.mark.cluster

pytest.importorskip("ray")
PHOTOS = 40
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def _no_lines_about_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow a machine is, an error is one line."""
    monkeypatch.setattr("certmask.cli.console.EVERY", 1000.0)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small photos of noise in ten class folders."""
    root, chance = tmp_path_factory.mktemp("scale") / "photos", random.Random(0)
    for number in range(PHOTOS):
        path = root / CIFAR10[number % 10] / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.frombytes("RGB", (32, 32), chance.randbytes(32 * 32 * 3)).resize((40, 36)).save(path)
    return root


@pytest.fixture(scope="session")
def options(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    model = small_graph(tmp_path_factory.mktemp("graph"))
    rules = ["--rule", "jury-recovery", "--rule", "undefended", "--batch", "8", "--backend", "onnxruntime"]
    return ["--model", str(model), "--patch", "5", "--mask", "18", *rules]


@pytest.fixture(scope="module")
def plain(folder: Path, options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one machine writes."""
    path = tmp_path_factory.mktemp("plain") / "run.jsonl"
    certmask("certify", folder, *options, "--out", path)
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two nodes whose Pillow has a decoder that crashes on some files; all its processes end with it."""
    decoder = crashing_decoder(tmp_path_factory.mktemp("decoder") / "path")
    with marked(PYTHONPATH=os.pathsep.join([str(decoder), *filter(None, sys.path)])) as mark:
        with cluster_of(2) as nodes:
            yield nodes
        assert all_gone(mark)


@pytest.fixture(scope="session")
def killed(folder: Path, options: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    """The mark and the arguments of a run with a Ray of its own, whose driver was killed as soon as it had a file."""
    path = tmp_path_factory.mktemp("killed") / "run.jsonl"
    arguments = [str(folder), *options, "--engine", "ray", "--workers", "1", "--out", str(path)]
    with marked() as mark:
        run = subprocess.Popen([*PROGRAM, "certify", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while run.poll() is None and not path.exists():
            time.sleep(0.05)
        assert processes_with(mark)
        run.kill()
        assert run.wait() == -signal.SIGKILL
    return mark, arguments


def on_ray(cluster: Any, *more: str) -> list[str]:
    return ["--engine", "ray", "--address", cluster.address, *more]


def found(path: Path) -> dict[str, Row]:
    """What is known of every image, but for the time it took; none is there twice."""
    rows = read_results(path)[1] if path.exists() and b"\n" in path.read_bytes() else []
    timeless = {line["image"]: {key: line[key] for key in line if key != "seconds"} for line in rows}
    assert len(timeless) == len(rows)
    return timeless


def same(path: Path, plain: Path) -> bool:
    """The same header and the same rows, in whatever order."""
    return read_results(path)[0] == read_results(plain)[0] and found(path) == found(plain)


def test_two_nodes_write_the_file_of_one_machine(
    cluster: Any, folder: Path, options: list[str], plain: Path, tmp_path: Path
) -> None:
    done = certmask("certify", folder, *options, *on_ray(cluster), "--out", tmp_path / "run.jsonl")
    assert same(tmp_path / "run.jsonl", plain)
    assert "on 2 workers" in done.stdout
    assert len(found(plain)) == PHOTOS


def test_a_run_goes_on_with_the_other_engine(
    cluster: Any, folder: Path, options: list[str], plain: Path, tmp_path: Path
) -> None:
    """Begun by either, each leaves out what is done; a finished photo that was changed since is refused by both."""
    lines, path = plain.read_bytes().splitlines(keepends=True), tmp_path / "run.jsonl"
    path.write_bytes(b"".join(lines[:8]))
    certmask("certify", folder, *options, *on_ray(cluster), "--out", path)
    assert same(path, plain)
    assert path.read_bytes().startswith(b"".join(lines[:8]))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:20]))
    certmask("certify", folder, *options, "--out", path)
    assert same(path, plain)


def test_workers_of_torch_write_the_same_file(cluster: Any, folder: Path, little_model: Path, tmp_path: Path) -> None:
    """A thread of its own computes there, with other switches than a main thread has."""
    rules = ["--rule", "jury-recovery", "--rule", "zoom", "--batch", "8", "--backend", "torch", "--images", "12"]
    options = ["--model", str(little_model), "--patch", "5", *rules]
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    certmask("certify", folder, *options, "--out", here)
    certmask("certify", folder, *options, *on_ray(cluster), "--out", there)
    assert same(there, here)


def test_a_finished_photo_that_was_changed_is_refused(
    cluster: Any, folder: Path, options: list[str], plain: Path, tmp_path: Path
) -> None:
    path, photo = tmp_path / "run.jsonl", folder / "airplane" / "00.png"
    path.write_bytes(b"".join(plain.read_bytes().splitlines(keepends=True)[:30]))
    before = photo.read_bytes()
    Image.new("RGB", (40, 36)).save(photo)
    try:
        done = certmask("certify", folder, *options, *on_ray(cluster), "--out", path, code=1)
    finally:
        photo.write_bytes(before)
    assert "expected the same photos as when the run began, got another airplane/00.png" in done.stderr


def test_bad_photos_are_named_and_cost_nobody_else_a_row(
    cluster: Any, folder: Path, options: list[str], plain: Path, tmp_path: Path
) -> None:
    """One is cut off, one is text, one is gone, and one crashes the decoder, and so every worker that opens it."""
    kept = {path: path.read_bytes() for path in sorted(folder.rglob("*.png"))}
    cut, text, gone, crash = (folder / name for name in ("bird/02.png", "cat/13.png", "deer/14.png", "frog/26.png"))
    try:
        cut.write_bytes(cut.read_bytes()[:300])
        text.write_text("no photo")
        gone.unlink()
        gone.symlink_to(tmp_path / "nowhere")
        crash.write_bytes(CRASHING)
        done = certmask("certify", folder, *options, *on_ray(cluster), "--out", tmp_path / "run.jsonl", code=1, lines=5)
    finally:
        gone.unlink()
        for path, content in kept.items():
            path.write_bytes(content)
    bad = {"bird/02.png", "cat/13.png", "deer/14.png", "frog/26.png"}
    assert found(tmp_path / "run.jsonl") == {name: row for name, row in found(plain).items() if name not in bad}
    assert read_set_aside(tmp_path / "run.jsonl").keys() == bad
    assert "frog/26.png to be read and certified, got 2 crashed workers" in done.stderr
    assert all(any(name in line for line in done.stderr.splitlines()) for name in bad)
    assert "got none of 4 images that were set aside" in done.stderr
    certmask("certify", folder, *options, *on_ray(cluster), "--out", tmp_path / "run.jsonl")
    assert same(tmp_path / "run.jsonl", plain)
    assert read_set_aside(tmp_path / "run.jsonl") == {}


def test_the_driver_killed_at_three_random_moments_goes_on(
    cluster: Any, folder: Path, options: list[str], plain: Path, tmp_path: Path
) -> None:
    """One moment is any, two come soon after a row; a run that was quicker is no kill, and begins again."""
    path, chance, kills, halves = tmp_path / "run.jsonl", random.Random(1), 0, 0
    arguments = [str(folder), *options, *on_ray(cluster, "--workers", "2"), "--out", str(path)]
    while kills < 3:
        before = found(path)
        run = started(driven, dict(os.environ), arguments, tmp_path / "said")
        while kills and run.is_alive() and len(found(path)) <= len(before):
            await_growth(path, run)
        run.join(chance.random() * (0.3 if kills else 8))
        run.kill()
        run.join()
        assert run.exitcode in (0, -signal.SIGKILL), (tmp_path / "said").read_text()
        after = found(path)
        assert before.items() <= after.items() <= found(plain).items()
        kills, halves = kills + (run.exitcode != 0), halves + (0 < len(after) < PHOTOS)
        if after == found(plain):
            path.unlink()
    assert halves
    certmask("certify", *arguments)
    assert same(path, plain)


def test_a_node_killed_half_way_has_its_photos_redone(
    cluster: Any, folder: Path, options: list[str], plain: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    second = next(node for node in cluster.list_all_nodes() if node is not cluster.head_node)
    arguments = [str(folder), *options, *on_ray(cluster), "--out", str(path)]
    run = started(driven, dict(os.environ), arguments, tmp_path / "said")
    while run.is_alive() and not found(path):
        await_growth(path, run)
    assert 0 < len(found(path)) < PHOTOS
    cluster.remove_node(second, allow_graceful=False)
    run.join(120)
    cluster.add_node(**NODE)
    assert run.exitcode == 0, (tmp_path / "said").read_text()
    assert same(path, plain)


class Idle:
    """Keeps the processor of a node busy, as far as Ray knows."""

    def ready(self) -> bool:
        return True


def test_a_worker_that_is_another_function_is_refused(
    cluster: Any, folder: Path, little_model: Path, plain: Path, tmp_path: Path
) -> None:
    """The run begins on one node; all that is left for its workers is one on which attention is computed otherwise."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from certmask.cli.choices import Choices, photos_for
    from certmask.cli.engines import Recipe
    from certmask.scale.driver import certify_on_ray

    second = next(node for node in cluster.list_all_nodes() if node is not cluster.head_node)
    odd: list[Any] = []

    def replaced(*_: object) -> None:
        odd.append(cluster.add_node(**NODE, env_vars={"TIMM_FUSED_ATTN": "0"}))
        cluster.remove_node(second)

    choices = Choices(str(little_model), rules=["jury-recovery"], patch="5", mask="18", batch=8)
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        head = NodeAffinitySchedulingStrategy(cluster.head_node.node_id, soft=False)
        idle = ray.remote(Idle).options(num_cpus=1, scheduling_strategy=head).remote()
        ray.get(idle.ready.remote())
        photos = photos_for(str(little_model), str(folder))
        with pytest.raises(ResultsError, match=r"expected the same function on every worker, got another model\.f"):
            certify_on_ray(Recipe([choices], None), photos, tmp_path / "run.jsonl", told=replaced)
    finally:
        ray.shutdown()
        cluster.remove_node(odd[0])
        cluster.add_node(**NODE)
    assert read_results(tmp_path / "run.jsonl")[1] == []


def test_a_ray_of_its_own_ends_with_the_run_and_a_killed_driver_goes_on(
    killed: tuple[str, list[str]], plain: Path
) -> None:
    with marked() as other:
        certmask("certify", *killed[1])
        assert same(Path(killed[1][-1]), plain)
    assert all_gone(other)


@pytest.mark.last
def test_nothing_is_left_of_a_killed_driver(killed: tuple[str, list[str]]) -> None:
    """Agents of its Ray try for a minute to tell why they end, while other tests run."""
    assert all_gone(killed[0], 120)
