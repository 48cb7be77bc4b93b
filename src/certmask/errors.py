"""Everything that can go wrong, each said in one line of the form "expected …, got …"."""

from __future__ import annotations

from collections.abc import Iterable


class CertmaskError(Exception):
    """Base of all errors that certmask raises on purpose."""


class UsageError(CertmaskError, ValueError):
    """A command that was asked for wrongly: an option that makes no sense, alone or beside the others."""


class GeometryError(CertmaskError, ValueError):
    """A size, patch or mask that makes no sense."""


class CoverError(CertmaskError, ValueError):
    """A set of masks that does not cover what it claims to cover."""


class ClassifierError(CertmaskError, ValueError):
    """A model, its weights or its output cannot be used."""


class ChangedModelError(ClassifierError):
    """A model that answers otherwise than before: it keeps state, looks at other pictures, or was changed."""


class VoteError(CertmaskError, LookupError):
    """A rule asked for a vote that was never cast."""


class DataError(CertmaskError, ValueError):
    """An image, a label or a data set cannot be read."""


class ResultsError(CertmaskError, ValueError):
    """A results file cannot be read, written or continued."""


class AttackError(CertmaskError, ValueError):
    """An attack that was asked for wrongly, or that did more than a patch may do."""


class BrokenCertificateError(CertmaskError):
    """An attack got through where a proof said that none can: a fault in this program."""


def first_line(error: BaseException) -> str:
    """What another program says of an error, in one short line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:120].rstrip(" .")


def any_of(words: Iterable[str]) -> str:
    """What was expected, where any of several will do: ``a, b or c``."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
