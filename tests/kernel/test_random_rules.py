# SPDX-License-Identifier: Apache-2.0
"""Random v1 rule sets: what we read in devices.list is what the kernel does."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import READ_WRITE, Permission
from tests.kernel.comparison import DEFAULT_ALLOW, GPU_NODES
from tests.support.devices_cgroup import DevicesCgroup, devices_cgroup

if TYPE_CHECKING:
    from tests.kernel.comparison import Comparison
    from tests.support.devices_cgroup import KernelOracle

_EACH: Final = 200
"""Rule sets of each of the three kinds."""


def test_the_kernel_denies_nothing_in_a_cgroup_without_rules(kernel: KernelOracle) -> None:
    with devices_cgroup() as cgroup:
        answers = kernel.ask(cgroup.path)
    assert [f"{node} {permission}" for (node, permission), answer in answers.items() if not answer.allowed] == []


def test_the_kernel_answers_for_each_request_apart(kernel: KernelOracle) -> None:
    with devices_cgroup() as cgroup:
        assert cgroup.deny("a")
        assert cgroup.allow("c 195:3 r")
        assert cgroup.allow("c 195:* w")
        answers = kernel.ask(cgroup.path)
    third, fourth = GPU_NODES[3], GPU_NODES[4]
    asked = (Permission.READ, Permission.WRITE, READ_WRITE, Permission.MKNOD)
    assert [answers[third, permission].allowed for permission in asked] == [True, True, False, False]
    assert [answers[fourth, permission].allowed for permission in asked] == [False, True, False, False]


def test_lists_that_deny_by_default(kernel: KernelOracle, totals: Comparison) -> None:
    chance = random.Random(totals.seed)
    for _ in range(_EACH):
        with devices_cgroup() as cgroup:
            _fill_deny_by_default(cgroup, chance)
            assert _compare(cgroup, kernel, totals) == 0
    assert totals.disagreements == []


def test_lists_that_allow_by_default_hide_their_holes_and_nothing_else(
    kernel: KernelOracle, totals: Comparison
) -> None:
    chance, holes = random.Random(totals.seed + 1), 0
    for _ in range(_EACH):
        with devices_cgroup() as cgroup:
            for _ in range(chance.randint(1, 8)):
                assert cgroup.deny(_rule(chance))
            assert cgroup.devices_list() == DEFAULT_ALLOW
            holes += _compare(cgroup, kernel, totals)
    assert totals.disagreements == []
    assert holes > 0


def test_cgroups_inside_cgroups_need_no_look_at_those_above(kernel: KernelOracle, totals: Comparison) -> None:
    chance = random.Random(totals.seed + 2)
    for _ in range(_EACH // 2):
        with ExitStack() as nest:
            outer = nest.enter_context(devices_cgroup())
            _fill_deny_by_default(outer, chance)
            inner = _nested(nest, outer, chance)
            if chance.random() < 0.5:
                outer.deny(_rule(chance))  # after the inner ones were made; the kernel takes it from them too
            assert [_compare(cgroup, kernel, totals) for cgroup in (outer, *inner)] == [0, 0, 0]
    assert totals.disagreements == []


def _nested(nest: ExitStack, outer: DevicesCgroup, chance: random.Random) -> list[DevicesCgroup]:
    """Two levels of cgroups with rules of their own; what the one above does not have the kernel refuses."""
    cgroups = [outer]
    for _ in range(2):
        cgroup = nest.enter_context(devices_cgroup(cgroups[-1]))
        if chance.random() < 0.4:
            _fill_deny_by_default(cgroup, chance)
        for _ in range(chance.randint(0, 3)):
            cgroup.deny(_rule(chance))
        cgroups.append(cgroup)
    return cgroups[1:]


def _fill_deny_by_default(cgroup: DevicesCgroup, chance: random.Random) -> None:
    assert cgroup.deny("a")
    for _ in range(chance.randint(0, 12)):
        cgroup.allow(_rule(chance))
    for _ in range(chance.randint(0, 3)):
        cgroup.deny(_rule(chance))


def _rule(chance: random.Random) -> str:
    kind = chance.choice("cccccb")
    major = chance.choice(("195", "195", "195", "195", "1", "7", "507", "*"))
    minors = [str(node.minor) for node in GPU_NODES]
    minor = "*" if chance.random() < 0.15 else chance.choice(minors)
    letters = chance.sample("rwm", chance.randint(1, 3))
    return f"{kind} {major}:{minor} {''.join(letters)}"


def _compare(cgroup: DevicesCgroup, kernel: KernelOracle, totals: Comparison) -> int:
    totals.rule_sets += 1
    return totals.add(cgroup.devices_list(), kernel.ask(cgroup.path))
