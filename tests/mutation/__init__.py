"""The faults that would make a certificate false."""

from mutation.brought import BROUGHT
from mutation.evidence import EVIDENCE
from mutation.fault import Fault
from mutation.geometry import GEOMETRY
from mutation.painting import BATCHES, PAINTING
from mutation.reach import REACH
from mutation.records import RECORDS
from mutation.rules import VOTING
from mutation.runs import RUNS
from mutation.threats import THREATS

FAULTS: tuple[Fault, ...] = (
    *PAINTING, *GEOMETRY, *VOTING, *EVIDENCE, *BATCHES, *RECORDS, *RUNS, *REACH, *THREATS, *BROUGHT
)  # fmt: skip

__all__ = ["FAULTS", "Fault"]
