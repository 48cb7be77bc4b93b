"""The list of faults does not rot, and the mutation test can both catch a fault and miss one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mutants import PACKAGE, ROOT, examined, markdown
from mutation import FAULTS, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_fits_the_source(fault: Fault) -> None:
    """Its place is found exactly once, the broken file still compiles, and the named tests exist."""
    source = (PACKAGE / fault.file).read_text(encoding="utf-8")
    assert fault.applied(source) != source
    assert fault.tests
    for test in fault.tests:
        file, name = test.split("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), test


@pytest.mark.parametrize("old", ["return", "no such text in any file"])
def test_a_place_that_is_not_unique_is_an_error(old: str) -> None:
    source = (PACKAGE / FAULTS[0].file).read_text(encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected .* exactly once in .*, got it \d+ times"):
        replace(FAULTS[0], old=old).applied(source)


def test_a_fault_that_does_not_compile_is_an_error() -> None:
    source = (PACKAGE / FAULTS[0].file).read_text(encoding="utf-8")
    with pytest.raises(SyntaxError):
        replace(FAULTS[0], new="row[low:high = True").applied(source)


def test_names_and_words_are_told_apart() -> None:
    assert len({fault.name for fault in FAULTS}) == len({fault.words for fault in FAULTS}) == len(FAULTS)


def test_the_guarantees_list_every_fault() -> None:
    assert markdown(FAULTS) in (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")


def test_a_fault_is_caught_and_a_harmless_edit_is_not() -> None:
    """Two real runs: the first fault fails its first test; the same file with another docstring passes it."""
    fault = FAULTS[0]
    assert examined(fault, fault.tests[:1]).failed == fault.tests[0]
    harmless = replace(fault, old="Masks on the device", new="Masks upon the device")
    assert examined(harmless, fault.tests[:1]).passed


def test_a_fault_that_breaks_the_import_counts_as_missed() -> None:
    """A test that could not even start has noticed nothing."""
    verdict = examined(replace(FAULTS[0], old="import numpy as np", new="import nonsense"), FAULTS[0].tests[:1])
    assert not verdict.failed
    assert "pytest ended with" in verdict.trouble
