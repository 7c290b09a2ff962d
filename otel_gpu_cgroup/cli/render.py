# SPDX-License-Identifier: Apache-2.0
"""Pure: a sealed cycle as JSON, for programs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_gpu_cgroup.model import AcceleratorStats, Container, ContainerReport, GpuReport, NodeStats, OwnShare


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
    gpu, reading = report.gpu, report.reading
    return {
        "id": gpu.uuid,
        "index": gpu.index,
        "minor": gpu.minor,
        "model": gpu.model,
        "parent": None if gpu.instance is None else gpu.instance.parent,
        "mig_profile": None if gpu.instance is None else gpu.instance.profile,
        "kind": gpu.kind,
        "memory_total": reading.memory_total,
        "memory_used": reading.memory_used,
        "memory_unattributed": report.unattributed,
        "duty_cycle": reading.duty_cycle,
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
        "slurm": _slurm(container),
        "access": report.access,
        "source": report.source,
        "accelerators": [_accelerator(accelerator) for accelerator in report.accelerators],
    }


def _pod(container: Container) -> dict[str, Any] | None:
    pod = container.pod
    if pod is None:
        return None
    return {"uid": pod.uid, "name": pod.name, "namespace": pod.namespace, "container": pod.container}


def _slurm(container: Container) -> dict[str, Any] | None:
    step = container.slurm
    return None if step is None else {"job": step.job, "step": step.step, "uid": step.uid}


def _accelerator(accelerator: AcceleratorStats) -> dict[str, Any]:
    return {
        "make": accelerator.make,
        "model": accelerator.model,
        "id": accelerator.id,
        "memory_total": accelerator.memory_total,
        "memory_used": accelerator.memory_used,
        "duty_cycle": accelerator.duty_cycle,
        "own": _own(accelerator.own),
        "lost": accelerator.lost,
        "reason": accelerator.reason,
    }


def _own(share: OwnShare | None) -> dict[str, Any] | None:
    if share is None:
        return None
    return {"memory": share.memory, "utilization": share.utilization, "processes": share.processes}
