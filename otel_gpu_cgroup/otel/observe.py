# SPDX-License-Identifier: Apache-2.0
"""Pure: points out of a sealed cycle, by callbacks of each container, of each device and of each account."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import Problem, Stage
from otel_gpu_cgroup.otel.attributes import account_attributes
from otel_gpu_cgroup.otel.rows import ContainerInstrument, DeviceInstrument, HeldInstrument, UsageInstrument
from otel_gpu_cgroup.otel.series import ContainerCallback, DeviceSeries, Point, Series, TimeSeries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_gpu_cgroup.model import (
        AcceleratorStats,
        Account,
        ContainerReport,
        GpuReport,
        GpuUuid,
        HeldTime,
        NodeStats,
    )
    from otel_gpu_cgroup.otel.rows import Instrument

Row = tuple[Series, "AcceleratorStats"]

_SAME_ID: Final = "has the same id, as far as it can be printed, as another container; left out"


@dataclass(frozen=True, slots=True)
class Observed:
    """One cycle, with the series of all that it tells."""

    stats: NodeStats
    containers: Sequence[Row]
    held: Sequence[Point]
    devices: Sequence[tuple[DeviceSeries, GpuReport]]
    usage: Sequence[Point]
    problems: Sequence[Problem]
    """Containers that are left out."""

    def points(self, instrument: Instrument) -> Sequence[Point]:
        """The points of one metric, in the order of the containers, or of the devices."""
        match instrument:
            case ContainerInstrument():
                of = instrument.value
                return [(series, value) for series, row in self.containers if (value := of(row)) is not None]
            case HeldInstrument():
                return self.held
            case DeviceInstrument():
                reports = ((device.of(instrument), instrument.value(report)) for device, report in self.devices)
                return [(series, value) for series, value in reports if value is not None]
            case UsageInstrument():
                return self.usage
        raise TypeError(f"a row that no cycle fills: {instrument}")


class Callbacks:
    """What lives from cycle to cycle: containers while they live, devices while they are here, accounts for ever."""

    def __init__(self) -> None:
        self._began: int | None = None
        self._containers: dict[str, ContainerCallback] = {}
        self._devices: dict[GpuUuid, DeviceSeries] = {}
        self._accounts: dict[Account, TimeSeries] = {}
        self._times: dict[frozenset[tuple[str, str | int]], TimeSeries] = {}

    def observe(self, stats: NodeStats) -> Observed:
        """Begin the series that the cycle begins, end those that it ends, and join them with its values.

        A cycle that does not know which containers there are ends none.
        """
        now = int(stats.taken_at * 1e9)
        self._began = now if self._began is None else self._began
        before = self._containers
        rows, problems = ([], []) if stats.is_blind else self._update_containers(stats.containers, now)
        return Observed(
            stats,
            rows,
            self._held(stats, before),
            self._update_devices(stats, now),
            self._usage(stats.usage, self._began),
            problems,
        )

    def _update_containers(self, reports: Sequence[ContainerReport], now: int) -> tuple[list[Row], list[Problem]]:
        """Add a callback for each container that appears with a device, drop those of containers that have ended.

        A container is reported under its printable id: of two that share it the one that came later is left out.
        """
        before, self._containers = self._containers, {}
        living = [report.container for report in reports if report.container.key in before]
        old = {it.key: before[it.key] for it in living if before[it.key].is_of(it)}
        owners: dict[str, ContainerReport] = {}
        rows, problems = [], []
        for report in sorted(reports, key=lambda report: report.container.key not in old):
            key = report.container.key
            if key not in old and not report.accelerators:
                continue
            callback = old.get(key) or ContainerCallback(report.container)
            if owners.setdefault(callback.id, report) is report:
                callback.update(report, now)
                rows += callback.rows(report)
                self._containers[key] = callback
            else:
                problems.append(Problem(Stage.DISCOVERY, report.container.cgroup, _SAME_ID))
        return rows, problems

    def _held(self, stats: NodeStats, before: Mapping[str, ContainerCallback]) -> list[Point]:
        """Also of rows that have ended since the cycle before, by the callbacks that lived until then."""
        points: list[Point] = []
        for (container, device), held in stats.held.items():
            callback = self._containers.get(container)
            if callback is None or not callback.has_had(device):
                callback = before.get(container)
            if callback is not None:
                points += callback.time_points(device, held)
        return points

    def _update_devices(self, stats: NodeStats, now: int) -> list[tuple[DeviceSeries, GpuReport]]:
        """Each device once that has a UUID."""
        reports = {report.gpu.uuid: report for report in stats.gpus if report.gpu.uuid is not None}
        before, self._devices = self._devices, {}
        for uuid, report in reports.items():
            device = before.get(uuid)
            if device is None or not device.is_of(report.gpu):
                device = DeviceSeries(report.gpu, now)
            self._devices[uuid] = device
        return [(self._devices[uuid], report) for uuid, report in reports.items()]

    def _usage(self, usage: Mapping[Account, HeldTime], began: int) -> list[Point]:
        """Accounts of one attribute set are one."""
        points: dict[Series, float] = {}
        for account, held in usage.items():
            for series, seconds in self._account(account, began).points(held):
                points[series] = points.get(series, 0.0) + seconds
        return list(points.items())

    def _account(self, account: Account, began: int) -> TimeSeries:
        times = self._accounts.get(account)
        if times is None:
            attributes = account_attributes(account)
            times = self._times.setdefault(frozenset(attributes.items()), TimeSeries(attributes, began))
            self._accounts[account] = times
        return times
