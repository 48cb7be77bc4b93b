"""Fills the pages from the results files in the repository: `make docs`; with --check it only says which differ.

In README.md and all pages under docs two things are replaced: what stands between ``<!-- figures: KIND PATH -->`` and
``<!-- end -->``, and in a sentence the figure between ``<!--=READING NAME-->`` and ``<!--=-->``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

import again
import attempts
import experiment_tables as tables
import other_methods
import overview
import reach
import recipes
import runs
import sabotage
import scale
import sizes
import speed
import zoom
from readings import READINGS

from certmask.attacks import ATTACKS
from certmask.errors import CertmaskError
from certmask.evidence.registry import LOCAL_REGISTER
from certmask.experiments import COUNTS
from certmask.experiments.sheets import counts_table, other_methods_table
from certmask.report.tables import brief_table, markdown_grid, markdown_table
from certmask.results.columns import COLUMNS, figures
from certmask.results.run import read_run
from certmask.rules.registry import REGISTER

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- figures: (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
FIGURE = re.compile(r"(<!--=([\w-]+) ([^>]+?)-->).*?(<!--=-->)", re.DOTALL)
KINDS: dict[str, Callable[[Path], str]] = {
    **{kind: partial(speed.speed_table, kind) for kind in speed.TABLES},
    "run": lambda path: markdown_grid(brief_table("", COLUMNS, figures(read_run(path)))),
    "cards": runs.cards_table,
    "other-cards": other_methods.recipes_table,
    "other-trainings": other_methods.train_commands,
    "other-methods": other_methods.other_methods,
    "other-attacks": other_methods.attacks_table,
    "cutout": runs.cutout_table,
    "recipe-steps": recipes.steps_table,
    "recipes-reported": recipes.reported_table,
    "recipes-views": recipes.views_table,
    "attack": runs.attack_tables,
    "attempts": attempts.attempts_table,
    "overview": overview.overview_table,
    "zoom": zoom.recovery_table,
    "zoom-one": zoom.one_run_table,
    "zoom-detection": zoom.detection_table,
    "zoom-brief": zoom.brief_table,
    "zoom-shipped": zoom.shipped_table,
    "zoom-shipped-detection": zoom.shipped_detection_table,
    "zoom-attacks": zoom.attacks_table,
    "zoom-last-resorts": zoom.last_resorts_table,
    "sizes": sizes.recovery_table,
    "sizes-detection": sizes.detection_table,
    "zoom-speed": zoom.speed_table,
    "zoom-at-once": zoom.meters_table,
    "reach": reach.threats_table,
    "reach-two": reach.recoveries_table,
    "reach-shapes": reach.shapes_table,
    "reach-sizes": reach.sizes_table,
    "reach-photo": reach.photo_table,
    "reach-attacks": reach.attacks_table,
    "reach-every": reach.every_table,
    "sabotage": sabotage.sabotage_table,
    "scale": scale.engines_table,
    "twice": again.twice,
    "again": again.again_table,
    "experiment": tables.measured_tables,
    "paired": tables.paired_tables,
    "gaps": tables.gaps_table,
    "others": lambda path: markdown_table(other_methods_table(tables.experiment_of(path))).strip(),
    "plots": tables.plots,
    "commands": runs.commands,
    "runs": runs.runs_list,
    "missing": runs.missing,
    "rules-register": lambda _: tables.lined(
        "`--rule` | guarantee | idea",
        (f"`{row.option}` | {row.rule.guarantee.promise} | {row.idea}" for row in (*REGISTER, *LOCAL_REGISTER)),
        words=3,
    ),
    "attacks-register": lambda _: tables.lined(
        "attack | needs | idea", (f"{name} | {row.needs.value} | {row.idea}" for name, row in ATTACKS.items()), words=3
    ),
    "counts": lambda _: markdown_table(counts_table(COUNTS.title)).strip(),
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
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


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
    overview.draw_overview(ROOT / "results/reproduce", ROOT / "docs/images")
    reach.draw_sizes(ROOT / "results/reproduce/reach", ROOT / "docs/images")
    speed.draw_scaling(ROOT / "results/speed", ROOT / "docs/images")
    tables.draw_plots(runs.measured_folders(ROOT / "results/reproduce"), ROOT / "docs/images")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
