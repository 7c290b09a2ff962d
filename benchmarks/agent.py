# SPDX-License-Identifier: Apache-2.0
"""The whole agent, a process that pushes to a collector: its memory, its CPU time and its start.

It pushes every second, as the CPU time of an export does not depend on the interval; what that is of a core is
then told for the default interval.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.children import REPOSITORY
from benchmarks.hosts import GPUS, BenchmarkHost, benchmark_host
from benchmarks.sink import Arrival, Sink, open_sink
from benchmarks.table import Row, Section, limited, typical
from benchmarks.trees import kind_of_cgroups

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONTAINERS: Final = 100
_EXPORTS: Final = 10
_INTERVAL: Final = 1
"""Seconds between two exports while measuring."""
_DEFAULT_INTERVAL: Final = 15
_PATIENCE: Final = 30.0
_MOST_MEMORY: Final = {1: 45.0, GPUS: None}
"""MiB, by the GPUs that each container has."""
_MOST_OF_A_CORE: Final = {1: 0.4, GPUS: 2.5}
"""Percent, likewise."""


@dataclass(frozen=True, slots=True)
class AgentCost:
    """What an agent cost in its first exports."""

    first_export: float
    """Seconds from the start of its process to its first request at the collector."""
    started: float
    """Seconds of CPU time until then."""
    exports: tuple[float, ...]
    """Seconds of CPU time from one export to the next."""
    memory: float
    """MiB of resident memory after the last of them."""
    last: Arrival


def measure_agent(library: Path) -> list[Section]:
    """A section for each number of GPUs that a container has."""
    return [_section(library, gpus_each) for gpus_each in _MOST_OF_A_CORE]


def _section(library: Path, gpus_each: int) -> Section:
    with benchmark_host(library, _CONTAINERS, gpus_each=gpus_each) as host, open_sink() as sink:
        cost = _measure(host, sink)
    percents = [seconds / _DEFAULT_INTERVAL * 100 for seconds in cost.exports]
    rows = (
        Row("points in an export, the agent's own among them", str(_points(cost.last.body))),
        limited("size of an export", len(cost.last.body) / 1024, "KiB"),
        limited(f"resident memory after {_EXPORTS + 1} exports", cost.memory, "MiB", _MOST_MEMORY[gpus_each]),
        typical("CPU time of an export, cycle included", [seconds * 1000 for seconds in cost.exports], "ms"),
        typical(f"of a core, at {_DEFAULT_INTERVAL} s", percents, "%", _MOST_OF_A_CORE[gpus_each]),
        limited("start to first export", cost.first_export, "s"),
        limited("CPU time until then", cost.started, "s"),
    )
    return Section(
        f"agent, OTLP over HTTP: {_CONTAINERS} containers, each {gpus_each} of {GPUS} GPUs, {kind_of_cgroups()}", rows
    )


def _measure(host: BenchmarkHost, sink: Sink) -> AgentCost:
    began = time.monotonic()
    with _agent(host, sink) as agent:
        first = sink.arrivals.get(timeout=_PATIENCE)
        used = [_cpu_seconds(agent.pid)]
        for _ in range(_EXPORTS):
            last = sink.arrivals.get(timeout=_PATIENCE)
            used.append(_cpu_seconds(agent.pid))
        exports = tuple(after - before for before, after in pairwise(used))
        return AgentCost(first.at - began, used[0], exports, _resident_mebibytes(agent.pid), last)


@contextmanager
def _agent(host: BenchmarkHost, sink: Sink) -> Iterator[subprocess.Popen[bytes]]:
    ours = {name: value for name, value in host.environment.items() if not name.startswith("OTEL_")}
    environment = {**ours, "OTEL_EXPORTER_OTLP_ENDPOINT": sink.url, "NO_PROXY": "127.0.0.1"}
    options = ("--host-root", os.fspath(host.root), "--interval", str(_INTERVAL), "--log-level", "warning")
    command = [sys.executable, "-m", "otel_gpu_cgroup", "run", *options]
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment) as agent:
        try:
            yield agent
        finally:
            agent.terminate()


def _cpu_seconds(pid: int) -> float:
    """CPU time of all threads of another process, by its own clock (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def _resident_mebibytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def _points(body: bytes) -> int:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    request = ExportMetricsServiceRequest.FromString(body)
    return sum(
        len(getattr(metric, metric.WhichOneof("data")).data_points)
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )
