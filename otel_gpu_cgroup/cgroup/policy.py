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

    def named_minors(self, major: int) -> frozenset[int]:
        """The minors that its rules allow read+write one by one; empty where no rules can be listed."""
        ...


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
