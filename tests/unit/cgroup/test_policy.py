# SPDX-License-Identifier: Apache-2.0
"""What a policy makes of a container, for policies of the kernel's making and for one that does not know."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from otel_gpu_cgroup.cgroup.devices_list import parse_devices_list
from otel_gpu_cgroup.cgroup.policy import classify
from otel_gpu_cgroup.model import AccessClass, DeviceNode, Permission, PolicySource, Verdict, gpu_node

TWO = [gpu_node(0), gpu_node(1)]


@dataclass(frozen=True)
class Ignorant:
    """Knows nothing of the nodes with these minors and allows the others."""

    unknown: frozenset[int]

    @property
    def source(self) -> PolicySource:
        return PolicySource.BPF

    @property
    def trouble(self) -> None:
        return None

    def allows(self, node: DeviceNode, permissions: Permission) -> Verdict:
        return Verdict.UNKNOWN if permissions and node.minor in self.unknown else Verdict.ALLOW

    def named_minors(self, major: int) -> frozenset[int]:  # noqa: ARG002  # the protocol's
        return frozenset()


@pytest.mark.parametrize(
    ("text", "access"),
    [
        ("", AccessClass.NONE),
        ("c *:* m\nb *:* m", AccessClass.NONE),
        ("c 195:* m", AccessClass.NONE),
        ("c 195:255 rw\nc 195:254 rw", AccessClass.NONE),
        ("c 195:7 rw", AccessClass.NONE),
        ("c 195:0 rw", AccessClass.EXPLICIT),
        ("c 195:0 rw\nc 195:1 rw", AccessClass.EXPLICIT),
        ("c 195:* rwm", AccessClass.EXPLICIT),
        ("c 1:* rw\nc 195:0 rw\nc 195:1 rw", AccessClass.EXPLICIT),
        ("c 195:* rw\nc 1:1 rw", AccessClass.UNRESTRICTED),
        ("c 195:0 rw\nc 195:253 rw\nc 1:1 rw", AccessClass.EXPLICIT),
        ("c *:* rw", AccessClass.UNRESTRICTED),
        ("a *:* rwm", AccessClass.UNRESTRICTED),
        ("b *:* rwm", AccessClass.NONE),
    ],
)
def test_classes_on_a_host_with_two_gpus(text: str, access: AccessClass) -> None:
    assert classify(parse_devices_list(text), TWO) is access


@pytest.mark.parametrize(
    ("text", "access"),
    [
        ("", AccessClass.NONE),
        ("c 195:0 rw", AccessClass.NONE),
        ("c 195:* rw", AccessClass.NONE),
        ("a *:* rwm", AccessClass.UNRESTRICTED),
    ],
)
def test_classes_on_a_host_without_gpus(text: str, access: AccessClass) -> None:
    assert classify(parse_devices_list(text), []) is access


@pytest.mark.parametrize(
    ("unknown", "access"),
    [
        (frozenset[int](), AccessClass.UNRESTRICTED),
        (frozenset({0}), AccessClass.UNKNOWN),
        (frozenset({0, 1}), AccessClass.UNKNOWN),
        (frozenset({253}), AccessClass.EXPLICIT),
    ],
)
def test_unknown_is_never_none(unknown: frozenset[int], access: AccessClass) -> None:
    assert classify(Ignorant(unknown), TWO) is access


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (Verdict.ALLOW, Verdict.ALLOW, Verdict.ALLOW),
        (Verdict.ALLOW, Verdict.DENY, Verdict.DENY),
        (Verdict.DENY, Verdict.DENY, Verdict.DENY),
        (Verdict.UNKNOWN, Verdict.DENY, Verdict.DENY),
        (Verdict.UNKNOWN, Verdict.ALLOW, Verdict.UNKNOWN),
        (Verdict.UNKNOWN, Verdict.UNKNOWN, Verdict.UNKNOWN),
    ],
)
def test_two_controllers_must_both_allow(one: Verdict, other: Verdict, both: Verdict) -> None:
    assert one & other is both
    assert other & one is both
