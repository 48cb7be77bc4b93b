"""The command line: all commands by name, in the order of the help."""

from __future__ import annotations

from typing import Annotated

import typer

from certmask.cli.attack import attack
from certmask.cli.certify import certify
from certmask.cli.demo import demo
from certmask.cli.merge import merge
from certmask.cli.models import models
from certmask.cli.page import page
from certmask.cli.plan import plan
from certmask.cli.predict import predict
from certmask.cli.report import report
from certmask.cli.reproduce import reproduce
from certmask.cli.serve import serve
from certmask.cli.table import table
from certmask.cli.train import train
from certmask.cli.tune import tune

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Make an image classifier provably safe against adversarial patches, and say exactly what was proved.",
    epilog="Exit codes: 0 done, 1 error (one line on stderr), 2 wrong usage, 3 alert (1 if a photo failed, too).",
)


def _version(value: bool) -> None:
    if value:
        from certmask import __version__

        typer.echo(f"certmask {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; works anywhere on the line.")
    ] = False,
) -> None:
    pass


COMMANDS = (plan, predict, serve, certify, merge, tune, attack, train, models, table, report, reproduce, demo)
for command in COMMANDS:
    app.command()(command)
app.command("app")(page)
