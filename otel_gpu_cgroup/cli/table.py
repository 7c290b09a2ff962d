# SPDX-License-Identifier: Apache-2.0
"""Pure: rows in columns, and how values are written in them; what is not known is a dash, never 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_gpu_cgroup.model import GpuReading, OwnShare

UNKNOWN: Final = "-"
_MIB: Final = 1 << 20


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line a row, all columns as wide as their widest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def counted(number: int, noun: str) -> str:
    """Such as `1 rule` or `2 rules`."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def memory_cell(reading: GpuReading) -> str:
    """Used and total memory."""
    return f"{_mebibytes(reading.memory_used)} / {_mebibytes(reading.memory_total)} MiB"


def busy_cell(reading: GpuReading) -> str:
    """The duty cycle."""
    return UNKNOWN if reading.duty_cycle is None else f"{reading.duty_cycle:.0f} %"


def size_cell(size: int | None) -> str:
    """One amount of memory."""
    return UNKNOWN if size is None else f"{_mebibytes(size)} MiB"


def share_cells(own: OwnShare | None) -> tuple[str, str, str]:
    """Memory, utilization and number of a container's own processes."""
    if own is None:
        return UNKNOWN, UNKNOWN, UNKNOWN
    busy = UNKNOWN if own.utilization is None else f"{100 * own.utilization:.0f} %"
    return size_cell(own.memory), busy, str(own.processes)


def _mebibytes(size: int | None) -> str:
    return UNKNOWN if size is None else str(size // _MIB)
