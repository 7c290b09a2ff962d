# SPDX-License-Identifier: Apache-2.0
"""Looks at the host as often as it takes to tell what a single cycle cannot.

A loss is confirmed by the second cycle that sees it, a name may be awaited for two, and how busy a process or a MIG
instance is shows between two NVML passes. Where none of this is open, one look is enough, and nobody waits.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import DeviceKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_gpu_cgroup.model import AcceleratorStats, GpuReport, NodeStats

MOST_LOOKS: Final = 3
"""The third is for names: they are final then."""
PAUSE: Final = 1.0
"""Seconds between two; drivers sample at least that often."""


def look(collect: Callable[[], NodeStats], pause: Callable[[float], None] = time.sleep) -> NodeStats:
    """What the last of at most three cycles found, `PAUSE` seconds apart: the first one that leaves nothing open."""
    stats = collect()
    is_open = stats.is_provisional or _needs_another_pass(stats)
    for _ in range(1, MOST_LOOKS):
        if not is_open:
            break
        pause(PAUSE)
        stats = collect()
        is_open = stats.is_provisional
    return stats


def _needs_another_pass(stats: NodeStats) -> bool:
    """Whether a second NVML pass may tell how busy something is that this first one could not."""
    rows = (row for report in stats.containers for row in report.accelerators)
    return any(map(_is_use_open, rows)) or any(map(_is_duty_open, stats.gpus))


def _is_use_open(row: AcceleratorStats) -> bool:
    """Whether processes use a whole GPU, and how much of its time is not known; of instances no driver tells it."""
    own = row.own
    return row.parent is None and own is not None and own.processes > 0 and own.utilization is None


def _is_duty_open(report: GpuReport) -> bool:
    """Whether it is an instance that was read, and how busy it is is not known."""
    is_read = report.reading.memory_used is not None
    return report.gpu.kind is DeviceKind.MIG and is_read and report.reading.duty_cycle is None
