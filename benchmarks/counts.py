# SPDX-License-Identifier: Apache-2.0
"""Counts that every machine agrees on: the NVML calls of a warm cycle, and the files and folders that it opens.

The driver's utilization samples are all too old here: a GPU is then asked for a rate besides, which is the most that
it is ever asked.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.children import ask_child
from benchmarks.hosts import GPUS, PODS_SHARE, DirectHost, benchmark_host, kind_of_cgroups
from benchmarks.parts import new_parts
from benchmarks.table import Row, Section, limited
from tests.fakes.fake_nvml import Recorded, read_counts, uniform_gpus

if TYPE_CHECKING:
    from otel_gpu_cgroup.cycle import Cycle

CONTAINERS: Final = (1, 100, 1000)
_MOST_CALLS: Final = 20
"""NVML calls per GPU and cycle."""
_OLD: Final = Recorded(((60_000_000, 50),))
"""Microseconds ago, percent."""
_OPENING: Final = ("open", "os.listdir", "os.scandir")
"""Audit events; the latter two open nothing when they are given a descriptor."""


@dataclass(frozen=True, slots=True)
class CycleCounts:
    """What one warm cycle did."""

    containers: int
    rows: int
    """Pairs of a container and a GPU that it may open."""
    calls: int
    """NVML calls."""
    files: int
    """Files and folders opened."""


def count_cycle(library: Path, containers: int) -> CycleCounts:
    """Count in a process of its own."""
    gpus = tuple(replace(gpu, samples=_OLD) for gpu in uniform_gpus(GPUS))
    with benchmark_host(library, containers, gpus=gpus) as host:
        found = ask_child("counts", str(host.root), str(host.counts), environment=host.environment)
    return CycleCounts(**found)


def measure_counts(library: Path) -> Section:
    """The counts of a warm cycle for few and for many containers."""
    counted = {containers: count_cycle(library, containers) for containers in CONTAINERS}
    calls = [counts.calls for counts in counted.values()]
    one, *_, many = counted.values()
    files = (many.files - one.files) / (many.containers - one.containers)
    rows = [Row(f"NVML calls, containers: {containers}", str(counts.calls)) for containers, counts in counted.items()]
    rows += [
        Row("NVML calls, whatever the number of containers", str(max(calls)), "equal", len(set(calls)) == 1),
        limited("NVML calls per GPU", max(calls) / GPUS, "calls", _MOST_CALLS),
        limited("files and folders opened per further container", files, "opens", 1 + 1 / PODS_SHARE),
    ]
    return Section(f"counts of one warm cycle: {GPUS} GPUs, {kind_of_cgroups()}", tuple(rows))


def _count(root: Path, counts: Path) -> dict[str, int]:
    with new_parts(DirectHost(root)) as parts:
        parts.cycle.collect()  # lists the GPUs and fills what is remembered
        before = _calls(counts)
        stats = parts.cycle.collect()
        calls = _calls(counts) - before
        rows = sum(len(report.accelerators) for report in stats.containers)
        return {"containers": len(stats.containers), "rows": rows, "calls": calls, "files": _opened(parts.cycle)}


def _calls(counts: Path) -> int:
    return sum(number for name, number in read_counts(counts).items() if name.startswith("nvml"))


def _opened(cycle: Cycle) -> int:
    """Files and folders that a cycle opens, told by the interpreter's own audit events."""
    opened: list[str] = []

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _OPENING and not isinstance(arguments[0], int):
            opened.append(arguments[0])

    sys.addaudithook(note)
    cycle.collect()
    return len(opened)


if __name__ == "__main__":
    print(json.dumps(_count(Path(sys.argv[1]), Path(sys.argv[2]))))
