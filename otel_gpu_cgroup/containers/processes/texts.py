# SPDX-License-Identifier: Apache-2.0
"""Pure: what the kernel's files about one process say (proc_pid_stat(5), cgroups(7))."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from otel_gpu_cgroup.errors import ParseError

DEVICES: Final = "devices"
UNIFIED: Final = ""
"""How a /proc/PID/cgroup names the v1 controller of devices, and cgroup2."""
_LINES: Final = {
    DEVICES: re.compile(r"^[0-9]+:(?:[^:\n]*,)?devices(?:,[^:\n]*)?:(/.*)$", re.MULTILINE),
    UNIFIED: re.compile(r"^0::(/.*)$", re.MULTILINE),
}
_EXITING: Final = 0x4
"""PF_EXITING of linux/sched.h, among the flags that a stat shows."""
_FLAGS: Final = 6
_STARTED: Final = 19
"""Places after the name, which is the 2nd field: the flags are the 9th, the start is the 22nd."""


@dataclass(slots=True)
class ProcessStat:
    """What of a /proc/PID/stat matters here."""

    started_at: float
    """CLOCK_BOOTTIME seconds, rounded down to a tick of the kernel's."""
    is_exiting: bool
    """Whether it is ending, and takes no more part in any v1 hierarchy than in its root."""


def parse_stat(stat: str, ticks_per_second: int) -> ProcessStat:
    """When a process began; raises ParseError. Its name may hold anything, also parentheses, but stands in a pair."""
    fields = stat.rpartition(")")[2].split(None, _STARTED + 1)
    try:
        return ProcessStat(int(fields[_STARTED]) / ticks_per_second, bool(int(fields[_FLAGS]) & _EXITING))
    except (IndexError, ValueError):
        raise ParseError(stat, "the stat of a process") from None


def parse_cgroup(proc_cgroup: str, controller: str) -> str | None:
    """Where a process is in the hierarchy of `DEVICES` or `UNIFIED`; None where no line (ID:CONTROLLERS:PATH) says.

    cgroup2 marks the path of a removed cgroup with " (deleted)", which no container that is there can have.
    """
    line = _LINES[controller].search(proc_cgroup)
    return None if line is None else line[1]
