# SPDX-License-Identifier: Apache-2.0
"""CPU time of a cycle, stage by stage: cold, when nothing is remembered yet, and warm, as nearly all cycles are."""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.children import ask_child
from benchmarks.counts import CONTAINERS
from benchmarks.hosts import GPUS, DirectHost, benchmark_host
from benchmarks.parts import PATIENCE, Parts, new_parts
from benchmarks.table import Row, Section, limited, typical
from benchmarks.trees import kind_of_cgroups, why_not_real
from otel_gpu_cgroup.model import CgroupMode
from tests.fakes.fake_nvml import uniform_gpus

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.points import Points
    from otel_gpu_cgroup.host import HostPaths
    from otel_gpu_cgroup.model import NodeStats

_MANY: Final = max(CONTAINERS)
_SCENES: Final = (
    *((CgroupMode.V1, containers, GPUS) for containers in CONTAINERS),
    (CgroupMode.V2, _MANY, GPUS),
    (CgroupMode.V2, _MANY, 2 * GPUS),
    (CgroupMode.HYBRID, _MANY, GPUS),
)
"""Hosts: their cgroups, containers and GPUs."""
_MOST: Final = {CgroupMode.V1: 20.0, CgroupMode.V2: 20.0, CgroupMode.HYBRID: 30.0}
"""Milliseconds for discovery and verdicts of many containers, warm; of real cgroups, as files make it look easy."""
_REPEATS: Final = {"cold": 5, "warm": 25}

Costs = dict[str, list[float]]
"""Milliseconds of CPU time by what was done."""


def measure_stages(library: Path) -> list[Section]:
    """A section for each kind of host, cold and warm."""
    return [section for scene in _SCENES for section in _sections(library, *scene)]


def _sections(library: Path, mode: CgroupMode, containers: int, gpus: int) -> list[Section]:
    host = f"containers: {containers}, each 1 of {gpus} GPUs, {kind_of_cgroups(mode)}"
    reason = why_not_real(mode)
    if reason is not None and mode is not CgroupMode.V1:
        return [Section(f"CPU time of a cycle, {host}", (Row("not measured", reason),))]
    with benchmark_host(library, containers, gpus=uniform_gpus(gpus), mode=mode) as made:
        found: dict[str, Costs] = ask_child("stages", str(made.root), environment=made.environment)
    has_budget = (containers, gpus, reason) == (_MANY, GPUS, None)
    return [
        Section(
            f"CPU time of a {state} cycle, {host}, median of {_REPEATS[state]}",
            tuple(_rows(costs, _MOST[mode] if has_budget and state == "warm" else None)),
        )
        for state, costs in found.items()
    ]


def _rows(costs: Costs, most: float | None) -> list[Row]:
    """What cannot be done alone is the difference of two medians."""
    median = {what: statistics.median(values) for what, values in costs.items()}
    both = [walk + judged for walk, judged in zip(costs["discover"], costs["verdicts"], strict=True)]
    rest = median["cycle"] - median["discover"] - median["verdicts"] - median["nvml"]
    return [
        typical("discovery and verdicts", both, "ms", most),
        typical("  discovery: walk and recognise", costs["discover"], "ms"),
        typical("  policies: open, read or ask, parse", costs["read"], "ms"),
        limited("  judge", max(0.0, median["verdicts"] - median["read"]), "ms"),
        *(limited("  of all three, inside the kernel", value, "ms") for value in costs.get("kernel", ())),
        typical("NVML pass (the fake driver's own time included)", costs["nvml"], "ms"),
        limited("join and seal", max(0.0, rest), "ms"),
        typical("whole cycle", costs["cycle"], "ms"),
        typical(f"points, {costs['points'][0]:.0f} of them", costs["observe"], "ms"),
        typical(f"encoding them, {costs['bytes'][0] / 1024:.0f} KiB", costs["encode"], "ms"),
    ]


def _measure(host: HostPaths) -> dict[str, Costs]:
    from benchmarks.points import Points

    cold: Costs = {}
    for _ in range(_REPEATS["cold"]):
        with new_parts(host) as parts:
            _measure_parts(parts, cold)
        with new_parts(host) as parts:
            _measure_cycle(parts, Points(), cold)
    warm: Costs = {}
    with new_parts(host) as parts:
        points = Points()
        _measure_parts(parts, {})
        _measure_cycle(parts, points, {})
        for _ in range(_REPEATS["warm"]):
            _measure_parts(parts, warm)
            _measure_cycle(parts, points, warm)
        warm["kernel"] = [_kernel_time(parts)]
    return {"cold": cold, "warm": warm}


def _measure_parts(parts: Parts, costs: Costs) -> None:
    """In the order of a cycle, whose first step lets policies go that the last one did not meet."""
    _timed(costs, "nvml", lambda: parts.manager.refresh(PATIENCE))
    parts.policies.begin_cycle()
    containers = _timed(costs, "discover", parts.discovery.discover)
    _timed(costs, "read", lambda: [parts.policies.read(container) for container in containers])
    _timed(costs, "verdicts", lambda: [parts.manager.get_collector(container) for container in containers])


def _kernel_time(parts: Parts) -> float:
    """Milliseconds that discovery and verdicts spend in system calls; a mean, as that clock is coarse."""
    began = resource.getrusage(resource.RUSAGE_SELF).ru_stime
    for _ in range(_REPEATS["warm"]):
        for container in parts.discovery.discover():
            parts.manager.get_collector(container)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_stime - began) * 1000 / _REPEATS["warm"]


def _measure_cycle(parts: Parts, points: Points, costs: Costs) -> None:
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

    stats: NodeStats = _timed(costs, "cycle", parts.cycle.collect)
    data = _timed(costs, "observe", lambda: points.observe(stats))
    encoded = _timed(costs, "encode", lambda: encode_metrics(data).SerializeToString())
    costs.setdefault("points", []).append(points.number(data))
    costs.setdefault("bytes", []).append(len(encoded))


def _timed(costs: Costs, what: str, call: Callable[[], Any]) -> Any:
    """Time of all threads of this process, as NVML is called on one of its own."""
    began = time.process_time()
    result = call()
    costs.setdefault(what, []).append((time.process_time() - began) * 1000)
    return result


if __name__ == "__main__":
    print(json.dumps(_measure(DirectHost(Path(sys.argv[1])))))
