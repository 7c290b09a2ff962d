# SPDX-License-Identifier: Apache-2.0
"""Pure: a sealed cycle as JSON and as a table."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from otel_gpu_cgroup.cli.table import UNKNOWN, aligned, busy_cell, memory_cell
from otel_gpu_cgroup.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_gpu_cgroup.model import AcceleratorStats, Container, ContainerReport, GpuReport, GpuUuid, NodeStats


def render_json(stats: NodeStats, *, simulated: bool) -> str:
    """The cycle as one JSON object; None is null, bytes are integers, and nothing in it breaks a line."""
    return json.dumps(_document(stats, simulated=simulated), indent=2, allow_nan=False)


def _document(stats: NodeStats, *, simulated: bool) -> dict[str, Any]:
    return {
        "taken_at": datetime.fromtimestamp(stats.taken_at, UTC).isoformat(timespec="microseconds"),
        "duration_s": stats.duration,
        "host": {
            "cgroup": stats.cgroup_mode,
            "driver_version": stats.inventory.driver_version,
            "simulated": simulated,
        },
        "gpus": [_gpu(report) for report in stats.gpus],
        "containers": [_container(report) for report in stats.containers],
        "problems": [
            {"stage": problem.stage, "subject": problem.subject, "message": problem.message}
            for problem in stats.problems
        ],
    }


def _gpu(report: GpuReport) -> dict[str, Any]:
    return {
        "id": report.gpu.uuid,
        "index": report.gpu.index,
        "minor": report.gpu.minor,
        "model": report.gpu.model,
        "parent": None,
        "mig_profile": None,
        "kind": "gpu",
        "memory_total": report.reading.memory_total,
        "memory_used": report.reading.memory_used,
        "duty_cycle": report.reading.duty_cycle,
        "containers": list(report.containers),
    }


def _container(report: ContainerReport) -> dict[str, Any]:
    container = report.container
    return {
        "id": container.id,
        "runtime": container.runtime,
        "cgroup": container.cgroup,
        "name": container.name,
        "pod": _pod(container),
        "access": report.access,
        "source": report.source,
        "accelerators": [_accelerator(accelerator) for accelerator in report.accelerators],
    }


def _pod(container: Container) -> dict[str, Any] | None:
    pod = container.pod
    if pod is None:
        return None
    return {"uid": pod.uid, "name": pod.name, "namespace": pod.namespace, "container": pod.container}


def _accelerator(accelerator: AcceleratorStats) -> dict[str, Any]:
    return {
        "make": accelerator.make,
        "model": accelerator.model,
        "id": accelerator.id,
        "memory_total": accelerator.memory_total,
        "memory_used": accelerator.memory_used,
        "duty_cycle": accelerator.duty_cycle,
        "own": None,
        "lost": accelerator.lost,
    }


def render_table(stats: NodeStats) -> str:
    """The cycle as two tables, of GPUs and of containers, and its problems; memory and duty cycle are device-wide."""
    nodes = {report.gpu.uuid: _node(report) for report in stats.gpus}
    gpus = [("GPU", "MODEL", "MEMORY", "BUSY", "CONTAINERS"), *(_gpu_row(report) for report in stats.gpus)]
    containers = [
        ("CONTAINER", "RUNTIME", "ACCESS", "GPUS"),
        *(_container_row(report, nodes) for report in stats.containers),
    ]
    problems = [
        f"problem: {problem.stage}: {printable(problem.subject)}: {printable(problem.message)}"
        for problem in stats.problems
    ]
    return "\n".join((*aligned(gpus), "", *aligned(containers), *_apart(problems)))


def _gpu_row(report: GpuReport) -> tuple[str, ...]:
    memory, busy = memory_cell(report.reading), busy_cell(report.reading)
    holders = " ".join(_short(key) for key in report.containers) or ("(none)" if report.complete else UNKNOWN)
    return _node(report), report.gpu.model or UNKNOWN, memory, busy, holders


def _node(report: GpuReport) -> str:
    """The name of its device node below /dev."""
    return f"nvidia{report.gpu.minor}"


def _container_row(report: ContainerReport, nodes: Mapping[GpuUuid | None, str]) -> tuple[str, ...]:
    gpus = " ".join(nodes.get(accelerator.id, accelerator.id) for accelerator in report.accelerators) or UNKNOWN
    return _short(report.container.key), report.container.runtime, report.access, gpus


def _short(key: str) -> str:
    """A runtime's id as people know it, by its first 12 digits; a cgroup's path as it is."""
    return printable(key) if key.startswith("/") else key[:12]


def _apart(lines: list[str]) -> list[str]:
    return ["", *lines] if lines else []
