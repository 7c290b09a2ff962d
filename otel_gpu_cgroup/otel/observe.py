# SPDX-License-Identifier: Apache-2.0
"""Pure: points out of a sealed cycle, by callbacks of each container and of each GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from otel_gpu_cgroup.otel.attributes import Attributes, container_attributes, gpu_attributes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.model import AcceleratorStats, ContainerReport, GpuReport, GpuUuid, NodeStats
    from otel_gpu_cgroup.otel.instruments import ContainerInstrument, DeviceInstrument, Number


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one series."""

    attributes: Attributes
    value: Number
    started_at: float
    """Seconds since the epoch at which the series began."""


@dataclass(frozen=True, slots=True)
class _Series:
    """What never changes while a container has a GPU: the attributes of its points, and when they began."""

    attributes: Attributes
    started_at: float


class ContainerCallback:
    """The points of one container, for as long as it lives."""

    def __init__(self) -> None:
        self._series: dict[GpuUuid, _Series] = {}
        self._report: ContainerReport | None = None

    def update(self, report: ContainerReport, taken_at: float) -> None:
        """Take over what the cycle of this time says of the container."""
        self._report = report
        for accelerator in report.accelerators:
            if accelerator.id not in self._series:
                attributes = container_attributes(report.container, accelerator)
                self._series[accelerator.id] = _Series(attributes, taken_at)

    def clear(self) -> None:
        """Say nothing until the next update."""
        self._report = None

    def observe(self, instrument: ContainerInstrument) -> Iterator[Point]:
        """The container's points of one metric, one for each of its GPUs that has a value."""
        for accelerator in self._accelerators():
            value = instrument.value(accelerator)
            if value is not None:
                series = self._series[accelerator.id]
                yield Point(series.attributes, value, series.started_at)

    def _accelerators(self) -> tuple[AcceleratorStats, ...]:
        return () if self._report is None else self._report.accelerators


class Callbacks:
    """The callbacks of all containers that have a GPU in the current cycle, and of all GPUs."""

    def __init__(self) -> None:
        self._containers: dict[str, ContainerCallback] = {}
        self._gpus: tuple[GpuReport, ...] = ()
        self._seen_gpus: dict[GpuUuid, float] = {}

    def update(self, stats: NodeStats) -> None:
        """Add a callback for each container that appears with a GPU, drop those of containers that have ended."""
        before, self._containers = self._containers, {}
        for report in stats.containers:
            key = report.container.key
            callback = before.get(key)
            if callback is None and not report.accelerators:
                continue
            self._containers[key] = callback = callback or ContainerCallback()
            callback.update(report, stats.taken_at)
        self._gpus = stats.gpus
        for gpu in stats.gpus:
            if gpu.gpu.uuid is not None:
                self._seen_gpus.setdefault(gpu.gpu.uuid, stats.taken_at)

    def clear(self) -> None:
        """Say nothing until the next cycle; what lives on keeps its series."""
        for callback in self._containers.values():
            callback.clear()
        self._gpus = ()

    def observe_containers(self, instrument: ContainerInstrument) -> Iterator[Point]:
        """The points of one metric, container by container."""
        for callback in self._containers.values():
            yield from callback.observe(instrument)

    def observe_gpus(self, instrument: DeviceInstrument) -> Iterator[Point]:
        """The points of one metric, one for each GPU that has a UUID and a value."""
        for report in self._gpus:
            value = instrument.value(report)
            if report.gpu.uuid is not None and value is not None:
                attributes = {**gpu_attributes(report.gpu), **dict(instrument.attributes)}
                yield Point(attributes, value, self._seen_gpus[report.gpu.uuid])
