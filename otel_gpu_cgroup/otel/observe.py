# SPDX-License-Identifier: Apache-2.0
"""Pure: points out of a sealed cycle, by callbacks of each container and of each GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from otel_gpu_cgroup.otel.attributes import Attributes, container_attributes, gpu_attributes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.model import ContainerReport, GpuUuid, NodeStats
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
    """Makes the points of one container, for as long as it lives."""

    def __init__(self) -> None:
        self._series: dict[GpuUuid, _Series] = {}

    def update(self, report: ContainerReport, taken_at: float) -> None:
        """Begin a series for each GPU that the cycle of this time is the first to give to the container."""
        for accelerator in report.accelerators:
            if accelerator.id not in self._series:
                attributes = container_attributes(report.container, accelerator)
                self._series[accelerator.id] = _Series(attributes, taken_at)

    def observe(self, instrument: ContainerInstrument, report: ContainerReport) -> Iterator[Point]:
        """The container's points of one metric, one for each of its GPUs that has a value."""
        for accelerator in report.accelerators:
            value, series = instrument.value(accelerator), self._series.get(accelerator.id)
            if value is not None and series is not None:
                yield Point(series.attributes, value, series.started_at)


class Callbacks:
    """The callbacks of all containers that have had a GPU, for as long as they live, and the GPUs' beginnings."""

    def __init__(self) -> None:
        self._containers: dict[str, ContainerCallback] = {}
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
        for gpu in stats.gpus:
            if gpu.gpu.uuid is not None:
                self._seen_gpus.setdefault(gpu.gpu.uuid, stats.taken_at)

    def observe_containers(self, instrument: ContainerInstrument, stats: NodeStats) -> Iterator[Point]:
        """The points of one metric in this cycle, container by container."""
        for report in stats.containers:
            callback = self._containers.get(report.container.key)
            if callback is not None:
                yield from callback.observe(instrument, report)

    def observe_gpus(self, instrument: DeviceInstrument, stats: NodeStats) -> Iterator[Point]:
        """The points of one metric in this cycle, one for each GPU that has a UUID and a value."""
        for report in stats.gpus:
            value, uuid = instrument.value(report), report.gpu.uuid
            if uuid is not None and value is not None:
                attributes = {**gpu_attributes(report.gpu), **dict(instrument.attributes)}
                yield Point(attributes, value, self._seen_gpus.get(uuid, stats.taken_at))
