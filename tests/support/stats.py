# SPDX-License-Identifier: Apache-2.0
"""Sealed cycles made by hand, for what comes after the cycle."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

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
    NodeStats,
    PolicySource,
    Runtime,
    Stage,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_gpu_cgroup.model import Problem

GIB = 1 << 30


def accelerator(uuid: str, memory_used: int | None = GIB, duty_cycle: float | None = 12.5) -> AcceleratorStats:
    return AcceleratorStats("nvidia", "H100", GpuUuid(uuid), 80 * GIB, memory_used, duty_cycle)


def container(name: str, *accelerators: AcceleratorStats) -> ContainerReport:
    found = Container(CgroupPath(f"/docker/{name}"), Runtime.DOCKER, name)
    access = AccessClass.EXPLICIT if accelerators else AccessClass.NONE
    return ContainerReport(found, access, PolicySource.DEVICES_LIST, accelerators)


def gpu(uuid: str, minor: int, *holders: str, reading: GpuReading | None = None) -> GpuReport:
    return GpuReport(Gpu(minor, GpuUuid(uuid), "H100"), reading or GpuReading(80 * GIB, GIB, 12.5, 0.5), holders)


def node(
    *containers: ContainerReport,
    gpus: Sequence[GpuReport] = (),
    problems: Sequence[Problem] = (),
    taken_at: float = 1000.0,
) -> NodeStats:
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
