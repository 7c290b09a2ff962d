# SPDX-License-Identifier: Apache-2.0
"""The join of one container with the readings: a row for each device that it can use, or has lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import AcceleratorStats, Gpu, GpuReading, Problem, Stage, gpu_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.model import Container, ContainerStats, DeviceInventory, GpuUuid
    from otel_gpu_cgroup.nvidia.judgement import Judgement
    from otel_gpu_cgroup.nvidia.lost import Lost
    from otel_gpu_cgroup.nvidia.share import Shares

MAKE: Final = "nvidia"
"""cAdvisor's `make` of every NVIDIA device."""
_NO_READING: Final = GpuReading()


@dataclass(frozen=True, slots=True)
class NvidiaCollector:
    """One container's access, and what the cycle in which it was found knows of devices and processes."""

    judgement: Judgement
    inventory: DeviceInventory
    shares: Shares
    shown: tuple[Gpu, ...]
    """The usable devices that get a row: not all of those of a container that may open everything."""
    lost: tuple[Lost, ...] = ()

    def update_stats(self, stats: ContainerStats) -> None:
        """Write access, source, problems and one row for each device whose UUID is known; never raises."""
        stats.access, stats.source = self.judgement.access, self.judgement.source
        stats.problems += self._problems(stats.container)
        key, readings = stats.container.key, self.inventory.readings
        for gpu in self.shown:
            if gpu.uuid is not None:
                stats.accelerators.append(self._row(key, gpu, gpu.uuid, readings.get(gpu.uuid, _NO_READING)))
        for loss in self.lost:
            if loss.gpu.uuid is not None:
                stats.accelerators.append(self._row(key, loss.gpu, loss.gpu.uuid, _NO_READING, loss.reason))

    def _problems(self, container: Container) -> Iterator[Problem]:
        trouble, strangers = self.judgement.trouble, self.judgement.strangers
        if trouble is not None:
            yield Problem(Stage.POLICY, trouble.subject or container.cgroup, str(trouble))
        if strangers:
            nodes = ", ".join(str(gpu_node(minor)) for minor in strangers)
            yield Problem(Stage.POLICY, container.cgroup, f"allows {nodes}, which no GPU of this host has; left out")

    def _row(
        self, key: str, gpu: Gpu, uuid: GpuUuid, reading: GpuReading, lost_because: str | None = None
    ) -> AcceleratorStats:
        return AcceleratorStats(
            make=MAKE,
            model=gpu.model,
            id=uuid,
            memory_total=reading.memory_total,
            memory_used=reading.memory_used,
            duty_cycle=reading.duty_cycle,
            parent=None if gpu.instance is None else gpu.instance.parent,
            own=self.shares.of(key, uuid),
            lost=lost_because is not None,
            reason=lost_because,
            certain=self.judgement.source.is_kernel,
        )
