# SPDX-License-Identifier: Apache-2.0
"""Pure: what never changes while a series lives, made once for each container and device, device, and account."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from otel_gpu_cgroup.model import TimeState
from otel_gpu_cgroup.otel.attributes import Attributes, container_attributes, container_id, device_attributes
from otel_gpu_cgroup.otel.instruments import DEVICE_INSTRUMENTS
from otel_gpu_cgroup.otel.rows import Number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_gpu_cgroup.model import AcceleratorStats, Container, ContainerReport, Gpu, GpuUuid, HeldTime
    from otel_gpu_cgroup.otel.rows import DeviceInstrument


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Series:
    """One attribute set from its beginning to its end; one that begins again is another."""

    attributes: Attributes
    """Never changed, by nobody: all points of the series bear this very dict."""
    started_at: int
    """Nanoseconds since the epoch at which its value was 0."""


Point = tuple[Series, Number]


class TimeSeries:
    """The series of a held time, one for each state."""

    __slots__ = ("_active", "_idle", "_unknown")

    def __init__(self, attributes: Attributes, started_at: int) -> None:
        self._active, self._idle, self._unknown = (
            Series({**attributes, "container.gpu.state": state.value}, started_at)
            for state in (TimeState.ACTIVE, TimeState.IDLE, TimeState.UNKNOWN)
        )

    def points(self, held: HeldTime) -> tuple[Point, Point, Point]:
        """The time in each state."""
        return (self._active, held.active), (self._idle, held.idle), (self._unknown, held.unknown)


class ContainerCallback:
    """Makes the points of one container, for as long as it lives.

    Its series of a device begin with the first cycle that gives it the device, but have no point before its name is
    final.
    """

    def __init__(self, container: Container) -> None:
        self.id = container_id(container)
        self._inode = container.inode
        self._began: dict[GpuUuid, int] = {}
        self._series: dict[GpuUuid, tuple[Series, TimeSeries]] = {}

    def is_of(self, container: Container) -> bool:
        """Whether the container of this key is still the same, as far as its cgroup's inodes are told."""
        return self._inode == container.inode or None in (self._inode, container.inode)

    def has_had(self, device: GpuUuid) -> bool:
        """Whether the container has, or had, this device."""
        return device in self._began

    def update(self, report: ContainerReport, now: int) -> None:
        """Begin the series of devices that are new in the cycle of this time, in nanoseconds since the epoch."""
        for accelerator in report.accelerators:
            began = self._began.setdefault(accelerator.id, now)
            if report.container.is_named and accelerator.id not in self._series:
                attributes = container_attributes(report.container, accelerator)
                self._series[accelerator.id] = Series(attributes, began), TimeSeries(attributes, began)

    def rows(self, report: ContainerReport) -> list[tuple[Series, AcceleratorStats]]:
        """The devices of the container whose series have begun, each once."""
        distinct = {accelerator.id: accelerator for accelerator in report.accelerators}
        return [(self._series[uuid][0], accelerator) for uuid, accelerator in distinct.items() if uuid in self._series]

    def time_points(self, device: GpuUuid, held: HeldTime) -> Sequence[Point]:
        """The time for which the container has held a device; none if that's series have not begun."""
        series = self._series.get(device)
        return () if series is None else series[1].points(held)


class DeviceSeries:
    """The series of one device, by metric, for as long as what is reported of the device stays the same."""

    def __init__(self, gpu: Gpu, now: int) -> None:
        self._gpu = gpu
        self._series = {name: Series(attributes, now) for name, attributes in _attributes(gpu).items()}

    def is_of(self, gpu: Gpu) -> bool:
        """Whether the attribute sets of the device are still these."""
        return gpu == self._gpu or _attributes(gpu) == {name: one.attributes for name, one in self._series.items()}

    def of(self, instrument: DeviceInstrument) -> Series:
        """The series of one metric."""
        return self._series[instrument.name]


def _attributes(gpu: Gpu) -> dict[str, Attributes]:
    return {row.name: {**device_attributes(gpu), **row.more(gpu)} for row in DEVICE_INSTRUMENTS}
