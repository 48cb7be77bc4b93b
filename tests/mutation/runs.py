"""Faults of runs that share a network or a file with others, or are interrupted."""

from __future__ import annotations

from mutation.fault import Fault

RUNS = [
    Fault(
        "an output of another thread",
        "threads that share a network in OpenVINO read what another one computed",
        "backends/openvino.py",
        "with self._turn:",
        "if self._turn:",
        ("test_threads.py::test_no_thread_reads_what_another_one_computed",),
    ),
    Fault(
        "two writers",
        "two runs write one results file at the same time",
        "results/file.py",
        "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        ("test_results.py::test_two_runs_cannot_write_one_file",),
    ),
    Fault(
        "half a row stays",
        "a row that did not fit on the disk is left half-written, and the next one is glued to it",
        "results/file.py",
        "self._file.truncate(end)",
        "self._file.flush()",
        ("test_interrupted_runs.py::test_a_row_that_does_not_fit_leaves_the_file_as_it_was",),
    ),
    Fault(
        "an image counted twice",
        "figures count an image or an attempt as often as the file has it",
        "results/run.py",
        "if times > 1:",
        "if times > 2:",
        ("test_interrupted_runs.py::test_an_attempt_that_is_there_twice_is_not_counted_twice",),
    ),
    Fault(
        "a run into a deleted file",
        "rows are written where nobody finds them, while a second run has the name to itself",
        "results/file.py",
        "if not _same_file(self._file, self._place):",
        "if self._file.closed:",
        ("test_interrupted_runs.py::test_a_file_that_is_taken_away_in_mid_run_is_noticed",),
    ),
]
