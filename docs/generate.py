"""Fills the pages from the results files in the repository: `make docs`; with --check it only says which differ.

In README.md and docs/*.md two things are replaced: what stands between ``<!-- figures: KIND PATH -->`` and
``<!-- end -->``, and in a sentence the figure between ``<!--=READING NAME-->`` and ``<!--=-->``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

from experiment_runs import commands, measured_folders, missing, runs_list, setting
from experiment_tables import draw_plots, gaps_table, mask_counts, measured_tables, other_methods, paired_tables, plots
from readings import READINGS
from single_runs import attack_tables, cards_table, cutout_table, run_table, twice
from speed import TABLES, draw_scaling, speed_table

from certmask.errors import CertmaskError

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- figures: (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
FIGURE = re.compile(r"(<!--=([\w-]+) ([^>]+?)-->).*?(<!--=-->)", re.DOTALL)
KINDS: dict[str, Callable[[Path], str]] = {
    **{kind: partial(speed_table, kind) for kind in TABLES},
    "run": run_table,
    "cards": cards_table,
    "cutout": cutout_table,
    "attack": attack_tables,
    "twice": twice,
    "experiment": measured_tables,
    "paired": paired_tables,
    "gaps": gaps_table,
    "others": other_methods,
    "plots": plots,
    "setting": setting,
    "commands": commands,
    "runs": runs_list,
    "missing": missing,
    "counts": mask_counts,
}


def filled(text: str) -> str:
    """The page with every block and every figure made anew."""
    return FIGURE.sub(_figure, BLOCK.sub(_block, text))


def _block(found: re.Match[str]) -> str:
    if found[2] not in KINDS:
        raise CertmaskError(f"expected a block of {', '.join(KINDS)}, got {found[2]!r}")
    return f"{found[1]}{KINDS[found[2]](ROOT / found[3])}\n{found[4]}"


def _figure(found: re.Match[str]) -> str:
    if found[2] not in READINGS:
        raise CertmaskError(f"expected a figure of {', '.join(READINGS)}, got {found[2]!r}")
    said = reading(found[2], ROOT)
    if found[3] not in said:
        raise CertmaskError(f"expected one of {', '.join(said)} of {found[2]}, got {found[3]!r}")
    return f"{found[1]}{said[found[3]]}{found[4]}"


@lru_cache
def reading(name: str, root: Path) -> dict[str, str]:
    function, place = READINGS[name]
    return function(root / "results" / place)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def main() -> int:
    try:
        stale = {page: text for page in pages() if (text := filled(page.read_text())) != page.read_text()}
    except CertmaskError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if "--check" in sys.argv:
        sys.stderr.writelines(f"{page.name} does not agree with the results files; run make docs\n" for page in stale)
        return int(bool(stale))
    for page, text in stale.items():
        page.write_text(text)
    draw_scaling(ROOT / "results/speed", ROOT / "docs/images")
    draw_plots(measured_folders(ROOT / "results/reproduce"), ROOT / "docs/images")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
