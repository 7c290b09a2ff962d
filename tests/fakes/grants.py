# SPDX-License-Identifier: Apache-2.0
"""What the fake driver granted, from its own log: the truth that its samples tell of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

TICK = 166_667
"""Microseconds between two samples of the driver."""


class Granted(NamedTuple):
    """Ticks in a row that a process was granted the same percentage of the multiprocessors in."""

    first: int
    """Microseconds since boot at the end of the first tick."""
    last: int
    gpu: str
    pid: int
    percent: int

    def seconds(self, after: int, until: int) -> float:
        """Of the multiprocessors' time in its ticks that end in this span."""
        first, last = max(self.first, (after // TICK + 1) * TICK), min(self.last, until // TICK * TICK)
        return max(0, (last - first) // TICK + 1) * TICK * self.percent / 100e6


def read_grants(path: Path) -> list[Granted]:
    """All that is in the log so far; nothing before the first world with a stopped clock and grants."""
    if not path.exists():
        return []
    rows = (line.split() for line in path.read_text("ascii").splitlines())
    return [Granted(int(row[0]), int(row[1]), row[2], int(row[3]), int(row[4])) for row in rows]
