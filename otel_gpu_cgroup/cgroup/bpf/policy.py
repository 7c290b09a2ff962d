# SPDX-License-Identifier: Apache-2.0
"""Pure: the device policy that a cgroup's effective programs make, each of which must allow a request."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.isa import Program, decode
from otel_gpu_cgroup.cgroup.bpf.machine import Step, request_context, run
from otel_gpu_cgroup.errors import PolicyUnreadable, ProgramTooLong, UnsupportedProgram
from otel_gpu_cgroup.model import DeviceNode, DeviceType, Permission, PolicySource, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS: Final = {DeviceType.BLOCK: 1, DeviceType.CHAR: 2}
"""BPF_DEVCG_DEV_* of linux/bpf.h."""
_RESULTS: Final = {0: Verdict.DENY, 1: Verdict.ALLOW}
"""The verifier lets a program of this type return nothing else."""


class DeviceProgram:
    """One program, which remembers its verdicts: what could make it answer differently is not executed at all."""

    def __init__(self, code: bytes, name: str = "", tag: bytes = b"") -> None:
        """Take the instructions as the kernel shows them; bytes that are none make every verdict unknown."""
        self.code: Final = code
        self.name: Final = name
        self.tag: Final = tag
        self.trouble: str | None = None
        """Why a verdict was unknown; None while each could be reached."""
        self.instructions: Final = self._decode()
        """Empty for bytes that are none."""
        self._is_too_long = False
        """Whether it has once taken more steps than it is given; it is not run again, as each run takes long."""
        self._verdicts: dict[bytes, Verdict] = {}

    def allows(self, node: DeviceNode, permissions: Permission) -> Verdict:
        """What the program says of this request."""
        context = _context(node, permissions)
        verdict = Verdict.UNKNOWN if self._is_too_long else self._verdicts.get(context)
        if verdict is None:
            self._verdicts[context] = verdict = self._run(context)
        return verdict

    def trace(self, node: DeviceNode, permissions: Permission) -> tuple[Step, ...]:
        """The steps by which it answers this request, all but its exit; or those until it could not go on."""
        steps: list[Step] = []
        with suppress(UnsupportedProgram):
            run(self.instructions, _context(node, permissions), steps)
        return tuple(steps)

    def _decode(self) -> Program:
        try:
            return decode(self.code)
        except UnsupportedProgram as error:
            self.trouble = str(error)
            return ()

    def _run(self, context: bytes) -> Verdict:
        try:
            return _RESULTS.get(run(self.instructions, context), Verdict.UNKNOWN)
        except UnsupportedProgram as error:
            self.trouble = self.trouble or str(error)
            self._is_too_long = isinstance(error, ProgramTooLong)
            return Verdict.UNKNOWN


def _context(node: DeviceNode, permissions: Permission) -> bytes:
    return request_context(permissions.value, _KINDS[node.type], node.major, node.minor)


class BpfPolicy:
    """What the effective programs of a cgroup allow; without any, nothing is restricted."""

    def __init__(self, programs: Sequence[DeviceProgram], ids: Sequence[int] = ()) -> None:
        """Take the programs and, where they are the kernel's, its id of each."""
        self.programs: Final = tuple(programs)
        self.ids: Final = tuple(ids)

    @property
    def source(self) -> PolicySource:
        """Always the programs, also when there is none."""
        return PolicySource.BPF

    @property
    def trouble(self) -> PolicyUnreadable | None:
        """Why a verdict was unknown, by the first program that has a reason."""
        reason = next((program.trouble for program in self.programs if program.trouble is not None), None)
        return None if reason is None else PolicyUnreadable(f"a device program cannot be evaluated: {reason}")

    def allows(self, node: DeviceNode, permissions: Permission) -> Verdict:
        """All programs must allow; one denial is enough."""
        verdict = Verdict.ALLOW
        for program in self.programs:
            verdict &= program.allows(node, permissions)
        return verdict

    def named_minors(self, major: int) -> frozenset[int]:
        """None: what a program names cannot be listed."""
        del major
        return frozenset()
