# SPDX-License-Identifier: Apache-2.0
"""What systemd's unit files say of devices."""

from __future__ import annotations

from typing import Final

import pytest

from otel_gpu_cgroup.cgroup.drivers import parse_drivers
from otel_gpu_cgroup.cgroup.fallback.systemd import UnitDevices, parse_unit, unit_policy
from otel_gpu_cgroup.cgroup.policy import classify
from otel_gpu_cgroup.errors import ParseError
from otel_gpu_cgroup.model import READ_WRITE, AccessClass, DeviceNode, DeviceType, PolicySource, Verdict, gpu_node

HEADER: Final = """\
# This is a drop-in unit file extension, created via "systemctl set-property"
# or an equivalent operation. Do not edit.
[Scope]
"""
DRIVERS: Final = """\
Character devices:
  1 mem
  5 /dev/tty
136 pts
195 nvidia
195 nvidia-modeset
195 nvidiactl
507 nvidia-uvm

Block devices:
  7 loop
195 nvidia
"""
GPUS: Final = [gpu_node(minor) for minor in range(4)]


def _allowed(text: str, nodes: dict[str, DeviceNode] | None = None) -> list[int]:
    unit = parse_unit(text)
    assert unit is not None
    policy = unit_policy(unit, parse_drivers(DRIVERS), (nodes or {}).get)
    assert policy.source is PolicySource.SYSTEMD
    return [node.minor for node in GPUS if policy.allows(node, READ_WRITE) is Verdict.ALLOW]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("DeviceAllow=\nDeviceAllow=char-* m\nDeviceAllow=/dev/char/195:1 rw\nDeviceAllow=/dev/char/195:255 rw\n", [1]),
        ("DeviceAllow=/dev/char/195:1 rw\nDeviceAllow=\nDeviceAllow=/dev/char/195:2 rwm\n", [2]),
        ("DeviceAllow=/dev/char/195:1\n", [1]),
        ("DeviceAllow=/dev/char/195:1 r\nDeviceAllow=/dev/char/195:2 w\n", []),
        ("DeviceAllow=/dev/block/195:1 rw\n", []),
        ("DeviceAllow=/dev/nvidia3 rw\nDeviceAllow=/dev/nvidia2 rw\n", [3]),
        ("DeviceAllow=char-nvidia rw\n", [0, 1, 2, 3]),
        ("DeviceAllow=char-nvidia* rw\n", [0, 1, 2, 3]),
        ("DeviceAllow=char-195 rw\n", [0, 1, 2, 3]),
        ("DeviceAllow=char-* rw\n", [0, 1, 2, 3]),
        ("DeviceAllow=block-nvidia rw\nDeviceAllow=char-pts rw\nDeviceAllow=char-nvidia-uvm rw\n", []),
        ("DeviceAllow=char-no-such-driver rw\n", []),
        ("DeviceAllow=\n", []),
        ("", []),
    ],
)
def test_what_a_strict_unit_may_open(lines: str, expected: list[int]) -> None:
    text = f"{HEADER}DevicePolicy=strict\n{HEADER}{lines}"
    assert _allowed(text, {"/dev/nvidia3": gpu_node(3)}) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DevicePolicy=auto\n", AccessClass.UNRESTRICTED),
        ("DevicePolicy=auto\nDeviceAllow=\n", AccessClass.UNRESTRICTED),
        ("DevicePolicy=\n", AccessClass.UNRESTRICTED),
        ("DevicePolicy=auto\nDeviceAllow=/dev/char/195:0 rw\n", AccessClass.EXPLICIT),
        ("DeviceAllow=/dev/char/195:0 rw\n", AccessClass.EXPLICIT),
        ("DevicePolicy=closed\n", AccessClass.NONE),
        ("DevicePolicy=strict\n", AccessClass.NONE),
        ("DevicePolicy=strict\nDevicePolicy=auto\n", AccessClass.UNRESTRICTED),
    ],
)
def test_the_class_of_a_unit(text: str, expected: AccessClass) -> None:
    unit = parse_unit(text)
    assert unit is not None
    assert classify(unit_policy(unit, (), lambda _: None), GPUS) is expected


@pytest.mark.parametrize(("policy", "expected"), [("strict", Verdict.DENY), ("closed", Verdict.ALLOW)])
def test_only_a_strict_unit_lacks_the_standard_devices(policy: str, expected: Verdict) -> None:
    null = DeviceNode(DeviceType.CHAR, 1, 3)
    stated = unit_policy(UnitDevices(policy), (), lambda _: None)
    assert stated.allows(null, READ_WRITE) is expected


def test_a_unit_that_says_nothing_of_devices_does_not_answer() -> None:
    assert parse_unit("[Scope]\nDelegate=yes\nTasksMax=100\n#DevicePolicy=strict\n") is None
    assert parse_unit("") is None


@pytest.mark.parametrize(
    "line", ["DevicePolicy=open", "DeviceAllow=/dev/char/195:0 rwx", "DeviceAllow=/dev/char/195:0 r w"]
)
def test_what_systemd_would_not_write_is_refused(line: str) -> None:
    with pytest.raises(ParseError, match=line.replace("/", ".")):
        parse_unit(line)


def test_gpus_that_are_named() -> None:
    unit = parse_unit("DevicePolicy=strict\nDeviceAllow=/dev/char/195:7 rw\nDeviceAllow=/dev/char/195:8 m\n")
    assert unit is not None
    assert unit_policy(unit, (), lambda _: None).named_minors(195) == {7}
