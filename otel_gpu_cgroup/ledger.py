# SPDX-License-Identifier: Apache-2.0
"""Pure: for how long containers have held devices, and what they did with them meanwhile.

A row is one container and one device that it may open. Between two cycles it has held the device for the time
between them: active and idle as its own share says for as much of that time as the driver's samples cover, unknown
for the rest. It ended, or was lost, at some instant between two cycles: half of that time is credited, unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import AccessClass, Account, HeldTime, RowKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_gpu_cgroup.model import AcceleratorStats, Container, ContainerReport, GpuReading, GpuUuid

_NO_TIME: Final = HeldTime()


@dataclass(slots=True)
class _Row:
    """One device of one container."""

    key: RowKey
    model: str | None = None
    total: HeldTime = _NO_TIME
    pending: HeldTime = _NO_TIME
    """What no account has been credited with yet, because the container's name is awaited."""
    is_held: bool = False
    """Whether it was in the previous cycle."""


@dataclass(slots=True)
class _Life:
    """One container from its first cycle to its end; a row that it gets back goes on where it was."""

    container: Container
    rows: dict[GpuUuid, _Row] = field(default_factory=dict)

    def row(self, accelerator: AcceleratorStats) -> _Row:
        """Of this device; a new one the first time."""
        row = self.rows.get(accelerator.id)
        if row is None:
            row = self.rows[accelerator.id] = _Row(RowKey(self.container.key, accelerator.id))
        row.model = accelerator.model
        return row


class Ledger:
    """Remembers the containers of the previous cycle, and the accounts for ever."""

    def __init__(self) -> None:
        self._credited_at: float | None = None
        self._lives: dict[str, _Life] = {}
        self._held: dict[RowKey, HeldTime] = {}
        self._usage: dict[Account, HeldTime] = {}

    @property
    def held(self) -> Mapping[RowKey, HeldTime]:
        """Of the rows that are held now, and the final value of those that ended or were lost since the cycle before.

        A row that ended and began anew meanwhile (its container's cgroup was made again) has the new one's value.
        """
        return self._held

    @property
    def usage(self) -> Mapping[Account, HeldTime]:
        """Of all rows that ever were, but for those whose container's name is awaited."""
        return dict(self._usage)

    def credit(self, now: float, reports: Sequence[ContainerReport], readings: Mapping[GpuUuid, GpuReading]) -> None:
        """Close the time since the previous call; `now` is in seconds of a clock that never goes back."""
        passed = 0.0 if self._credited_at is None else now - self._credited_at
        self._credited_at = now
        self._held = {}
        present = {report.container.key: report for report in reports}
        for key, life in tuple(self._lives.items()):
            if key not in present or _is_another(life.container, present[key].container):
                self._end(self._lives.pop(key), passed)
        for key, report in present.items():
            if report.access is AccessClass.EXCLUDED:  # which its name may have told, after some cycles without
                self._lives.pop(key, None)
                continue
            self._go_on(self._lives.setdefault(key, _Life(report.container)), report, readings, passed)

    def _end(self, life: _Life, passed: float) -> None:
        for row in life.rows.values():
            if row.is_held:
                self._stop(row, passed)
            self._settle(row, life.container)

    def _go_on(
        self, life: _Life, report: ContainerReport, readings: Mapping[GpuUuid, GpuReading], passed: float
    ) -> None:
        life.container = report.container
        held = {accelerator.id: accelerator for accelerator in report.accelerators if not accelerator.lost}
        for uuid, row in life.rows.items():
            if row.is_held and uuid not in held:
                self._stop(row, passed)
        for uuid, accelerator in held.items():
            row = life.row(accelerator)
            self._book(row, _split(passed, accelerator, readings.get(uuid)) if row.is_held else _NO_TIME)
            row.is_held = True
        if life.container.is_named:
            for row in life.rows.values():
                self._settle(row, life.container)

    def _stop(self, row: _Row, passed: float) -> None:
        self._book(row, HeldTime(unknown=passed / 2))
        row.is_held = False

    def _book(self, row: _Row, time: HeldTime) -> None:
        row.total = self._held[row.key] = _sum(row.total, time)
        row.pending = _sum(row.pending, time)

    def _settle(self, row: _Row, container: Container) -> None:
        account = _account(container, row.model)
        self._usage[account] = _sum(self._usage.get(account, _NO_TIME), row.pending)
        row.pending = _NO_TIME


def _split(passed: float, accelerator: AcceleratorStats, reading: GpuReading | None) -> HeldTime:
    """The time since the previous cycle by what the container did; unknown where its own share is."""
    own, covered = accelerator.own, None if reading is None else reading.covered
    if own is None or own.utilization is None or covered is None:
        return HeldTime(unknown=passed)
    covered = min(covered, passed)
    active = min(1.0, own.utilization) * covered
    return HeldTime(active, covered - active, passed - covered)


def _is_another(before: Container, now: Container) -> bool:
    """Whether its cgroup was removed and made again, as far as both inodes are told."""
    return before.inode != now.inode and None not in (before.inode, now.inode)


def _account(container: Container, model: str | None) -> Account:
    """Kubernetes' namespace, else the owner of a Slurm step, else nobody."""
    namespace = None if container.pod is None else container.pod.namespace
    uid = None if namespace is not None or container.slurm is None else container.slurm.uid
    return Account(namespace, uid, model)


def _sum(one: HeldTime, other: HeldTime) -> HeldTime:
    return HeldTime(one.active + other.active, one.idle + other.idle, one.unknown + other.unknown)
