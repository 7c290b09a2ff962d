# SPDX-License-Identifier: Apache-2.0
"""Asks the kernel what this process' own container may open, by access(2), which needs no privilege.

access(2) asks both device controllers as open(2) does and never calls the driver: no GPU wakes up. Verified against
open(2) on kernel 6.18.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.fallback.nodes import read_nodes
from otel_gpu_cgroup.cgroup.policy import MEMORY_NODE, UNUSED_GPU_NODE, UnknownPolicy
from otel_gpu_cgroup.errors import HostUnreadable, PolicyUnreadable
from otel_gpu_cgroup.model import NVIDIA_MAJOR, READ_WRITE, DeviceNode, Permission, PolicySource, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_gpu_cgroup.cgroup.policy import DevicePolicy, PolicyReading
    from otel_gpu_cgroup.model import Container

_REMEMBERED: Final = 64
_VERDICTS: Final = {0: Verdict.ALLOW, errno.EPERM: Verdict.DENY, errno.ENOENT: Verdict.DENY}
"""By errno; EACCES among others comes before the controllers are asked, and tells nothing of them."""


class Probe:
    """access(2) with its errno, which os.access keeps to itself."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._access = libc.access

    def ask(self, path: str) -> int:
        """0 if this process may read and write the file at once, else the errno."""
        return 0 if self._access(os.fsencode(path), os.R_OK | os.W_OK) == 0 else ctypes.get_errno()


class ProbedPolicy:
    """What access(2) answered for the nodes that are there; for the others what the kernel's policy says."""

    def __init__(self, answers: tuple[tuple[DeviceNode, int], ...], kernel: DevicePolicy) -> None:
        """`answers` are errnos by device node, for a request to read and write."""
        self._answers: Mapping[DeviceNode, int] = dict(answers)
        self._kernel = kernel

    @property
    def source(self) -> PolicySource:
        """The probe, unless no node is there and the kernel's policy is known."""
        known = self._kernel.source is not PolicySource.NOBODY
        return self._kernel.source if known and not self._answers else PolicySource.PROBE

    @property
    def trouble(self) -> PolicyUnreadable | None:
        """Why a node that is there could not be asked about."""
        gpus = ((node, error) for node, error in self._answers.items() if node.major == NVIDIA_MAJOR)
        untold = next(((node, error) for node, error in gpus if error not in _VERDICTS), None)
        if untold is None:
            return self._kernel.trouble
        node, error = untold
        return PolicyUnreadable(f"access(2) of {node}: {os.strerror(error)}; let this user read and write the node")

    def allows(self, node: DeviceNode, permissions: Permission) -> Verdict:
        """A node that is not there, and that no policy tells of, is not this container's."""
        error = self._answers.get(node) if permissions == READ_WRITE else None
        verdict = Verdict.UNKNOWN if error is None else _VERDICTS.get(error, Verdict.UNKNOWN)
        if verdict is Verdict.UNKNOWN:
            verdict = self._kernel.allows(node, permissions)
        if verdict is Verdict.UNKNOWN and error is None:
            return self._unseen(node)
        return verdict

    def named_minors(self, major: int) -> frozenset[int]:
        """The minors of the nodes that may be opened, and those that the kernel's policy names."""
        seen = {node.minor for node, error in self._answers.items() if node.major == major and error == 0}
        return self._kernel.named_minors(major) | seen

    def _unseen(self, node: DeviceNode) -> Verdict:
        """Only a container that may open everything gets /dev/mem: it may open an unused GPU node, too."""
        everything = node == UNUSED_GPU_NODE and self._answers.get(MEMORY_NODE) == 0
        return Verdict.ALLOW if everything else Verdict.DENY


class OwnPolicyReader:
    """Reads the policy of the container that this process is in, from its own /dev."""

    def __init__(self, kernel: PolicyReading, dev: str = "/dev") -> None:
        """Where no node tells, ask the kernel's policies (on v1 a container's own list is readable inside)."""
        self._kernel = kernel
        self._dev = dev
        self._probe = Probe()
        self._unknown = UnknownPolicy(PolicyUnreadable("no cgroup of this container is visible"))
        self._probed = functools.lru_cache(maxsize=_REMEMBERED)(ProbedPolicy)

    def begin_cycle(self) -> None:
        """Let go of what the last cycle did not meet."""
        self._kernel.begin_cycle()

    def read(self, container: Container) -> DevicePolicy:
        """What this process may open now; never raises."""
        return self._probed(self._ask_nodes(), self._read_kernel(container))

    def read_stand_in(self, container: Container, unknown: DevicePolicy) -> None:
        """None: whoever stands in for the kernel is outside."""
        del container, unknown

    def _ask_nodes(self) -> tuple[tuple[DeviceNode, int], ...]:
        try:
            nodes = read_nodes(self._dev)
        except HostUnreadable:
            return ()
        return tuple((node, self._probe.ask(f"{self._dev}/{name}")) for name, node in sorted(nodes.items()))

    def _read_kernel(self, container: Container) -> DevicePolicy:
        try:
            return self._kernel.read(container)
        except (HostUnreadable, PolicyUnreadable):
            return self._unknown
