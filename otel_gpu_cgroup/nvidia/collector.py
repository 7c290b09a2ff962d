# SPDX-License-Identifier: Apache-2.0
"""The join of one container with the readings: a row for each GPU that its policy lets it open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import AcceleratorStats, Gpu, GpuReading, Problem, Stage, gpu_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.model import Container, ContainerStats, DeviceInventory, GpuUuid
    from otel_gpu_cgroup.nvidia.judgement import Judgement

MAKE: Final = "nvidia"
"""cAdvisor's `make` of every NVIDIA device."""
_NO_READING: Final = GpuReading()


@dataclass(frozen=True, slots=True)
class NvidiaCollector:
    """One container's access, and the inventory of the cycle in which it was found."""

    judgement: Judgement
    inventory: DeviceInventory
    silent: bool = False
    """Whether its rows are left out, as those of unrestricted containers are by default."""

    def update_stats(self, stats: ContainerStats) -> None:
        """Write access, source, problems and one row for each GPU whose UUID is known; never raises."""
        stats.access, stats.source = self.judgement.access, self.judgement.source
        stats.problems += self._problems(stats.container)
        if not self.silent:
            uuids = ((gpu, gpu.uuid) for gpu in self.judgement.gpus)
            stats.accelerators += (self._row(gpu, uuid) for gpu, uuid in uuids if uuid is not None)

    def _problems(self, container: Container) -> Iterator[Problem]:
        trouble, strangers = self.judgement.trouble, self.judgement.strangers
        if trouble is not None:
            yield Problem(Stage.POLICY, trouble.subject or container.cgroup, str(trouble))
        if strangers:
            nodes = ", ".join(str(gpu_node(minor)) for minor in strangers)
            yield Problem(Stage.POLICY, container.cgroup, f"allows {nodes}, which no GPU of this host has; left out")

    def _row(self, gpu: Gpu, uuid: GpuUuid) -> AcceleratorStats:
        reading = self.inventory.readings.get(uuid, _NO_READING)
        return AcceleratorStats(
            make=MAKE,
            model=gpu.model,
            id=uuid,
            memory_total=reading.memory_total,
            memory_used=reading.memory_used,
            duty_cycle=reading.duty_cycle,
            certain=self.judgement.source.is_kernel,
        )
