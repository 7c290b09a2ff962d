# SPDX-License-Identifier: Apache-2.0
"""Pure: every metric that this package reports, a row each. Names, kinds and units are a contract."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_gpu_cgroup.model import AcceleratorStats, GpuReport, Stage
    from otel_gpu_cgroup.otel.health import Health

SCOPE: Final = "otel_gpu_cgroup"
"""The instrumentation scope of every metric."""
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The semantic conventions that the `hw.*` and `container.*` names follow."""

Number = int | float
Series = dict[tuple[tuple[str, str], ...], Number]
"""Values by attribute set."""


class Kind(enum.Enum):
    """The OpenTelemetry instrument."""

    COUNTER = "observable counter"
    GAUGE = "observable gauge"
    UP_DOWN_COUNTER = "observable up-down counter"


@dataclass(frozen=True, slots=True)
class Instrument:
    """What every row says."""

    name: str
    kind: Kind
    unit: str
    description: str


@dataclass(frozen=True, slots=True)
class ContainerInstrument(Instrument):
    """A metric with a point for each container and GPU that it may open."""

    value: Callable[[AcceleratorStats], Number | None]
    """None: no point."""


@dataclass(frozen=True, slots=True)
class DeviceInstrument(Instrument):
    """A metric with a point for each GPU."""

    value: Callable[[GpuReport], Number | None]
    """None: no point."""
    attributes: tuple[tuple[str, str], ...] = ()
    """What its points bear beside the GPU's own attributes."""


@dataclass(frozen=True, slots=True)
class AgentInstrument(Instrument):
    """A metric of this software itself."""

    values: Callable[[Health], Series]


def _memory_utilization(report: GpuReport) -> float | None:
    total, used = report.reading.memory_total, report.reading.memory_used
    return used / total if total and used is not None else None


_DEVICE_WIDE: Final = "DEVICE-WIDE, repeated per container, never sum; own share: container.gpu.*. "

CONTAINER_INSTRUMENTS: Final = (
    ContainerInstrument(
        "container.gpu.access",
        Kind.UP_DOWN_COUNTER,
        "{gpu}",
        "1: the container may open the GPU. No point while that is unknown.",
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
)

DEVICE_INSTRUMENTS: Final = (
    DeviceInstrument(
        "hw.gpu.memory.limit",
        Kind.UP_DOWN_COUNTER,
        "By",
        "Size of the GPU memory.",
        lambda report: report.reading.memory_total,
    ),
    DeviceInstrument(
        "hw.gpu.memory.usage",
        Kind.UP_DOWN_COUNTER,
        "By",
        "GPU memory in use, without the driver's reserve.",
        lambda report: report.reading.memory_used,
    ),
    DeviceInstrument(
        "hw.gpu.memory.utilization",
        Kind.GAUGE,
        "1",
        "Fraction of the GPU memory in use.",
        _memory_utilization,
    ),
    DeviceInstrument(
        "hw.gpu.utilization",
        Kind.GAUGE,
        "1",
        "Fraction of the time since the previous cycle in which the GPU was busy (the driver keeps about 16 s).",
        lambda report: report.reading.utilization,
        (("hw.gpu.task", "general"),),
    ),
    DeviceInstrument(
        "gpu_cgroup.device.container.count",
        Kind.UP_DOWN_COUNTER,
        "{container}",
        "Containers with a row on the GPU; those that may open everything, and excluded ones, have none. No point "
        "while the kernel does not tell what some may open.",
        lambda report: len(report.containers) if report.complete else None,
        (("gpu_cgroup.device.kind", "gpu"),),
    ),
)

AGENT_INSTRUMENTS: Final = (
    AgentInstrument(
        "gpu_cgroup.up",
        Kind.UP_DOWN_COUNTER,
        "1",
        "1 the stage works, 0 it cannot; no point where it does not apply.",
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
