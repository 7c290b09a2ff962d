# SPDX-License-Identifier: Apache-2.0
"""Pure: measured values and their budgets as a table of plain text."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Row:
    """One measured value; `held` is None where no budget is set."""

    what: str
    value: str
    budget: str = ""
    held: bool | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """Rows that were measured in the same way, which the heading tells."""

    heading: str
    rows: tuple[Row, ...]


def limited(what: str, value: float, unit: str, most: float | None = None) -> Row:
    """A row whose value may be at most that much."""
    text = _number(value, unit)
    return Row(what, text) if most is None else Row(what, text, f"<= {most:g} {unit}", value <= most)


def typical(what: str, values: Sequence[float], unit: str, most: float | None = None) -> Row:
    """A row with the median, which the budget is about, and the minimum, which other programs disturb least."""
    row = limited(what, statistics.median(values), unit, most)
    return Row(row.what, f"{row.value} (min {_number(min(values), unit)})", row.budget, row.held)


def render(sections: Iterable[Section]) -> str:
    """Every section under its heading, all columns aligned."""
    listed = list(sections)
    cells = [_cells(row) for section in listed for row in section.rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines: list[str] = []
    for section in listed:
        lines += ["", section.heading]
        for row in section.rows:
            padded = (cell.ljust(width) for cell, width in zip(_cells(row), widths, strict=True))
            lines.append(f"  {'  '.join(padded)}".rstrip())
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, str, str, str]:
    verdict = "-" if row.held is None else "held" if row.held else "missed"
    return row.what, row.value, row.budget, verdict


def _number(value: float, unit: str) -> str:
    """Three digits, and all of those before the point."""
    return f"{value:.0f} {unit}" if value >= 100 or float(value).is_integer() else f"{value:.3g} {unit}"
