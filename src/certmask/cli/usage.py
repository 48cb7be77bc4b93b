"""What was asked for wrongly, told apart from what goes wrong: exit code 2 instead of 1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from certmask.errors import CertmaskError, UsageError


@contextmanager
def asked_rightly() -> Iterator[None]:
    """Whatever is refused inside was asked for wrongly."""
    try:
        yield
    except CertmaskError as error:
        raise UsageError(str(error)) from error
