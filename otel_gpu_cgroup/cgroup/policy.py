# SPDX-License-Identifier: Apache-2.0
"""Pure: the one question that every device policy answers, and what the answers make of a container."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from otel_gpu_cgroup.model import (
    NVIDIA_MAJOR,
    READ_WRITE,
    AccessClass,
    DeviceNode,
    DeviceType,
    Permission,
    PolicySource,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_gpu_cgroup.errors import PolicyUnreadable
    from otel_gpu_cgroup.model import Container

UNUSED_GPU_NODE: Final = DeviceNode(DeviceType.CHAR, NVIDIA_MAJOR, 253)
"""Between the last regular minor (247) and nvidia-modeset (254): no rule names it, only a wildcard covers it."""
MEMORY_NODE: Final = DeviceNode(DeviceType.CHAR, 1, 1)
"""/dev/mem: nothing but an allow-all policy lets a container open it."""


class DevicePolicy(Protocol):
    """What one cgroup lets its processes open; compared by identity, as what it means is remembered by it."""

    def __hash__(self) -> int:
        """By identity."""
        ...

    @property
    def source(self) -> PolicySource:
        """Who told."""
        ...

    def allows(self, node: DeviceNode, permissions: Permission) -> Verdict:
        """The kernel's answer to one request that asks for all these permissions at once."""
        ...

    @property
    def trouble(self) -> PolicyUnreadable | None:
        """Why an answer was unknown; None while none was."""
        ...

    def named_minors(self, major: int) -> frozenset[int]:
        """The minors that its rules allow read+write one by one; empty where no rules can be listed."""
        ...


class PolicyReading(Protocol):
    """Where the policies of containers are read."""

    def begin_cycle(self) -> None:
        """Let go of what the last cycle did not meet."""
        ...

    def read(self, container: Container) -> DevicePolicy:
        """What the container may open now; raises Gone, or HostUnreadable or PolicyUnreadable when nobody can say."""
        ...

    def read_stand_in(self, container: Container, unknown: DevicePolicy) -> DevicePolicy | None:
        """The policy that was read, completed by what others know where it does not answer; None if nobody does."""
        ...


class UnknownPolicy:
    """The policy of a controller that does not tell."""

    source: Final = PolicySource.NOBODY

    def __init__(self, trouble: PolicyUnreadable) -> None:
        self.trouble: Final = trouble

    def allows(self, node: DeviceNode, permissions: Permission) -> Verdict:
        """Always unknown."""
        del node, permissions
        return Verdict.UNKNOWN

    def named_minors(self, major: int) -> frozenset[int]:
        """None is known."""
        del major
        return frozenset()


class BothPolicies:
    """What two controllers allow together: the kernel asks v1 and v2, and each may deny."""

    def __init__(self, first: DevicePolicy, second: DevicePolicy) -> None:
        self._first = first
        self._second = second

    @property
    def parts(self) -> tuple[DevicePolicy, DevicePolicy]:
        """What each of the two allows."""
        return self._first, self._second

    @property
    def source(self) -> PolicySource:
        """Both, or the one that told."""
        told = {self._first.source, self._second.source} - {PolicySource.NOBODY}
        return PolicySource.DEVICES_LIST_AND_BPF if len(told) > 1 else next(iter(told), PolicySource.NOBODY)

    @property
    def trouble(self) -> PolicyUnreadable | None:
        """Of either."""
        return self._first.trouble or self._second.trouble

    def allows(self, node: DeviceNode, permissions: Permission) -> Verdict:
        """Both must allow; one denial is enough."""
        return self._first.allows(node, permissions) & self._second.allows(node, permissions)

    def named_minors(self, major: int) -> frozenset[int]:
        """Of either that can list them."""
        return self._first.named_minors(major) | self._second.named_minors(major)


def classify(policy: DevicePolicy, gpu_nodes: Iterable[DeviceNode]) -> AccessClass:
    """What a policy means for a host that has these GPU nodes.

    Unrestricted: every GPU node, an unused one of the same major and /dev/mem are all allowed.
    """
    gpus = [policy.allows(node, READ_WRITE) for node in gpu_nodes]
    if Verdict.UNKNOWN in gpus:
        return AccessClass.UNKNOWN
    if all(verdict is Verdict.ALLOW for verdict in gpus) and _allows_anything(policy):
        return AccessClass.UNRESTRICTED
    return AccessClass.EXPLICIT if Verdict.ALLOW in gpus else AccessClass.NONE


def _allows_anything(policy: DevicePolicy) -> bool:
    probes = (UNUSED_GPU_NODE, MEMORY_NODE)
    return all(policy.allows(node, READ_WRITE) is Verdict.ALLOW for node in probes)
