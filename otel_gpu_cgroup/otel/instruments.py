# SPDX-License-Identifier: Apache-2.0
"""Pure: every metric that this package reports, a row each. Names, kinds and units are a contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.otel.attributes import kind_attributes
from otel_gpu_cgroup.otel.rows import (
    AgentInstrument,
    ContainerInstrument,
    DeviceInstrument,
    HeldInstrument,
    Kind,
    UsageInstrument,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_gpu_cgroup.model import GpuReading, GpuReport, Stage
    from otel_gpu_cgroup.otel.rows import Number

SCOPE: Final = "otel_gpu_cgroup"
"""The instrumentation scope of every metric."""
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The semantic conventions that the `hw.*` and `container.*` names follow."""


def _of_gpus(value: Callable[[GpuReading], Number | None]) -> Callable[[GpuReport], Number | None]:
    """The value of physical GPUs; instances have none."""
    return lambda report: value(report.reading) if report.gpu.instance is None else None


def _memory_utilization(reading: GpuReading) -> float | None:
    total, used = reading.memory_total, reading.memory_used
    return used / total if total and used is not None else None


def _fraction(report: GpuReport) -> float | None:
    return 1.0 if report.gpu.instance is None else report.gpu.instance.fraction


_DEVICE_WIDE: Final = "DEVICE-WIDE, repeated per container, never sum; own share: container.gpu.*. "

CONTAINER_INSTRUMENTS: Final = (
    ContainerInstrument(
        "container.gpu.access",
        Kind.UP_DOWN_COUNTER,
        "{gpu}",
        "1: the container may open the GPU; 0: it should and is denied (lost). No point while that is unknown.",
        lambda row: (0 if row.lost else 1) if row.certain else None,
    ),
    ContainerInstrument(
        "container.accelerator.memory.total",
        Kind.GAUGE,
        "By",
        f"{_DEVICE_WIDE}Memory of the GPU that the container may open.",
        lambda row: row.memory_total,
    ),
    ContainerInstrument(
        "container.accelerator.memory.used",
        Kind.GAUGE,
        "By",
        f"{_DEVICE_WIDE}Memory in use on it, by anybody, without the driver's reserve.",
        lambda row: row.memory_used,
    ),
    ContainerInstrument(
        "container.accelerator.duty_cycle",
        Kind.GAUGE,
        "{percent}",
        f"{_DEVICE_WIDE}Percent of the last 10 s in which it was busy (mean of the driver's samples), 0 to 100.",
        lambda row: row.duty_cycle,
    ),
    ContainerInstrument(
        "container.gpu.memory.usage",
        Kind.UP_DOWN_COUNTER,
        "By",
        "Memory that the container's own processes hold on it.",
        lambda row: row.own.memory if row.own else None,
    ),
    ContainerInstrument(
        "container.gpu.utilization",
        Kind.GAUGE,
        "1",
        "Fraction of the time since the previous cycle in which its own processes kept the GPU busy: their sum, at "
        "most 1.",
        lambda row: row.own.utilization if row.own else None,
    ),
    ContainerInstrument(
        "container.gpu.process.count",
        Kind.UP_DOWN_COUNTER,
        "{process}",
        "The container's own processes on it.",
        lambda row: row.own.processes if row.own else None,
    ),
    HeldInstrument(
        "container.gpu.time",
        Kind.COUNTER,
        "s",
        "Time for which the container has held it, an estimate. Active: its own utilization times the time that the "
        "driver's samples cover; idle: the rest of that; unknown: the time that they do not cover. The three add up "
        "to the time held.",
    ),
)

DEVICE_INSTRUMENTS: Final = (
    DeviceInstrument(
        "hw.gpu.memory.limit",
        Kind.UP_DOWN_COUNTER,
        "By",
        "Size of the GPU memory.",
        _of_gpus(lambda reading: reading.memory_total),
    ),
    DeviceInstrument(
        "hw.gpu.memory.usage",
        Kind.UP_DOWN_COUNTER,
        "By",
        "GPU memory in use, without the driver's reserve.",
        _of_gpus(lambda reading: reading.memory_used),
    ),
    DeviceInstrument(
        "hw.gpu.memory.utilization",
        Kind.GAUGE,
        "1",
        "Fraction of the GPU memory in use.",
        _of_gpus(_memory_utilization),
    ),
    DeviceInstrument(
        "hw.gpu.utilization",
        Kind.GAUGE,
        "1",
        "Fraction of the time since the previous cycle in which the GPU was busy (the driver keeps about 16 s).",
        _of_gpus(lambda reading: reading.utilization),
        lambda _: {"hw.gpu.task": "general"},
    ),
    DeviceInstrument(
        "gpu_cgroup.device.container.count",
        Kind.UP_DOWN_COUNTER,
        "{container}",
        "Containers that hold the device; 0: it is free; of a partitioned GPU, those that hold any of its instances. "
        "One that may open everything counts while it is reported as using it, an excluded one never. No point while "
        "the kernel does not tell what some may open.",
        lambda report: len(report.containers) if report.complete else None,
        kind_attributes,
    ),
    DeviceInstrument(
        "gpu_cgroup.device.fraction",
        Kind.GAUGE,
        "1",
        "1, or a MIG instance's share of its GPU's compute slices.",
        _fraction,
    ),
    DeviceInstrument(
        "gpu_cgroup.device.memory.unattributed",
        Kind.UP_DOWN_COUNTER,
        "By",
        "Memory in use on the device by no container: by processes of the host, by leaks. No point while what some "
        "container uses of it is unknown.",
        lambda report: report.unattributed,
    ),
)

USAGE_INSTRUMENTS: Final = (
    UsageInstrument(
        "gpu_cgroup.usage.time",
        Kind.COUNTER,
        "s",
        "The same time as container.gpu.time, by Kubernetes namespace, or by the user whose Slurm step it was, or by "
        "neither; it goes on when containers have ended.",
    ),
)

AGENT_INSTRUMENTS: Final = (
    AgentInstrument(
        "gpu_cgroup.up",
        Kind.UP_DOWN_COUNTER,
        "1",
        "1 the stage works, 0 it cannot; no point where it does not apply. share: whose the processes on GPUs are; "
        "names: what containers are called.",
        lambda health: {_stage(stage): int(up) for stage, up in health.up.items()},
    ),
    AgentInstrument(
        "gpu_cgroup.device.count",
        Kind.UP_DOWN_COUNTER,
        "{gpu}",
        "GPUs on the PCI bus (pci) and listed by the driver (nvml); pci above nvml: a GPU fell off.",
        lambda health: {(("gpu_cgroup.device.source", source),): count for source, count in health.devices.items()},
    ),
    AgentInstrument(
        "gpu_cgroup.container.count",
        Kind.UP_DOWN_COUNTER,
        "{container}",
        "Containers on the host, by what they may open.",
        lambda health: {(("gpu_cgroup.access", access),): count for access, count in health.containers.items()},
    ),
    AgentInstrument(
        "gpu_cgroup.cycle.duration",
        Kind.GAUGE,
        "s",
        "How long the cycle took whose values are reported.",
        lambda health: {} if health.duration is None else {(): health.duration},
    ),
    AgentInstrument(
        "gpu_cgroup.cycle.age",
        Kind.GAUGE,
        "s",
        "Seconds since the half of the cycle (cgroups: policy, driver: nvml) last ended.",
        lambda health: {_stage(stage): age for stage, age in health.ages.items()},
    ),
    AgentInstrument(
        "gpu_cgroup.cycle.problems",
        Kind.COUNTER,
        "{problem}",
        "Problems that cycles met, by stage.",
        lambda health: {_stage(stage): count for stage, count in health.problems.items()},
    ),
)


def _stage(stage: Stage) -> tuple[tuple[str, str], ...]:
    return (("gpu_cgroup.stage", stage.value),)
