# SPDX-License-Identifier: Apache-2.0
"""Finds out in which container each process is that NVML lists; its files are read by a `ProcessSource`.

A pid may be used again at any time, also between two reads. So what says when a process began is read last: if that
was before the list was made, then nobody else had the pid since, and all reads before were of the process listed. Of
one that began later nothing is kept, as what was read first may be of another.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.containers.processes.files import (
    TICKS_PER_SECOND,
    Identity,
    ProcessFiles,
    ProcessSource,
    read_pid_namespaces,
    read_top,
)
from otel_gpu_cgroup.containers.processes.innermost import Innermost, Place
from otel_gpu_cgroup.containers.processes.pids import ALL_MEAN, PidMeaning, judge_pids
from otel_gpu_cgroup.containers.processes.texts import DEVICES, UNIFIED, parse_cgroup, parse_stat
from otel_gpu_cgroup.errors import ParseError
from otel_gpu_cgroup.model import Ownership, Problem, ProcessOwner, Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_gpu_cgroup.host import HostPaths
    from otel_gpu_cgroup.model import Container, DeviceInventory

MOST_CYCLES: Final = 8
"""Within so many cycles it is noticed that a process was moved to another cgroup."""
_BOTH: Final = (DEVICES, UNIFIED)
_TICK: Final = 1 / TICKS_PER_SECOND
_MOST_PID: Final = (1 << 31) - 1
_GONE: Final = frozenset({errno.ENOENT, errno.ESRCH})
_SUBJECT: Final = "processes"
_MOST_HIDDEN: Final = (
    "most processes on the GPUs cannot be read in /proc ({reason}): where it is mounted with hidepid, or a security "
    "module forbids it, give this process CAP_SYS_PTRACE, or a /proc that shows them"
)
_SOME_HIDDEN: Final = (
    "some processes on the GPUs cannot be read in /proc ({reason}), and count as nobody's: hidepid, a security module "
    "or a cgroup path of more than 4 KiB may be why"
)


@dataclass(slots=True)
class _Process:
    """What was read of a process."""

    identity: Identity
    cgroup: str | None
    """As /proc shows it; None where it does not tell."""
    place: Place | None
    owner: ProcessOwner
    turn: int
    """In which of the cycles its cgroup is read again."""


class ProcessTable:
    """Tells whose the processes on the GPUs are, cycle after cycle.

    What was read of a process holds while its files in /proc are the same. Its cgroup is read again at once when the
    containers that this is in have changed, and else in one of `MOST_CYCLES` cycles.
    """

    def __init__(
        self,
        host: HostPaths,
        *,
        own_only: bool = False,
        is_host: bool = True,
        source: ProcessSource | None = None,
    ) -> None:
        """`own_only`: the one container to attribute to is this process' own. `is_host`: it is no simulated one."""
        self._host = host
        self._own_only = own_only
        self._is_host = is_host
        proc = Path("/proc") if own_only else host.proc
        self._source = source or ProcessFiles(proc, is_kernels=is_host)
        self._innermost = Innermost()
        self._controllers: tuple[str, ...] = ()
        """In whose hierarchy the containers' cgroups are, by preference."""
        self._top: str | None = None
        self._known: dict[int, _Process] = {}
        self._cycle = 0
        self._turns = 0
        self._have_changed = False

    def attribute(self, inventory: DeviceInventory, containers: Sequence[Container]) -> Ownership:
        """The owner of every process that NVML listed, had begun by then, and is still there; raises nothing."""
        meaning = self._meaning(inventory.driver_version)
        problems = _told(meaning.reason if inventory.gpus else None)
        if not meaning.of_lists:
            self._known = {}
            return Ownership(is_told=False, are_samples_told=False, problems=problems)
        self._begin_cycle(containers)
        found, unread = self._look_at(pid for pid in inventory.pids if 0 < pid <= _MOST_PID)
        latest = inventory.booted_at + _TICK
        self._known = {pid: process for pid, process in found.items() if process.owner.started_at <= latest}
        if len(unread) > len(found):
            problems += _told(_MOST_HIDDEN.format(reason=min(unread)))
            return Ownership(is_told=False, are_samples_told=False, problems=problems)
        owners = {pid: process.owner for pid, process in self._known.items()}
        problems += _told(_SOME_HIDDEN.format(reason=min(unread)) if unread else None)
        return Ownership(owners, are_samples_told=meaning.of_samples, problems=problems)

    def _meaning(self, driver_version: str | None) -> PidMeaning:
        if not self._is_host:
            return ALL_MEAN
        own, first = read_pid_namespaces(self._host)
        return judge_pids(own, first, driver_version, own_only=self._own_only)

    def _begin_cycle(self, containers: Sequence[Container]) -> None:
        self._cycle += 1
        controllers = self._choose(containers)
        if controllers != self._controllers:
            self._controllers, self._top, self._known = controllers, None, {}
        if self._top is None:
            self._top = "/" if self._own_only else read_top(self._host, is_v1=DEVICES in controllers)
        innermost = Innermost(containers, self._top or "/")
        self._have_changed = not innermost.is_same(self._innermost)
        self._innermost = innermost

    def _choose(self, containers: Sequence[Container]) -> tuple[str, ...]:
        """The own container's path is from the first of both, any other's from the hierarchy that was walked."""
        if self._own_only:
            return _BOTH
        return _BOTH[:1] if any(container.devices is not None for container in containers) else _BOTH[1:]

    def _look_at(self, pids: Iterable[int]) -> tuple[dict[int, _Process], list[str]]:
        """The processes that are there, and why each of the others is that cannot be read."""
        found, unread = {}, []
        for pid in pids:
            try:
                found[pid] = self._look(pid)
            except ParseError as error:
                unread.append(str(error))
            except OSError as error:
                if error.errno not in _GONE:
                    unread.append(error.strerror or str(error))
                elif self._source.is_there(pid):
                    unread.append("hidden")
        return found, unread

    def _look(self, pid: int) -> _Process:
        """What is known of a process, or else what its files say; raises OSError or ParseError."""
        known = self._known.get(pid)
        if known is None:
            return self._read(pid, self._next_turn())
        place = self._innermost.find(known.cgroup) if self._have_changed else known.place
        is_due = place != known.place or known.turn == self._cycle % MOST_CYCLES
        cgroup = self._read_cgroup(pid) if is_due else known.cgroup  # the identity, read after it, says whose it is
        if self._source.identify(pid) != known.identity:
            return self._read(pid, known.turn)
        if cgroup == known.cgroup and place == known.place:
            return known
        return self._moved(pid, known, cgroup)

    def _read(self, pid: int, turn: int) -> _Process:
        """All of it, when the process began last of all."""
        cgroup = self._read_cgroup(pid)
        identity, text = self._source.read_stat(pid)
        stat = parse_stat(text, TICKS_PER_SECOND)
        if stat.is_exiting and cgroup == "/":
            cgroup = None
        place = self._innermost.find(cgroup)
        return _Process(identity, cgroup, place, ProcessOwner(_key(place), stat.started_at), turn)

    def _moved(self, pid: int, known: _Process, cgroup: str | None) -> _Process:
        """A process in another cgroup, unless it is one that ends: v1 shows it in the root, whose it is not."""
        if cgroup == "/" and parse_stat(self._source.read_stat(pid)[1], TICKS_PER_SECOND).is_exiting:
            cgroup = known.cgroup
        place = self._innermost.find(cgroup)
        owner = ProcessOwner(_key(place), known.owner.started_at)
        return replace(known, cgroup=cgroup, place=place, owner=owner)

    def _read_cgroup(self, pid: int) -> str | None:
        text = self._source.read_cgroup(pid)
        for controller in self._controllers:
            path = parse_cgroup(text, controller)
            if path is not None:
                return path
        return None

    def _next_turn(self) -> int:
        """So that each cycle reads as many again as any other."""
        self._turns += 1
        return self._turns % MOST_CYCLES


def _key(place: Place | None) -> str | None:
    return None if place is None else place[0]


def _told(message: str | None) -> tuple[Problem, ...]:
    return () if message is None else (Problem(Stage.SHARE, _SUBJECT, message),)
