# SPDX-License-Identifier: Apache-2.0
"""How much was compared, for the end of the terminal's output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.model import HeldTime
    from tests.property.ledger.account import Played


@dataclass(slots=True)
class Tally:
    """Totals of one run."""

    seeds: list[int] = field(default_factory=list)
    processes: int = 0
    brief: int = 0
    """Processes that no cycle met."""
    reused: int = 0
    """Processes with the pid of an earlier one."""
    cycles: int = 0
    silent: int = 0
    """Cycles in which NVML as a whole said nothing in time."""
    troubled: int = 0
    """Passes over one GPU that had trouble."""
    bytes_compared: int = 0
    """Shares, and what is left of a device's use."""
    contradictions: int = 0
    """Devices whose processes held more than was in use."""
    rows: int = 0
    values: int = 0
    """Values of rows that were added up."""
    intervals: int = 0
    """Times between two cycles, by device."""
    steady: int = 0
    """Of these, how many began and ended with the same containers, and none in between."""
    compared: int = 0
    """Active times of one row and one cycle."""
    active: float = 0.0
    idle: float = 0.0
    unknown: float = 0.0
    readable: float = 0.0
    """Seconds that the driver's log gives, in the time that is active or idle, to processes that were still there."""

    def add(self, played: Played) -> None:
        """Count one schedule."""
        self.seeds.append(played.host.schedule.seed)
        works, times = played.host.schedule.works, [seen.step.at for seen in played.seen]
        begins = {(work.pid, work.begin): work for work in works}
        self.processes += len(begins)
        self.brief += sum(not any(work.is_there(at) for at in times) for work in begins.values())
        self.reused += len(begins) - len({pid for pid, _ in begins})
        self.cycles += len(played.seen)
        self.silent += sum(not seen.readings for seen in played.seen)
        self.troubled += sum(len(seen.step.troubles) for seen in played.seen)

    def add_time(self, time: HeldTime) -> None:
        """Count what one row gained in one cycle."""
        self.active += time.active
        self.idle += time.idle
        self.unknown += time.unknown

    def lines(self) -> Iterator[str]:
        yield f"{len(self.seeds)} schedules, seeds {min(self.seeds)} to {max(self.seeds)}; {self.cycles} cycles,"
        yield f"{self.silent} of them without NVML, {self.troubled} GPUs in trouble, hanging ones among them;"
        yield f"{self.processes} processes, {self.brief} of them met by no cycle, {self.reused} with a pid used before"
        yield f"1. {self.bytes_compared} shares and rests compared to the byte, {self.contradictions} contradictions"
        yield f"2. {self.rows} rows, {self.values} values of rows and accounts added up"
        yield f"3. {self.intervals} times between two cycles, by device, {self.steady} without a change"
        yield f"4. {self.compared} active times of a row and a cycle against the driver's log: together"
        yield f"   {self.active:.1f} s active, {self.idle:.1f} idle, {self.unknown:.1f} unknown;"
        yield f"   the log has {self.readable:.1f} s granted to processes that could be read"
