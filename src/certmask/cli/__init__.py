"""The command line: parse, call, print."""

from __future__ import annotations

import signal
import sys
from types import FrameType


class Stopped(Exception):  # noqa: N818
    """The user pressed Ctrl-C."""


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise Stopped


def main() -> None:
    """Run the command line; a foreseen error is one line on stderr and exit code 1, a traceback only with --debug."""
    from certmask.cli.app import app
    from certmask.errors import CertmaskError

    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    signal.signal(signal.SIGINT, _stop)
    try:
        app()
    except Stopped:
        sys.stderr.write("stopped; what was finished is saved, and the same command goes on from there\n")
        raise SystemExit(130) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(141) from None
    except (CertmaskError, OSError, MemoryError, OverflowError) as error:
        if debug:
            raise
        kind = "" if isinstance(error, CertmaskError) else f"expected to go on, got {type(error).__name__}: "
        sys.stderr.write(f"error: {kind}{error}\n")
        raise SystemExit(1) from None
