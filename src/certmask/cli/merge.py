"""``certmask merge``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def merge(
    shards: Annotated[list[Path], typer.Argument(help="Results files of `certify --shard`, all shards of one run.")],
    out: Annotated[Path, typer.Option("--out", help="The results file to write; it must not be there.")],
) -> None:
    """Put the shards of a run together: the file that one machine would have written. Gaps and overlaps are refused."""
    from certmask.cli.console import images
    from certmask.cli.console import out as screen
    from certmask.cli.outputs import check_file
    from certmask.results.merge import merge_shards

    check_file(out)
    count = merge_shards(shards, out)
    screen.print(f"{images(count)} of {len(shards)} shard{'s' if len(shards) != 1 else ''} in {out}", markup=False)
