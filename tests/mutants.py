"""Mutation test: puts each fault of ``mutation`` into a copy of the source and asks its tests whether they notice.

``python tests/mutants.py [NAME ...]`` prints which test caught which fault; exit code 1 if one survives.
``--markdown`` prints the table of docs/guarantees.md instead.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from mutation import FAULTS, Fault

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "certmask"
PATIENCE = 900
"""Seconds after which a run of tests is given up; that does not count as noticing a fault."""


@dataclass(frozen=True)
class Verdict:
    """What the tests said about a copy: the first that failed (empty if all passed), or why they said nothing."""

    failed: str
    trouble: str
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.failed and not self.trouble


@contextmanager
def copied(fault: Fault | None) -> Iterator[Path]:
    """A folder with a copy of the package, with the fault in it if there is one."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        package = Path(folder) / "certmask"
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        if fault:
            file = package / fault.file
            file.write_text(fault.applied(file.read_text(encoding="utf-8")), encoding="utf-8")
        yield Path(folder)


def examined(fault: Fault | None, tests: Sequence[str]) -> Verdict:
    """Run tests against a copy of the package, up to the first failure."""
    start = time.monotonic()
    with copied(fault) as folder:
        surroundings = {
            **os.environ,
            "PYTHONPATH": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        }
        _check_import(folder, surroundings)
        report = folder / "report.xml"
        command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        command += [f"--junitxml={report}", *(f"tests/{test}" for test in tests)]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
        except subprocess.TimeoutExpired:
            return Verdict("", f"no answer in {PATIENCE} s", time.monotonic() - start)
        failed = _first_failure(report)
        silent = not failed and done.returncode
        trouble = f"pytest ended with {done.returncode}: {done.stdout.strip().splitlines()[-1:]}" if silent else ""
        return Verdict(failed, trouble, time.monotonic() - start)


def _check_import(folder: Path, surroundings: dict[str, str]) -> None:
    """An error unless the tests will import the copy and not the installed package."""
    ask = [sys.executable, "-c", "import certmask; print(certmask.__file__)"]
    found = subprocess.run(ask, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(found).resolve().is_relative_to(folder.resolve()):
        raise SystemExit(f"expected tests of the copy in {folder}, got {found}")


def _first_failure(report: Path) -> str:
    """The first test that failed; one that could not be collected or set up has noticed nothing."""
    if not report.exists():
        return ""
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None:
            name = case.get("name", "").split("[")[0]
            return f"{case.get('classname', '').split('.')[-1]}.py::{name}"
    return ""


def chosen(names: Sequence[str]) -> list[Fault]:
    """The faults of these names, all of them if no name is given."""
    known = {fault.name: fault for fault in FAULTS}
    for name in names:
        if name not in known:
            raise SystemExit(f"expected a fault among {', '.join(known)}, got {name!r}")
    return [known[name] for name in names or known]


def markdown(faults: Sequence[Fault]) -> str:
    """The faults in words, each with the first test that is named for it."""
    rows = [("If …", "caught by"), ("---", "---"), *((fault.words, f"`{fault.tests[0]}`") for fault in faults)]
    return "\n".join(f"| {words} | {test} |" for words, test in rows)


def fates(faults: Sequence[Fault], jobs: int) -> list[Verdict]:
    """Examine every fault, some at a time, and print a line about each."""
    width = max(len(fault.name) for fault in faults)
    with ThreadPoolExecutor(jobs) as pool:
        verdicts = []
        for fault, verdict in zip(faults, pool.map(lambda f: examined(f, f.tests), faults), strict=True):
            fate = f"caught by {verdict.failed}" if verdict.failed else f"SURVIVED {verdict.trouble}".rstrip()
            print(f"{fault.name:{width}}  {verdict.seconds:5.1f} s  {fate}", flush=True)
            verdicts.append(verdict)
    return verdicts


def main() -> int:
    """The unbroken copy must pass, and every broken one must fail."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults to try (default: all)")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 4), help="runs at the same time")
    parser.add_argument("--markdown", action="store_true", help="print the table for the docs")
    options = parser.parse_args()
    faults = chosen(options.names)
    if options.markdown:
        print(markdown(faults))
        return 0
    sound = examined(None, list(dict.fromkeys(test for fault in faults for test in fault.tests)))
    if not sound.passed:
        print(f"expected the tests to pass on the unbroken source, got {sound.failed or sound.trouble}")
        return 1
    print(f"without a fault all tests pass ({sound.seconds:.0f} s)")
    survivors = sum(not verdict.failed for verdict in fates(faults, options.jobs))
    print(f"{len(faults) - survivors} of {len(faults)} faults caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
