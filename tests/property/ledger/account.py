# SPDX-License-Identifier: Apache-2.0
"""What should have come of a schedule, by the schedule's own times and the fake driver's log."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import Account, GpuReading, GpuUuid, HeldTime, RowKey
from tests.fakes.grants import TICK
from tests.property.ledger.host import MODEL
from tests.property.ledger.schedule import SECOND, Gap, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.model import OwnShare
    from tests.fakes.grants import Granted
    from tests.property.ledger.host import PlayedHost, Seen
    from tests.property.ledger.schedule import Life, Step, Work

KEPT: Final = 100 * TICK
"""Microseconds that the driver keeps samples of."""


@dataclass(frozen=True, slots=True)
class Row:
    """One life of a container on one device."""

    life: Life
    gpu: str

    @property
    def key(self) -> RowKey:
        return RowKey(self.life.key, GpuUuid(self.gpu))

    def edges(self) -> list[int]:
        """When it may begin or end."""
        gaps = [edge for gpu, begin, end, _ in self.life.gaps if gpu == self.gpu for edge in (begin, end)]
        return [self.life.begin, self.life.end, *gaps]

    def is_held(self, step: Step) -> bool:
        return self.life.holds(self.gpu, step.at)


@dataclass(frozen=True, slots=True)
class Played:
    """A schedule, what the product saw, and what the driver granted."""

    host: PlayedHost
    seen: list[Seen]
    log: list[Granted]

    @property
    def rows(self) -> list[Row]:
        return [Row(life, gpu) for life in self.host.schedule.lives for gpu in life.gpus]

    def steps(self) -> Iterator[tuple[Seen, Seen]]:
        """Each but the first, after the one before."""
        return zip(self.seen, self.seen[1:], strict=False)

    def all_works(self, row: Row) -> list[Work]:
        """The row's processes."""
        return [work for work in self.host.schedule.works if work.life is row.life and work.gpu == row.gpu]

    def works(self, row: Row, step: Step) -> list[Work]:
        """Those that the product can find in this step."""
        return [work for work in self.all_works(row) if work.is_there(step.at) and work.pid not in step.gone]

    def works_without_a_row(self, gpu: str, step: Step) -> list[Work]:
        """Those on a device that can be found, of containers that have no row there, as they may not open it."""
        return [
            work
            for work in self.host.schedule.works
            if work.gpu == gpu and work.is_there(step.at) and work.pid not in step.gone
            if work.life is not None and work.life.gap(gpu, step.at) is Gap.DENIED and is_listed(gpu, step)
        ]

    def held_seconds(self, row: Row, until: int) -> Fraction:
        """All time between two steps of which both have the row, half of it where the second has it no more."""
        held = Fraction(0)
        for before, now in self.steps():
            if now.step.at <= until and row.is_held(before.step):
                passed = Fraction(now.step.at - before.step.at, SECOND)
                held += passed if row.is_held(now.step) else passed / 2
        return held

    def account(self, row: Row, until: int) -> Account | None:
        """Whose time it is; None while the container's name is awaited, or before its first step."""
        there = [seen.step.at for seen in self.seen if seen.step.at <= until and row.life.is_there(seen.step.at)]
        if not there:
            return None
        is_named = there[-1] >= row.life.named_from
        if there[-1] == until and not is_named:
            return None
        return Account(row.life.namespace if is_named else None, None, MODEL)

    def granted(self, work: Work, after: int, until: int) -> float:
        """Seconds of the GPU that the log gives to one process."""
        return sum(
            it.seconds(max(after, work.begin), min(until, work.end))
            for it in self.log
            if it.pid == work.pid and it.gpu == work.gpu and it.last > after and it.first <= until
        )

    def read(self, row: Row, now: Step, span: int, *, strictly: bool) -> float:
        """Seconds granted, in the last `span` microseconds, to the row's processes that are still there.

        Strictly: only ticks whose samples are there and kept; else all that may be taken for these.
        """
        lag = self.host.schedule.lag[row.gpu]
        after = max(now.at - span, now.at - lag - KEPT) if strictly else now.at - span - max(lag, SECOND)
        read = sum(self.granted(work, after, now.at - lag if strictly else now.at) for work in self.works(row, now))
        return read * span / (span + self._idle_before(row.gpu, now.at - span)) if strictly else read

    def _idle_before(self, gpu: str, at: int) -> int:
        """Microseconds, up to a second and a tick, for which nobody was granted anything by then: a mean has them."""
        ends = [min(it.last, at // TICK * TICK) for it in self.log if it.gpu == gpu and it.first <= at]
        idle = at - max(ends, default=0)
        return idle if idle <= SECOND + TICK else 0

    def reused(self, row: Row, now: Step) -> float:
        """Seconds granted, as far as the driver has samples, to earlier processes with the pids of the row's."""
        after = now.at - KEPT - SECOND
        pids = {work.pid: work.begin for work in self.works(row, now)}
        return sum(
            self.granted(work, after, now.at)
            for work in self.host.schedule.works
            if work.gpu == row.gpu and work.end <= pids.get(work.pid, 0)
        )

    def sampling_error(self, row: Row, now: Step, covered: float, active: float) -> float:
        """Seconds: whole percents of the time that is covered, and a tick at each of its ends, for each process.

        Where samples are late, a mean may have been taken for one of a time that is longer by so much.
        """
        late = self.host.schedule.lag[row.gpu] / SECOND * active / covered
        return len(self.works(row, now)) * (0.01 * covered + 2 * TICK / SECOND) + late


def is_listed(gpu: str, step: Step) -> bool:
    """Whether the driver tells which processes are on the device."""
    troubles = step.troubles.values()
    return not (step.is_silent or Trouble.HANG in troubles or step.troubles.get(gpu) in (Trouble.LOST, Trouble.LISTS))


def is_use_told(gpu: str, step: Step) -> bool:
    """Whether the driver tells how much memory of the device is in use."""
    return is_listed(gpu, step) and step.troubles.get(gpu) is not Trouble.MEMORY


def total(time: HeldTime) -> float:
    return time.active + time.idle + time.unknown


def own_of(seen: Seen, row: Row) -> OwnShare | None:
    """The share that the product gives to a row."""
    for life, report in zip(seen.lives, seen.reports, strict=True):
        for stats in report.accelerators:
            if life is row.life and stats.id == row.gpu:
                return stats.own
    return None


def difference(now: HeldTime, before: HeldTime) -> HeldTime:
    return HeldTime(now.active - before.active, now.idle - before.idle, now.unknown - before.unknown)


def covered_seconds(row: Row, before: Seen, now: Seen) -> float:
    """How much of the time between two steps the driver's samples are said to cover; 0 where the share is not told."""
    own, covered = own_of(now, row), now.readings.get(GpuUuid(row.gpu), GpuReading()).covered
    if own is None or own.utilization is None or covered is None:
        return 0.0
    return min(covered, (now.step.at - before.step.at) / SECOND)


def really_free(rows: list[Row], begin: int, end: int) -> float | None:
    """Seconds for which no row is held; None where one begins or ends in between."""
    edges = {edge for row in rows for edge in row.edges()}
    if any(begin < edge <= end for edge in edges):
        return None
    return 0.0 if any(row.life.holds(row.gpu, begin) for row in rows) else (end - begin) / SECOND
