# SPDX-License-Identifier: Apache-2.0
"""CPU time from the pids that NVML lists to their containers: of real processes, each in a container of its own."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from benchmarks.children import ask_child
from benchmarks.table import Row, Section, typical
from benchmarks.trees import why_not_real, writable_hierarchy
from otel_gpu_cgroup.containers.processes.table import MOST_CYCLES, ProcessTable
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import (
    CgroupMode,
    CgroupPath,
    Container,
    DeviceInventory,
    Gpu,
    GpuProcess,
    GpuReading,
    GpuUuid,
    Runtime,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_COUNTS: Final = (500, 2000)
"""Processes."""
_MOST: Final = {"cold": 10.0, "warm": 3.0}
"""Milliseconds for the least of the counts."""
_REPEATS: Final = {"cold": 9, "warm": 5 * MOST_CYCLES}
_UUID: Final = GpuUuid("GPU-1")

Costs = dict[str, list[float]]
"""Milliseconds of CPU time, cold and warm."""


def measure_processes() -> list[Section]:
    """A section for each count; nothing is known of the processes when it is cold, and all when it is warm."""
    reason = why_not_real(CgroupMode.V1)
    if reason is not None:
        return [Section("CPU time from pids to containers", (Row("not measured", reason),))]
    return [_section(count) for count in _COUNTS]


def _section(count: int) -> Section:
    costs: Costs = ask_child("processes", str(count), environment=os.environ)
    rows = (typical(state, costs[state], "ms", most if count == _COUNTS[0] else None) for state, most in _MOST.items())
    return Section(f"CPU time from pids to containers, {count} GPU processes, median", tuple(rows))


@contextmanager
def _processes(count: int) -> Iterator[list[tuple[int, Container]]]:
    """Sleeping ones in cgroups of one new folder; all of it is gone in the end."""
    hierarchy = writable_hierarchy()
    assert hierarchy is not None
    top = hierarchy / f"gpu-cgroup-bench-{secrets.token_hex(6)}"
    top.mkdir()
    made: list[tuple[int, Container]] = []
    try:
        for number in range(count):
            folder = top / f"{number:064x}"
            folder.mkdir()
            made.append((_sleeper(folder), _container(folder, top)))
        yield made
    finally:
        for pid, _ in made:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for folder in list(top.iterdir()):
            if folder.is_dir():
                folder.rmdir()
        top.rmdir()


def _sleeper(folder: Path) -> int:
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    (folder / "cgroup.procs").write_text(str(pid))
    return pid


def _container(folder: Path, top: Path) -> Container:
    path = CgroupPath(f"/{top.name}/{folder.name}")
    return Container(path, Runtime.DOCKER, folder.name, devices=os.fspath(folder), inode=folder.stat().st_ino)


def _measure(count: int) -> Costs:
    with _processes(count) as made:
        pids, containers = [pid for pid, _ in made], [container for _, container in made]
        cold = [_timed(ProcessTable(HostPaths()), pids, containers) for _ in range(_REPEATS["cold"])]
        table = ProcessTable(HostPaths())
        _timed(table, pids, containers)
        return {"cold": cold, "warm": [_timed(table, pids, containers) for _ in range(_REPEATS["warm"])]}


def _timed(table: ProcessTable, pids: list[int], containers: list[Container]) -> float:
    reading = GpuReading(processes=tuple(GpuProcess(pid) for pid in pids))
    listed_at = time.clock_gettime(time.CLOCK_BOOTTIME)
    inventory = DeviceInventory((Gpu(0, _UUID),), {_UUID: reading}, booted_at=listed_at)
    began = time.process_time()
    ownership = table.attribute(inventory, containers)
    passed = time.process_time() - began
    assert {owner.container for owner in ownership.owners.values()} == {it.id for it in containers}
    return passed * 1000


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]))))
