# SPDX-License-Identifier: Apache-2.0
"""How often the host is looked at, and how long is waited in between."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.cli.looks import MOST_LOOKS, PAUSE, look
from otel_gpu_cgroup.model import GpuReading, OwnShare
from tests.support.stats import GIB, accelerator, container, gpu, instance, node, partitioned

if TYPE_CHECKING:
    from otel_gpu_cgroup.model import NodeStats

USING: Final = OwnShare(GIB, None, 1)
"""What one pass tells of a process."""
TOLD: Final = OwnShare(GIB, 0.5, 1)
QUIET: Final = node(container("a", accelerator("GPU-a", own=OwnShare(0, None, 0))), gpus=[gpu("GPU-a", 0, "a")])
"""Nobody uses anything."""
UNMETERED: Final = replace(instance("MIG-a", "GPU-m", 0, "a"), reading=GpuReading(8 * GIB, GIB))
BUSY: Final = node(container("a", accelerator("GPU-a", own=USING)), gpus=[gpu("GPU-a", 0, "a")])


class Host:
    """Cycles that come one after another, and the pauses that were made."""

    def __init__(self, *cycles: NodeStats) -> None:
        self._cycles = list(cycles)
        self.pauses: list[float] = []

    def collect(self) -> NodeStats:
        return self._cycles.pop(0)

    @property
    def left(self) -> int:
        return len(self._cycles)


@pytest.mark.parametrize(
    "only",
    [
        node(),
        QUIET,
        node(container("a", accelerator("GPU-a", own=None)), gpus=[gpu("GPU-a", 0, "a")]),
        node(container("a", accelerator("GPU-a", own=TOLD)), gpus=[gpu("GPU-a", 0, "a")]),
        node(gpus=[partitioned("GPU-m", 0), instance("MIG-a", "GPU-m", 0)]),
        node(container("a", accelerator("MIG-a", parent="GPU-m", own=USING)), gpus=[instance("MIG-a", "GPU-m", 0)]),
        node(gpus=[replace(UNMETERED, reading=GpuReading())]),
        node(gpus=[gpu("GPU-a", 0, reading=GpuReading(8 * GIB, GIB))]),
    ],
    ids=[
        "no GPU",
        "no process",
        "no list of processes",
        "all is told",
        "an instance that is metered",
        "a process on an instance, whose use no driver tells",
        "an instance that was not read",
        "a GPU without samples",
    ],
)
def test_where_another_look_changes_nothing_nobody_waits(only: NodeStats) -> None:
    host = Host(only, node())
    assert look(host.collect, host.pauses.append) is only
    assert (host.pauses, host.left) == ([], 1)


@pytest.mark.parametrize(
    "first",
    [
        replace(QUIET, is_provisional=True),
        BUSY,
        node(container("a", accelerator("GPU-a", None, None, own=USING, lost=True))),
        node(gpus=[partitioned("GPU-m", 0), UNMETERED]),
    ],
    ids=["provisional", "a process", "a process on a lost GPU", "an instance"],
)
def test_what_one_cycle_cannot_tell_takes_a_second(first: NodeStats) -> None:
    second = replace(first, taken_at=2.0, is_provisional=False)  # the rest is as open as it was, and stays so
    host = Host(first, second, node())
    assert look(host.collect, host.pauses.append) is second
    assert (host.pauses, host.left) == ([PAUSE], 1)


def test_names_may_take_a_third_and_no_more() -> None:
    cycles = [replace(QUIET, taken_at=float(number), is_provisional=True) for number in range(MOST_LOOKS + 1)]
    host = Host(*cycles)
    assert look(host.collect, host.pauses.append) is cycles[MOST_LOOKS - 1]
    assert (host.pauses, host.left) == ([PAUSE] * 2, 1)
