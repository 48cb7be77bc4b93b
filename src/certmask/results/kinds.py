"""Kinds of figures: how each prints in a terminal and on a page, and how it is recorded in CSV and JSON."""

from __future__ import annotations

from typing import Any

NOTHING = "–"
"""Printed where there is no such figure."""


class Kind:
    """How figures of one kind are printed and recorded; the base class: words."""

    words = True

    def short(self, value: Any) -> str:
        """For a terminal."""
        return str(value)

    def long(self, value: Any) -> tuple[str, str]:
        """For a page: the figure and, smaller, what qualifies it."""
        return self.short(value), ""

    def plain(self, value: Any) -> Any:
        """As JSON has it; a missing value stays None."""
        return value

    def fields(self, key: str, value: Any) -> dict[str, Any]:
        """As the fields of a CSV file; a missing value fills as many."""
        return {key: value}


class _Count(Kind):
    words = False

    def short(self, value: Any) -> str:
        return f"{value:,}"


class _Part(_Count):
    """A share of images: in percent, with its interval."""

    def short(self, value: Any) -> str:
        return str(value.percent)

    def long(self, value: Any) -> tuple[str, str]:
        low, high = value.interval
        return value.percent, f"[{percent(low)}, {percent(high)}]"

    def plain(self, value: Any) -> Any:
        return value.value if value else None

    def fields(self, key: str, value: Any) -> dict[str, Any]:
        low, high = value.interval if value else (None, None)
        count, share = (value.count, value.value) if value else (None, None)
        return {f"{key}_count": count, key: share, f"{key}_low": low, f"{key}_high": high}


class _Amount(_Count):
    """A mean of passes or milliseconds: at most three digits after the point, fewer for larger numbers."""

    def short(self, value: Any) -> str:
        return f"{value:,.0f}" if value else NOTHING

    def long(self, value: Any) -> tuple[str, str]:
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.3f}", ""


class _Extent(_Count):
    """Height and width."""

    def short(self, value: Any) -> str:
        return f"{value[0]}×{value[1]}"

    def plain(self, value: Any) -> Any:
        return list(value) if value else None

    def fields(self, key: str, value: Any) -> dict[str, Any]:
        height, width = value or (None, None)
        return {f"{key}_height": height, f"{key}_width": width}


class _Percent(_Count):
    """A number in percent that is no share of images."""

    def short(self, value: Any) -> str:
        return f"{value:.1f}"


class _Chance(_Count):
    def short(self, value: Any) -> str:
        return "< 0.001" if value < 0.001 else f"{value:.3f}"


def percent(share: float | None) -> str:
    """A number from 0 to 1 in percent; a counted share prints itself."""
    return NOTHING if share is None else f"{100 * share:.1f}"


WORDS, COUNT, SHARE, AMOUNT, EXTENT, CHANCE, PERCENT = (
    Kind(), _Count(), _Part(), _Amount(), _Extent(), _Chance(), _Percent()
)  # fmt: skip
