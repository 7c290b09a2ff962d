# SPDX-License-Identifier: Apache-2.0
"""Pure: a device policy as somebody other than the kernel states it, and how it stands in for the kernel's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from otel_gpu_cgroup.cgroup.devices_list import DeviceRule
from otel_gpu_cgroup.cgroup.policy import MEMORY_NODE, UNUSED_GPU_NODE
from otel_gpu_cgroup.model import (
    MOST_GPUS,
    READ_WRITE,
    DeviceNode,
    DeviceType,
    Permission,
    PolicySource,
    Verdict,
    gpu_node,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_gpu_cgroup.cgroup.policy import DevicePolicy
    from otel_gpu_cgroup.errors import PolicyUnreadable

EVERY_PERMISSION = Permission.READ | Permission.WRITE | Permission.MKNOD


@dataclass(frozen=True, slots=True)
class Statement:
    """That a rule's devices are allowed, or denied."""

    allow: bool
    rule: DeviceRule

    def __str__(self) -> str:
        return f"{'allow' if self.allow else 'deny'} {self.rule}"

    def decides(self, node: DeviceNode, permissions: Permission) -> bool:
        """Whether it allows all that is asked for, or denies a part of it."""
        if self.allow:
            return self.rule.covers(node, permissions)
        return any(self.rule.covers(node, permission) for permission in permissions)


@dataclass(frozen=True, slots=True)
class StatedPolicy:
    """What these statements make together: the last one that decides is the answer, and without one it is a denial."""

    source: PolicySource
    statements: tuple[Statement, ...] = ()

    @property
    def trouble(self) -> None:
        """None: it always answers."""

    def allows(self, node: DeviceNode, permissions: Permission) -> Verdict:
        """Never unknown."""
        last = self.deciding_statement(node, permissions)
        return Verdict.ALLOW if last is not None and last.allow else Verdict.DENY

    def deciding_statement(self, node: DeviceNode, permissions: Permission) -> Statement | None:
        """The last one that decides; None when the request is denied for lack of one."""
        return next((it for it in reversed(self.statements) if it.decides(node, permissions)), None)

    def named_minors(self, major: int) -> frozenset[int]:
        """The minors of character devices that it allows read+write and names one by one."""
        rules = (it.rule for it in self.statements if it.allow and it.rule.major == major)
        nodes = (DeviceNode(DeviceType.CHAR, major, rule.minor) for rule in rules if rule.minor is not None)
        return frozenset(node.minor for node in nodes if self.allows(node, READ_WRITE) is Verdict.ALLOW)


class StandInPolicy:
    """What the kernel says where that is known, and what was stated where it is not."""

    def __init__(self, kernel: DevicePolicy, stated: StatedPolicy) -> None:
        self._kernel = kernel
        self._stated = stated

    @property
    def parts(self) -> tuple[DevicePolicy, DevicePolicy]:
        """What the kernel says, and what was stated."""
        return self._kernel, self._stated

    @property
    def source(self) -> PolicySource:
        """Who stated: what the kernel has not said all of is not its word."""
        return self._stated.source

    @property
    def trouble(self) -> PolicyUnreadable | None:
        """Why the kernel's answer is unknown."""
        return self._kernel.trouble

    def allows(self, node: DeviceNode, permissions: Permission) -> Verdict:
        """The kernel's denial stands, and so does its permission."""
        verdict = self._kernel.allows(node, permissions)
        return self._stated.allows(node, permissions) if verdict is Verdict.UNKNOWN else verdict

    def named_minors(self, major: int) -> frozenset[int]:
        """Of both, as far as they are allowed."""
        named = self._kernel.named_minors(major) | self._stated.named_minors(major)
        nodes = (DeviceNode(DeviceType.CHAR, major, minor) for minor in named)
        return frozenset(node.minor for node in nodes if self.allows(node, READ_WRITE) is Verdict.ALLOW)


def allows_a_gpu(policy: StatedPolicy) -> bool:
    """Whether it allows any node that a GPU may have."""
    return any(policy.allows(gpu_node(minor), READ_WRITE) is Verdict.ALLOW for minor in range(MOST_GPUS))


def everything(source: PolicySource) -> StatedPolicy:
    """A policy that restricts nothing."""
    return StatedPolicy(source, (Statement(allow=True, rule=DeviceRule(None, None, None, EVERY_PERMISSION)),))


def nodes_policy(present: Iterable[DeviceNode]) -> StatedPolicy:
    """A policy that allows the device nodes in a container's own /dev.

    No engine puts /dev/mem into a container that may not open everything: where it is, an unused GPU node counts
    as allowed, too.
    """
    nodes = set(present)
    if MEMORY_NODE in nodes:
        nodes.add(UNUSED_GPU_NODE)
    ordered = sorted(nodes, key=lambda node: (node.type.value, node.major, node.minor))
    rules = (DeviceRule(node.type, node.major, node.minor, EVERY_PERMISSION) for node in ordered)
    return StatedPolicy(PolicySource.NODES, tuple(Statement(allow=True, rule=rule) for rule in rules))
