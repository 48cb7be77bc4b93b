"""The command line: parse, call, print."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; a foreseen error is one line on stderr and exit code 1, a traceback only with --debug."""
    from certmask.cli.app import app
    from certmask.errors import CertmaskError

    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    try:
        app()
    except CertmaskError as error:
        if debug:
            raise
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        sys.stderr.write("stopped; what was finished is saved, and the same command goes on from there\n")
        raise SystemExit(130) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(141) from None
