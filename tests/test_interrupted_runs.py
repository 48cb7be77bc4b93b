"""Runs that are killed, starved, doubled, cut off or edited: one clear line, nothing lost, nothing counted twice."""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import random
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import certmask
from processes import await_growth, certify, started

from certmask.errors import ResultsError
from certmask.results.file import FORMAT, ResultsFile, read_results
from certmask.results.run import read_run

DEMO = Path(__file__).parent.parent / "results" / "demo.jsonl"
HEADER = {"kind": "test", "model": {"name": "m"}}
KILLS = 20

Row = dict[str, Any]


def row(number: int) -> Row:
    """A row that spans several pages of the disk."""
    return {"image": f"{number}.jpg", "text": f"{number} ä–x " * 700}


ROWS = [row(number) for number in range(4)]


def written(path: Path, rows: list[Row] = ROWS) -> bytes:
    """A file that is begun or continued, and finished."""
    with ResultsFile(path, HEADER) as file:
        for line in rows[len(file.rows) :]:
            file.write(line)
    return path.read_bytes()


@pytest.fixture(scope="module")
def command(little_model: Path) -> list[str]:
    """A certification run of a second."""
    options = ["--rule", "jury-recovery", "--rule", "undefended", "--batch", "8", "--backend", "torch"]
    return ["demo-cifar10", "--model", str(little_model), "--images", "10", "--patch", "5", "--mask", "18", *options]


@pytest.fixture(scope="module")
def undisturbed(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """The file of a run that nobody disturbs, and the seconds that it took."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run = started(certify, [*command, "--images", "1", "--out", str(folder / "first.jsonl")], folder / "said")
    run.join()
    start = time.monotonic()
    run = started(certify, [*command, "--out", str(folder / "run.jsonl")], folder / "said")
    run.join()
    assert run.exitcode == 0, (folder / "said").read_text()
    return folder / "run.jsonl", time.monotonic() - start


def found(path: Path) -> dict[str, Row]:
    """What is known of every image, but for the time it took; none is there twice."""
    rows = read_results(path)[1] if path.exists() and b"\n" in path.read_bytes() else []
    timeless = {line["image"]: {key: line[key] for key in line if key != "seconds"} for line in rows}
    assert len(timeless) == len(rows)
    return timeless


def test_killed_at_twenty_random_moments_a_run_ends_with_the_same_rows(
    command: list[str], undisturbed: tuple[Path, float], tmp_path: Path
) -> None:
    """Half of the moments are any, half come after a row; rows that were there stay, and none is made twice."""
    whole, seconds = found(undisturbed[0]), undisturbed[1]
    chance, path, kills, halves = random.Random(0), tmp_path / "run.jsonl", 0, 0
    while kills < KILLS:
        before = found(path)
        run = started(certify, [*command, "--out", str(path)], tmp_path / "said")
        if kills % 2:
            await_growth(path, run)
        run.join(chance.random() * (0.05 if kills % 2 else seconds))
        run.kill()
        run.join()
        after = found(path)
        assert before.items() <= after.items() <= whole.items()
        assert run.exitcode in (0, -signal.SIGKILL), (tmp_path / "said").read_text()
        kills, halves = kills + (run.exitcode != 0), halves + (0 < len(after) < len(whole))
        if after == whole:
            path.unlink()
    certmask("certify", *command, "--out", path)
    assert found(path) == whole
    assert read_results(path)[0] == read_results(undisturbed[0])[0]
    assert halves


def write_many(path: Path) -> None:
    """Rows without end, as fast as the disk takes them."""
    with ResultsFile(path, HEADER) as file:
        while True:
            file.write(row(len(file.rows)))


def test_a_run_that_does_nothing_but_write_loses_no_row_when_it_is_killed(tmp_path: Path) -> None:
    chance, path, rows = random.Random(1), tmp_path / "run.jsonl", 0
    for _ in range(KILLS):
        run = started(write_many, path)
        await_growth(path, run)
        time.sleep(chance.random() * 0.02)
        run.kill()
        run.join()
        done = read_results(path)[1]
        assert len(done) >= rows
        rows = len(done)
    assert done == [row(number) for number in range(rows)]
    assert rows >= KILLS // 2


def test_a_second_run_on_one_file_is_turned_away_and_the_first_is_unharmed(
    command: list[str], undisturbed: tuple[Path, float], tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    first = started(certify, [*command, "--out", str(path)], tmp_path / "first")
    while first.is_alive() and not found(path):
        await_growth(path, first)
    assert first.pid
    os.kill(first.pid, signal.SIGSTOP)
    before = path.read_bytes()
    second = started(certify, [*command, "--out", str(path)], tmp_path / "second")
    second.join()
    unchanged = path.read_bytes() == before
    os.kill(first.pid, signal.SIGCONT)
    first.join()
    assert (first.exitcode, second.exitcode, unchanged) == (0, 1, True)
    last = (tmp_path / "second").read_text().splitlines()[-1]
    assert last == f"error: expected {path} for this run alone, got one that another run is writing"
    assert found(path) == found(undisturbed[0])


def test_a_run_on_a_full_disk_goes_on_when_there_is_room(
    command: list[str], undisturbed: tuple[Path, float], tmp_path: Path
) -> None:
    """The third row does not fit; nothing of it stays."""
    path, lines = tmp_path / "run.jsonl", undisturbed[0].read_bytes().splitlines(keepends=True)
    room = sum(len(line) for line in lines[:3]) + 100
    run = started(certify, [*command, "--out", str(path)], tmp_path / "said", room)
    run.join()
    said = (tmp_path / "said").read_text().splitlines()
    assert (run.exitcode, said[-1]) == (1, f"error: expected room to write {path}, got File too large")
    assert path.read_bytes().endswith(b"\n")
    assert len(found(path)) == 2
    run = started(certify, [*command, "--out", str(path)], tmp_path / "said")
    run.join()
    assert run.exitcode == 0
    assert found(path) == found(undisturbed[0])


@contextmanager
def limited(what: int, amount: int) -> Iterator[None]:
    """This process with so many bytes of something and no more."""
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (amount, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (soft, hard))


def test_a_row_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """Room up to any byte of a row, then for all of it, through the same object."""
    lines = [{"image": "0.jpg", "text": "ä"}, {"image": "1.jpg"}]
    whole = written(tmp_path / "whole.jsonl", lines)
    start = whole.index(b'{"image": "1.jpg"')
    for room in range(start, len(whole)):
        path = tmp_path / f"{room}.jsonl"
        with ResultsFile(path, HEADER) as file:
            file.write(lines[0])
            with limited(resource.RLIMIT_FSIZE, room), pytest.raises(ResultsError, match="expected room to write") as e:
                file.write(lines[1])
            assert path.read_bytes() == whole[:start]
            assert file.rows == lines[:1]
            file.write(lines[1])
        assert path.read_bytes() == whole
        assert "\n" not in str(e.value)


def test_a_file_without_room_for_its_header_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with limited(resource.RLIMIT_FSIZE, 9), pytest.raises(ResultsError, match="expected room to write"):
        ResultsFile(path, HEADER)
    assert path.read_bytes() == b""
    written(path)
    assert read_results(path)[1] == ROWS


@pytest.mark.parametrize("place", ["/dev/full", "/dev/zero", "pipe", "link"])
def test_what_is_no_plain_file_is_refused_before_it_is_read(place: str, tmp_path: Path) -> None:
    """Reading on would never end: with little memory that is an error here, too."""
    path = tmp_path / place
    if place == "pipe":
        os.mkfifo(path)
    if place == "link":
        path.symlink_to("/dev/zero")
    kind = "a pipe" if place == "pipe" else "a device"
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    with limited(resource.RLIMIT_AS, size + (1 << 28)):
        with pytest.raises(ResultsError, match=f"expected a writable results file, got {kind} at {path}"):
            ResultsFile(path, HEADER)
        with pytest.raises(ResultsError, match=f"expected a results file, got {kind} at {path}"):
            read_results(path)


def test_what_cannot_be_read_is_named() -> None:
    """A plain file to look at, whose first page is never there."""
    with pytest.raises(
        ResultsError, match=r"expected a readable results file, got /proc/self/mem \(Input/output error\)"
    ):
        read_results(Path("/proc/self/mem"))


def test_a_file_cut_after_any_byte_is_read_up_to_its_last_whole_row(tmp_path: Path) -> None:
    path, cut_path = tmp_path / "run.jsonl", tmp_path / "cut.jsonl"
    whole = written(path, [{"image": "0.jpg", "text": "ä–x"}, {"image": "1.jpg"}])
    rows = read_results(path)[1]
    for cut in range(len(whole)):
        cut_path.write_bytes(whole[:cut])
        if b"\n" in whole[:cut]:
            assert read_results(cut_path)[1] == rows[: whole[:cut].count(b"\n") - 1]
        else:
            with pytest.raises(ResultsError, match="expected a results file with a header, got an empty or truncated"):
                read_results(cut_path)


@pytest.mark.parametrize("line", [0, 2])
def test_a_command_continues_a_file_cut_in_a_line(
    line: int, command: list[str], undisturbed: tuple[Path, float], tmp_path: Path
) -> None:
    lines = undisturbed[0].read_bytes().splitlines(keepends=True)
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(lines[:line]) + lines[line][:-20])
    certmask("certify", *command, "--out", path)
    assert found(path) == found(undisturbed[0])


def test_zeros_that_a_crash_leaves_at_the_end_are_a_half_written_line(tmp_path: Path) -> None:
    lines = [{"image": "0.jpg"}, {"image": "1.jpg"}]
    whole, path = written(tmp_path / "whole.jsonl", lines), tmp_path / "run.jsonl"
    header = whole.index(b"\n") + 1
    for cut in range(0, len(whole), 5):
        zeros = header - cut if cut < header else 4096
        path.write_bytes(whole[:cut] + b"\0" * zeros)
        assert written(path, lines) == whole


@pytest.mark.parametrize("content", [b"\0" * 5000, b"{" + b"\0" * 5000, b'{"certmask_results": 2, "kind": "other"'])
def test_a_beginning_that_is_not_this_runs_is_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(ResultsError, match=r"got (another file|half the header of another run)"):
        ResultsFile(path, HEADER)
    assert path.read_bytes() == content


def test_zeros_in_the_middle_are_named_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    whole = bytearray(written(path))
    start = whole.index(b'{"image": "1.jpg"')
    whole[start : start + 100] = b"\0" * 100
    path.write_bytes(whole)
    for attempt in (lambda: read_results(path), lambda: ResultsFile(path, HEADER)):
        with pytest.raises(ResultsError, match=r"got zeros that a crash has left in line 3$"):
            attempt()
    assert path.read_bytes() == bytes(whole)


def test_a_packed_file_cut_after_any_byte_is_refused_in_one_line(tmp_path: Path) -> None:
    whole, path = gzip.compress(written(tmp_path / "run.jsonl")), tmp_path / "run.jsonl.gz"
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(ResultsError, match=r"^expected .* got .*$"):
            read_results(path)
    path.write_bytes(whole)
    assert read_results(path)[1] == ROWS


@pytest.mark.parametrize("rest", [b'{"image": 1}\n', b"not for us\n"])
def test_a_file_of_a_later_format_is_named_and_left_alone(rest: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    content = json.dumps({"certmask_results": FORMAT + 1, **HEADER}).encode() + b"\n" + rest
    path.write_bytes(content)
    for attempt in (lambda: read_results(path), lambda: ResultsFile(path, HEADER)):
        with pytest.raises(ResultsError, match=f"got format {FORMAT + 1} in .*: a later certmask wrote it"):
            attempt()
    assert path.read_bytes() == content
    assert f"of format {FORMAT} or before" in certmask("table", path, code=1).stderr


@pytest.mark.parametrize("mark", [True, 0, -1, 2.0, "2", None, [2]])
def test_what_marks_no_format_is_another_file(mark: object, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(json.dumps({"certmask_results": mark}) + "\n")
    with pytest.raises(ResultsError, match="expected a certmask results file, got another file"):
        read_results(tmp_path / "x.jsonl")


def test_fields_that_this_version_does_not_know_are_read_over(undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    header, rows = read_results(undisturbed[0])
    more = [{**header, "weather": "fine"}, *({**line, "mood": {"good": True}} for line in rows)]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in more))
    assert [{**line, "mood": {"good": True}} for line in rows] == list(read_run(path).rows)
    with pytest.raises(ResultsError, match="got another weather"):
        ResultsFile(path, header)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_without_locks_is_not_taken_for_a_second_run(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ResultsError, match=r"expected a file system that can lock .*got .*another one") as error:
        ResultsFile(tmp_path / "run.jsonl", HEADER)
    assert os.strerror(number) in str(error.value)


@pytest.mark.parametrize("change", ["deleted", "moved", "replaced"])
def test_a_file_that_is_taken_away_in_mid_run_is_noticed(change: str, tmp_path: Path) -> None:
    """Rows would go where nobody finds them, or a second run would have the name to itself."""
    path = tmp_path / "run.jsonl"
    with ResultsFile(path, HEADER) as file:
        file.write(ROWS[0])
        if change == "deleted":
            path.unlink()
        else:
            path.rename(tmp_path / "elsewhere.jsonl")
        if change == "replaced":
            written(path, ROWS[1:2])
        with pytest.raises(ResultsError, match="to stay where it is during a run, got it moved or deleted"):
            file.write(ROWS[2])
    if change == "replaced":
        assert read_results(path)[1] == ROWS[1:2]


def test_a_run_may_change_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with ResultsFile(Path("run.jsonl"), HEADER) as file:
        monkeypatch.chdir("/")
        file.write(ROWS[0])
    assert read_results(tmp_path / "run.jsonl")[1] == ROWS[:1]


def test_a_file_is_free_again_after_a_run_that_could_not_begin(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    written(path)
    with pytest.raises(ResultsError, match="another model") as error:
        ResultsFile(path, {**HEADER, "model": {"name": "n"}})
    with ResultsFile(path, HEADER) as file:
        assert file.rows == ROWS
    assert error.value


def test_a_name_that_no_text_can_hold_is_one_line(tmp_path: Path) -> None:
    """Names of files may be bytes that spell nothing."""
    path = tmp_path / "run.jsonl"
    before = written(path)
    with ResultsFile(path, HEADER) as file, pytest.raises(ResultsError, match=r"expected whole characters .*udcff"):
        file.write({"image": os.fsdecode(b"photo-\xff.jpg")})
    assert path.read_bytes() == before


def changed(path: Path, line: int, **fields: object) -> None:
    """A results file edited by hand; a field that is None is taken out."""
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    lines[line] = {key: value for key, value in {**lines[line], **fields}.items() if value is not None}
    path.write_text("".join(json.dumps(text) + "\n" for text in lines))


@pytest.mark.parametrize(
    ("line", "fields", "said"),
    [
        (2, {"image": None}, "expected 'image' in line 3"),
        (2, {"input_sha256": None}, "expected 'input_sha256' in line 3"),
        (2, {"label": "cat"}, "expected 'label' as a whole number in line 3"),
        (2, {"label": 10**400}, "expected 'label' as a whole number in line 3"),
        (2, {"defences": {}}, "in line 3"),
        (0, {"defences": []}, "expected 'defences' as named fields in the header"),
        (0, {"kind": "diary"}, "expected results of certify or attack, got kind 'diary'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_edited_file_is_not_continued(
    line: int,
    fields: Row,
    said: str,
    command: list[str],
    undisturbed: tuple[Path, float],
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(undisturbed[0].read_bytes())
    changed(path, line, **fields)
    before = path.read_bytes()
    assert said in certmask("certify", *command, "--out", path, code=1).stderr
    assert path.read_bytes() == before


def test_a_row_that_is_there_twice_is_found_before_more_are_made(
    command: list[str], undisturbed: tuple[Path, float], tmp_path: Path
) -> None:
    path, lines = tmp_path / "run.jsonl", undisturbed[0].read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], lines[2]]))
    assert "expected every image once" in certmask("certify", *command, "--out", path, code=1).stderr
    assert path.read_bytes().count(b"\n") == 4


def test_an_attempt_that_is_there_twice_is_not_counted_twice(tmp_path: Path) -> None:
    packed = (DEMO.parent / "attacks" / "resnet50-attempts.jsonl.gz").read_bytes()
    lines = gzip.decompress(packed).splitlines(keepends=True)[:5]
    (tmp_path / "attack.jsonl").write_bytes(b"".join([*lines, lines[3]]))
    with pytest.raises(ResultsError, match="expected every attempt once"):
        read_run(tmp_path / "attack.jsonl")
