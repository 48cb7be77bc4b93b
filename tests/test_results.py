"""Results files: append-only, killed at any byte, continued only with the same inputs."""

from __future__ import annotations

import io
import json
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest
from rich.console import Console

import certmask
from certmask.errors import ResultsError
from certmask.report.tables import TerminalTable, brief_table
from certmask.results import file
from certmask.results.columns import ATTACK_COLUMNS, COLUMNS, attack_figures, figures
from certmask.results.file import ResultsFile, provenance, read_results
from certmask.results.run import read_run

HEADER: dict[str, dict[str, object]] = {
    "model": {"name": "m", "weights_sha256": "a" * 64},
    "defences": {"s": {"margin": 0.0}},
}
ROWS = [{"image": f"{n}.jpg", "label": n, "text": "ä–x"} for n in range(4)]


def written(path: Path) -> bytes:
    with ResultsFile(path, HEADER) as file:
        for row in ROWS:
            file.write(row)
    return path.read_bytes()


def test_a_run_killed_at_any_byte_loses_at_most_the_row_in_work(tmp_path: Path) -> None:
    """Cut the file after every single byte, continue, and get the same file in the end."""
    whole = written(tmp_path / "whole.jsonl")
    for cut in range(len(whole) + 1):
        path = tmp_path / "cut.jsonl"
        path.write_bytes(whole[:cut])
        with ResultsFile(path, HEADER) as file:
            assert len(file.rows) == max(whole[:cut].count(b"\n") - 1, 0)
            for row in ROWS[len(file.rows) :]:
                file.write(row)
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"model": {**HEADER["model"], "weights_sha256": "b" * 64}}, "model.weights_sha256"),
        ({"defences": {"s": {"margin": 0.1}}}, "defences.s.margin"),
        ({"defences": {"s": {"margin": 0.0}, "t": {}}}, "defences.t"),
        ({"data": "other"}, "data"),
    ],
)
def test_other_inputs_are_refused_with_the_field_that_differs(
    change: dict[str, object], names: str, tmp_path: Path
) -> None:
    before = written(tmp_path / "run.jsonl")
    with pytest.raises(ResultsError, match=r"expected to continue .*got another") as error:
        ResultsFile(tmp_path / "run.jsonl", {**HEADER, **change})
    assert names in str(error.value)
    assert (tmp_path / "run.jsonl").read_bytes() == before


def test_two_runs_cannot_write_one_file(tmp_path: Path) -> None:
    with ResultsFile(tmp_path / "run.jsonl", HEADER), pytest.raises(ResultsError, match="another run is writing"):
        ResultsFile(tmp_path / "run.jsonl", HEADER)


def test_a_damaged_line_is_an_error_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    damaged = written(path).replace(b'"label": 1', b'"label": ')
    path.write_bytes(damaged)
    for attempt in (lambda: read_results(path), lambda: ResultsFile(path, HEADER)):
        with pytest.raises(ResultsError, match="line 3"):
            attempt()
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(
    "content", [b"", b'{"certmask_res', b"hello\n", b"[]\n", b'{"certmask_results": 99}\n', b"\xff\n"]
)
def test_files_that_are_no_results(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(content)
    with pytest.raises(ResultsError, match=r"expected .*got"):
        read_results(tmp_path / "x.jsonl")


def test_unwritable_and_absent_places(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="expected a writable results file"):
        ResultsFile(tmp_path / "file" / "run.jsonl", HEADER)
    with pytest.raises(ResultsError, match="expected a writable results file"):
        ResultsFile(tmp_path, HEADER)
    with pytest.raises(ResultsError, match="got nothing at"):
        read_results(tmp_path / "none.jsonl")


def test_a_results_file_is_plain_json_lines(tmp_path: Path) -> None:
    written(tmp_path / "run.jsonl")
    lines = (tmp_path / "run.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines[1:]] == ROWS
    assert read_results(tmp_path / "run.jsonl")[1] == ROWS


def test_a_run_from_a_checkout_knows_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where certmask is not installed, as on a machine that was lent, nothing else says it."""

    def absent(_: str) -> str:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", absent)
    file._version.cache_clear()
    try:
        found = provenance()
    finally:
        file._version.cache_clear()
    assert found["certmask"] == certmask.__version__
    assert found["torch"] == "absent"


@pytest.mark.parametrize("width", range(24, 100, 4))
@pytest.mark.parametrize("name", ["results/demo.jsonl", "results/attacks/resnet50-attempts.jsonl.gz"])
def test_no_terminal_is_too_narrow_for_a_figure(name: str, width: int) -> None:
    """Every figure is printed whole, as a grid or, where that does not fit, in blocks."""
    run = read_run(Path(__file__).parent.parent / name)
    table = (
        brief_table("", ATTACK_COLUMNS, attack_figures(run))
        if run.kind == "attack"
        else brief_table("", COLUMNS, figures(run))
    )
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(TerminalTable(table))
    words = Counter(out.getvalue().split())
    expected = Counter(cell.text for row in table.rows for cell in row[1:] if len(cell.text.split()) == 1)
    assert not expected - words
