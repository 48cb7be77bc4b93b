"""The command line: parse, call, print."""

from __future__ import annotations

import signal
import sys
from types import FrameType


class Stopped(BaseException):
    """The user pressed Ctrl-C; no library that goes on after errors is to take it for one."""


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise Stopped


def main() -> None:
    """Run the command line; a foreseen error is one line on stderr, a traceback only with --debug.

    Exit code 2 for what was asked for wrongly, 1 for what went wrong.
    """
    from certmask.cli.app import app
    from certmask.cli.streams import notes_on_stderr, print_any_letter
    from certmask.errors import CertmaskError, UsageError

    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    signal.signal(signal.SIGINT, _stop)
    print_any_letter()
    try:
        with notes_on_stderr():
            app(prog_name="certmask")
    except Stopped:
        sys.stderr.write("stopped; a results file keeps what was finished, and the same command goes on from there\n")
        raise SystemExit(130) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(141) from None
    except (CertmaskError, OSError, MemoryError, OverflowError, RuntimeError) as error:
        if debug or not _foreseen(error):
            raise
        kind = "" if isinstance(error, CertmaskError) else f"expected to go on, got {type(error).__name__}: "
        first = (str(error).splitlines() or [""])[0]
        sys.stderr.write(f"error: {kind}{first}\n")
        raise SystemExit(2 if isinstance(error, UsageError) else 1) from None


def _foreseen(error: Exception) -> bool:
    """Whether an error is not the program's own fault; short of memory on the host, torch has but a text to say so."""
    words = ("not enough memory", "allocate memory", "out of memory", "storage size calculation overflowed")
    return not isinstance(error, RuntimeError) or any(word in str(error).lower() for word in words)
