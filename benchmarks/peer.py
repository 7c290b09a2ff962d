# SPDX-License-Identifier: Apache-2.0
"""A cycle beside one collection of nvitop-exporter, on the same fake driver with the same processes.

Its processes are real ones that sleep, as the exporter reads of each what the kernel knows. What it reads of the
host (disks, network) and what a scrape costs is not counted; of ours the whole cycle is, with a container for each
process.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.children import ask_child
from benchmarks.hosts import GPUS, DirectHost, benchmark_host
from benchmarks.parts import new_parts
from benchmarks.table import Row, Section, typical
from benchmarks.trees import kind_of_cgroups
from tests.fakes.fake_nvml import FakeGpu, uniform_gpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from otel_gpu_cgroup.host import HostPaths

_PROCESSES_EACH: Final = 32
_PROCESSES: Final = GPUS * _PROCESSES_EACH
SOME_CONTAINERS: Final = 64
"""Four processes in each; a container of each process is measured as well."""
_REPEATS: Final = 7
_MOST: Final = 0.2
"""Our part of what theirs takes."""


def is_peer_here() -> bool:
    """Whether nvitop-exporter is installed."""
    return importlib.util.find_spec("nvitop_exporter") is not None


def compare_with_peer(library: Path, containers: int = SOME_CONTAINERS) -> dict[str, list[float]]:
    """Milliseconds of CPU time of our cycles over so many containers, and of their collections."""
    with _sleepers(_PROCESSES) as pids:
        gpus = tuple(_with_processes(gpu, pids) for gpu in uniform_gpus(GPUS, processes_each=_PROCESSES_EACH))
        with benchmark_host(library, containers, gpus=gpus) as host:
            for pid in pids:
                (host.root / "proc" / str(pid)).symlink_to(f"/proc/{pid}")
            return {
                whose: ask_child("peer", whose, str(host.root), environment=host.environment)
                for whose in ("ours", "theirs")
            }


def measure_peer(library: Path) -> Section:
    """The ratio of the two medians."""
    heading = f"beside nvitop-exporter: {GPUS} GPUs x {_PROCESSES_EACH} processes, median of {_REPEATS}"
    if not is_peer_here():
        return Section(heading, (Row("nvitop-exporter is not installed", "-"),))
    rows = [row for containers in (SOME_CONTAINERS, _PROCESSES) for row in _rows(library, containers)]
    return Section(heading, tuple(rows))


def _rows(library: Path, containers: int) -> Iterator[Row]:
    costs = compare_with_peer(library, containers)
    ratio = statistics.median(costs["ours"]) / statistics.median(costs["theirs"])
    yield typical(f"our cycle, {containers} containers, {kind_of_cgroups()}", costs["ours"], "ms")
    yield typical("one collection of its devices and processes", costs["theirs"], "ms")
    yield Row("ours to theirs", f"1/{1 / ratio:.1f}", f"<= 1/{1 / _MOST:.0f}", ratio <= _MOST)


def _with_processes(gpu: FakeGpu, pids: Sequence[int]) -> FakeGpu:
    """The GPU, whose processes are numbered from 1, with those of these pids."""
    processes = tuple(replace(process, pid=pids[process.pid - 1]) for process in gpu.processes)
    return replace(gpu, processes=processes, shares=tuple(replace(it, pid=pids[it.pid - 1]) for it in gpu.shares))


@contextmanager
def _sleepers(count: int) -> Iterator[list[int]]:
    """The pids of so many processes that do nothing."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            processes.append(subprocess.Popen(["sleep", "600"]))  # noqa: PERF401  # those begun must be ended
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def _measure_ours(host: HostPaths) -> list[float]:
    with new_parts(host) as parts:
        return _times(parts.cycle.collect)


def _measure_theirs() -> list[float]:
    nvitop, exporter, prometheus = map(import_module, ("nvitop", "nvitop_exporter.exporter", "prometheus_client"))
    devices = nvitop.Device.all()
    peer = exporter.PrometheusExporter(devices, "bench", registry=prometheus.CollectorRegistry())

    def collect() -> None:
        for device in devices:
            peer.update_device(device)

    times = _times(collect)
    found = sum(len(pids) for pids in peer.alive_pids.values())
    if found != _PROCESSES:
        raise SystemExit(f"nvitop-exporter found {found} processes, not {_PROCESSES}")
    return times


def _times(collect: Callable[[], Any]) -> list[float]:
    """Milliseconds of CPU time, after a first time that is not counted."""
    collect()
    times = []
    for _ in range(_REPEATS):
        began = time.process_time()
        collect()
        times.append((time.process_time() - began) * 1000)
    return times


if __name__ == "__main__":
    print(json.dumps(_measure_ours(DirectHost(Path(sys.argv[2]))) if sys.argv[1] == "ours" else _measure_theirs()))
