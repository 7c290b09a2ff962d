# SPDX-License-Identifier: Apache-2.0
"""Reads the device policy of a cgroup2 folder from the kernel. Only reads."""

from __future__ import annotations

from typing import Final, Protocol
from weakref import WeakValueDictionary

from otel_gpu_cgroup.cgroup.bpf.policy import BpfPolicy, DeviceProgram
from otel_gpu_cgroup.cgroup.bpf.syscall import ProgramGone, ProgramInfo
from otel_gpu_cgroup.errors import PolicyUnreadable

_ATTEMPTS: Final = 5


class ProgramSource(Protocol):
    """Who tells which programs decide on a cgroup, and what they are: the kernel, by bpf(2)."""

    def query_effective(self, cgroup: str) -> tuple[int, ...]:
        """Ids of all programs in effect on this cgroup2 folder; raises Gone or PolicyUnreadable."""
        ...

    def query_local(self, cgroup: str) -> tuple[int, ...]:
        """Ids of the programs on this folder itself; raises Gone or PolicyUnreadable."""
        ...

    def read_program(self, identifier: int) -> ProgramInfo:
        """One program; raises ProgramGone or PolicyUnreadable."""
        ...


class BpfReader:
    """Reads policies; the same programs give the same policy object, for as long as each cycle meets them."""

    def __init__(self, bpf: ProgramSource) -> None:
        self._bpf = bpf
        self._met: dict[tuple[int, ...], BpfPolicy] = {}
        """Policies by their programs' ids, of this cycle."""
        self._met_before: dict[tuple[int, ...], BpfPolicy] = {}
        self._programs: WeakValueDictionary[bytes, DeviceProgram] = WeakValueDictionary()
        """By tag: containers with equal rules have equal programs under different ids."""

    def begin_cycle(self) -> None:
        """Forget the policies that the cycle before this did not meet: their ids may be given to others."""
        self._met_before, self._met = self._met, {}

    def read(self, folder: str) -> BpfPolicy:
        """What the programs that are in effect on this cgroup allow; one query when they are known.

        Raises Gone when the cgroup has ended, PolicyUnreadable when the kernel refuses.
        """
        for _ in range(_ATTEMPTS):
            ids = self._bpf.query_effective(folder)
            try:
                return self._policy(ids)
            except ProgramGone:
                continue  # replaced between the query and the look at it
        raise PolicyUnreadable(f"the device programs of {folder!r} are replaced faster than they can be read")

    def _policy(self, ids: tuple[int, ...]) -> BpfPolicy:
        policy = self._met.get(ids) or self._met_before.get(ids)
        if policy is None:
            policy = BpfPolicy([self._read_program(identifier) for identifier in ids], ids)
        self._met[ids] = policy
        return policy

    def _read_program(self, identifier: int) -> DeviceProgram:
        info = self._bpf.read_program(identifier)
        program = self._programs.get(info.tag)
        if program is None:
            self._programs[info.tag] = program = DeviceProgram(info.code, info.name, info.tag)
        return program
