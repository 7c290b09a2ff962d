# SPDX-License-Identifier: Apache-2.0
"""Sealed cycles made by hand, for what comes after the cycle."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from otel_gpu_cgroup.model import (
    AcceleratorStats,
    AccessClass,
    CgroupMode,
    CgroupPath,
    Container,
    ContainerReport,
    DeviceInventory,
    Gpu,
    GpuReading,
    GpuReport,
    GpuUuid,
    HeldTime,
    MigInstance,
    NodeStats,
    PolicySource,
    RowKey,
    Runtime,
    Stage,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_gpu_cgroup.model import Account, Problem

GIB = 1 << 30


def accelerator(
    uuid: str, memory_used: int | None = GIB, duty_cycle: float | None = 12.5, **more: Any
) -> AcceleratorStats:
    """What a container has of a GPU with 80 GiB; `more` are fields of the row."""
    return replace(AcceleratorStats("nvidia", "H100", GpuUuid(uuid), 80 * GIB, memory_used, duty_cycle), **more)


def container(name: str, *accelerators: AcceleratorStats, **more: Any) -> ContainerReport:
    """A container of Docker; `more` are its fields."""
    found = replace(Container(CgroupPath(f"/docker/{name}"), Runtime.DOCKER, name), **more)
    access = AccessClass.EXPLICIT if accelerators else AccessClass.NONE
    return ContainerReport(found, access, PolicySource.DEVICES_LIST, accelerators)


def gpu(uuid: str, minor: int, *holders: str, reading: GpuReading | None = None, **more: Any) -> GpuReport:
    """A physical GPU; `more` are fields of its report."""
    reading = reading or GpuReading(80 * GIB, GIB, 12.5, 0.5)
    return GpuReport(Gpu(minor, GpuUuid(uuid), "H100"), reading, holders, **more)


def partitioned(uuid: str, minor: int, *holders: str) -> GpuReport:
    """A GPU in MIG mode: it has memory, and no utilization."""
    gpu = Gpu(minor, GpuUuid(uuid), "H100", is_partitioned=True)
    return GpuReport(gpu, GpuReading(80 * GIB, 3 * GIB), holders)


def instance(uuid: str, parent: str, minor: int, *holders: str, fraction: float | None = 1 / 7) -> GpuReport:
    """A MIG instance, which has a tenth of the memory."""
    part = MigInstance(GpuUuid(parent), gpu_instance=7, compute_instance=0, profile="1g.10gb", fraction=fraction)
    return GpuReport(Gpu(minor, GpuUuid(uuid), "H100", instance=part), GpuReading(8 * GIB, GIB, 40.0, 0.4), holders)


def held(*rows: tuple[str, str, float, float, float]) -> dict[RowKey, HeldTime]:
    """Container, device, and the seconds active, idle and unknown."""
    return {RowKey(name, GpuUuid(uuid)): HeldTime(*map(float, seconds)) for name, uuid, *seconds in rows}


def node(
    *containers: ContainerReport,
    gpus: Sequence[GpuReport] = (),
    problems: Sequence[Problem] = (),
    taken_at: float = 1000.0,
    held: Mapping[RowKey, HeldTime] | None = None,
    usage: Mapping[Account, HeldTime] | None = None,
) -> NodeStats:
    """A cycle that is sealed now."""
    return NodeStats(
        taken_at=taken_at,
        duration=0.25,
        sealed_at=time.monotonic(),
        cgroup_mode=CgroupMode.V1,
        inventory=DeviceInventory(pci_gpus=2, nvml_gpus=len(gpus), nvml_finished_at=time.monotonic()),
        gpus=tuple(gpus),
        containers=containers,
        problems=tuple(problems),
        up={Stage.DISCOVERY: True, Stage.NVML: False},
        held=held or {},
        usage=usage or {},
    )


class Script:
    """A source whose next cycle the test sets; None is a cycle that did not come in time."""

    def __init__(self, stats: NodeStats | None = None) -> None:
        self.next = stats
        self._last: NodeStats | None = None

    @property
    def last(self) -> NodeStats | None:
        return self._last

    def expire(self) -> None:
        """The test says what comes next."""

    def latest(self, timeout: float) -> NodeStats | None:
        self.timeout = timeout
        self._last = self.next or self._last
        return self.next
