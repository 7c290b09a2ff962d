# SPDX-License-Identifier: Apache-2.0
"""The text of a devices.list: what is read, what is refused, and the verdicts that follow."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from otel_gpu_cgroup.cgroup.devices_list import DeviceRule, parse_devices_list
from otel_gpu_cgroup.errors import ParseError
from otel_gpu_cgroup.model import READ_WRITE, DeviceNode, DeviceType, Permission, PolicySource, Verdict, gpu_node

RECORDED: Final = Path(__file__).parents[2] / "data/cgroup/devices.list"
R, W, M = Permission.READ, Permission.WRITE, Permission.MKNOD
C, B = DeviceType.CHAR, DeviceType.BLOCK


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("c 195:0 rw", DeviceRule(C, 195, 0, R | W)),
        ("c 195:255 rwm", DeviceRule(C, 195, 255, R | W | M)),
        ("c 195:* m", DeviceRule(C, 195, None, M)),
        ("c *:* m", DeviceRule(C, None, None, M)),
        ("b *:* m", DeviceRule(B, None, None, M)),
        ("c *:3 r", DeviceRule(C, None, 3, R)),
        ("b 8:0 w", DeviceRule(B, 8, 0, W)),
        ("a *:* rwm", DeviceRule(None, None, None, R | W | M)),
        ("c 195:128 rw", DeviceRule(C, 195, 128, R | W)),
        ("c 4294967294:4294967294 rw", DeviceRule(C, 4294967294, 4294967294, R | W)),
        ("c 195:1 mwr", DeviceRule(C, 195, 1, R | W | M)),
    ],
)
def test_a_line_is_a_rule(line: str, rule: DeviceRule) -> None:
    assert parse_devices_list(f"{line}\n").rules == (rule,)
    assert parse_devices_list(line).rules == (rule,)


@pytest.mark.parametrize(
    "line",
    [
        "",
        " ",
        "c",
        "c 195:0",
        "c 195:0 rw extra",
        "c 195 rw",
        "c 195:0:1 rw",
        "c badformat rwm",
        "c 195:-1 rw",
        "c 195:+1 rw",
        "c 195:0x10 rw",
        "c 195:1_0 rw",
        "c 195:\u0661 rw",
        "c 195:\u00b2 rw",
        "c : rw",
        "c 195: rw",
        "c 195:** rw",
        "d 195:0 rw",
        "C 195:0 rw",
        "c 195:0 rwx",
        "c 195:0 RW",
        "c 195:\x1b[31m rw",
        "c 195:\udcff rw",
        f"c 195:{'9' * 5000} rw",
        f"c {'1' * 11}:0 rw",
    ],
)
def test_a_line_that_is_no_rule_is_named(line: str) -> None:
    with pytest.raises(ParseError) as raised:
        parse_devices_list(f"c 1:3 rwm\n{line}\nc 195:0 rw\n")
    text = str(raised.value)
    if line.isprintable():
        assert text.startswith(f"'{line[:60]}")
    assert "'TYPE MAJOR:MINOR ACCESS'" in text
    assert text.isprintable()
    assert len(text) < 700


def test_an_empty_file_denies_everything() -> None:
    policy = parse_devices_list("")
    assert policy.rules == ()
    assert policy.allows(gpu_node(0), READ_WRITE) is Verdict.DENY
    assert policy.allows(DeviceNode(C, 1, 3), R) is Verdict.DENY


@pytest.mark.parametrize(
    ("text", "node", "permissions", "verdict"),
    [
        ("c 195:0 rw", gpu_node(0), READ_WRITE, Verdict.ALLOW),
        ("c 195:0 rw", gpu_node(0), R, Verdict.ALLOW),
        ("c 195:0 rw", gpu_node(0), R | W | M, Verdict.DENY),
        ("c 195:0 rw", gpu_node(1), READ_WRITE, Verdict.DENY),
        ("c 195:0 rw", DeviceNode(B, 195, 0), READ_WRITE, Verdict.DENY),
        ("c 195:0 rw", DeviceNode(C, 196, 0), READ_WRITE, Verdict.DENY),
        ("b 195:0 rw", gpu_node(0), READ_WRITE, Verdict.DENY),
        ("c 195:* rwm", gpu_node(247), READ_WRITE, Verdict.ALLOW),
        ("c *:* rwm", gpu_node(0), READ_WRITE, Verdict.ALLOW),
        ("c *:0 rw", gpu_node(0), READ_WRITE, Verdict.ALLOW),
        ("c *:0 rw", gpu_node(1), READ_WRITE, Verdict.DENY),
        ("a *:* rwm", gpu_node(0), READ_WRITE, Verdict.ALLOW),
        ("a *:* rwm", DeviceNode(B, 8, 0), M, Verdict.ALLOW),
        ("c 195:0 m", gpu_node(0), READ_WRITE, Verdict.DENY),
        ("c 195:0 m", gpu_node(0), M, Verdict.ALLOW),
        ("c *:* m\nb *:* m", gpu_node(0), READ_WRITE, Verdict.DENY),
        ("c 195:0 r", gpu_node(0), READ_WRITE, Verdict.DENY),
        ("c 195:0 w", gpu_node(0), READ_WRITE, Verdict.DENY),
        ("c 195:* r\nc 195:0 w", gpu_node(0), READ_WRITE, Verdict.DENY),  # no union over lines
        ("c 195:* r\nc 195:0 w", gpu_node(0), R, Verdict.ALLOW),
        ("c 195:* r\nc 195:0 w", gpu_node(0), W, Verdict.ALLOW),
        ("c 195:* r\nc 195:0 rw", gpu_node(0), READ_WRITE, Verdict.ALLOW),
        ("c 195:128 rw", gpu_node(128), READ_WRITE, Verdict.ALLOW),
    ],
)
def test_one_rule_must_cover_the_whole_request(
    text: str, node: DeviceNode, permissions: Permission, verdict: Verdict
) -> None:
    assert parse_devices_list(text).allows(node, permissions) is verdict


def test_the_first_covering_rule_decides() -> None:
    policy = parse_devices_list("c *:* m\nc 195:* rw\nc 195:0 rwm\n")
    assert policy.deciding_rule(gpu_node(0), READ_WRITE) == DeviceRule(C, 195, None, R | W)
    assert policy.deciding_rule(gpu_node(0), R | W | M) == DeviceRule(C, 195, 0, R | W | M)
    assert policy.deciding_rule(DeviceNode(B, 8, 0), R) is None


@pytest.mark.parametrize(
    ("text", "minors"),
    [
        ("", set()),
        ("a *:* rwm", set()),
        ("c 195:* rw", set()),
        ("c *:4 rw", set()),
        ("c 195:4 rw\nc 195:9 rwm\nc 195:255 rw", {4, 9, 255}),
        ("c 195:4 m\nc 195:5 r\nc 195:6 w", set()),
        ("b 195:4 rw\nc 507:0 rw", set()),
    ],
)
def test_minors_are_named_by_rules_of_their_own(text: str, minors: set[int]) -> None:
    assert parse_devices_list(text).named_minors(195) == minors


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("runc-no-gpu", set()),
        ("runc-one-gpu", {0, 254, 255}),
        ("runc-wildcard", set(range(256))),
        ("runc-privileged", set(range(256))),
        ("runc-deny-list", set(range(256))),  # its hole at 195:0 is not printed
        ("systemd-reload", set()),
    ],
)
def test_recorded_files(name: str, allowed: set[int]) -> None:
    policy = parse_devices_list((RECORDED / name).read_text())
    assert {minor for minor in range(256) if policy.allows(gpu_node(minor), READ_WRITE) is Verdict.ALLOW} == allowed


def test_policies_are_compared_by_identity() -> None:
    one, other = parse_devices_list("c 195:0 rw"), parse_devices_list("c 195:0 rw")
    assert len({one, other, one}) == 2
    assert one.source is PolicySource.DEVICES_LIST
