"""Faults of juries and covers."""

from __future__ import annotations

from mutation.fault import CELLS, ONE_FACT, PARTITION, PIXELS, Fault

GEOMETRY = [
    Fault(
        "a mask covers one place too many",
        "a mask is counted to the jury of a patch that sticks out of it by one pixel",
        "geometry/shapes.py",
        "tuple((low, high - patch_length + 1) for low, high in pixels",
        "tuple((low, high - patch_length + 2) for low, high in pixels",
        (PIXELS, PARTITION),
    ),
    Fault(
        "patch a pixel smaller",
        "juries are found for a patch one pixel smaller than the declared one",
        "geometry/districts.py",
        "position_spans(m.rows(image), patch.height)",
        "position_spans(m.rows(image), max(patch.height - 1, 1))",
        (PARTITION, ONE_FACT),
    ),
    Fault(
        "jury with a stranger",
        "a jury counts a mask that ends where the district begins",
        "geometry/districts.py",
        "covered[cell[low] : cell[high], number] = True",
        "covered[cell[low] : cell[high] + 1, number] = True",
        (PARTITION,),
    ),
    Fault(
        "jury without a mask",
        "a jury does not know all masks that cover its district",
        "geometry/districts.py",
        "np.unpackbits(octets[filled, None], axis=1)",
        "np.unpackbits(octets[filled, None], axis=1, count=7)",
        (PARTITION,),
    ),
    Fault(
        "geometry that does not wrap",
        "a mask beyond the border is clipped where it should go on at the opposite border",
        "geometry/shapes.py",
        "return ((0, overflow), (start, extent)) if overflow > 0",
        "return ((start, extent),) if overflow > 0",
        ("test_geometry.py::test_rows_and_columns_are_the_painted_pixels",),
    ),
    Fault(
        "holes allowed",
        "masks that leave a location uncovered pass as a cover",
        "covers/cover.py",
        "if self.min_fold < self.k:",
        "if self.min_fold < 0:",
        ("test_rules.py::test_a_cover_refuses_a_patch_it_does_not_cover",),
    ),
    Fault(
        "grids with holes allowed",
        "aligned pairs trust a grid that does not cover every location",
        "covers/cover.py",
        "np.isin(self.districts.juries, grid).any(axis=1).all() for grid in self.grids",
        "np.isin(self.districts.juries, grid).any() for grid in self.grids",
        ("test_faults.py::test_a_grid_is_complete_or_refused",),
    ),
    Fault(
        "a neighbour's mask",
        "a cell is judged by the mask of the cell beside it",
        "geometry/cells.py",
        "[by_runs[g][rows[g][row[g]], columns[g][column[g]]] for g in range(len(grids))]",
        "[by_runs[g][rows[g][row[g]], columns[g][max(column[g] - 1, 0)]] for g in range(len(grids))]",
        (CELLS,),
    ),
    Fault(
        "a cell too long",
        "a cell ends where the last of its masks does, and not the first",
        "geometry/cells.py",
        "end = min(own[run] for own, run in zip(ends, band, strict=True))",
        "end = max(own[run] for own, run in zip(ends, band, strict=True))",
        (CELLS,),
    ),
]
