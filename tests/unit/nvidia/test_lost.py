# SPDX-License-Identifier: Apache-2.0
"""What counts as a lost device, told cycle by cycle: each test is the story of one container's rules."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.cgroup.devices_list import parse_devices_list
from otel_gpu_cgroup.cgroup.policy import UnknownPolicy
from otel_gpu_cgroup.errors import PolicyUnreadable
from otel_gpu_cgroup.model import (
    CgroupPath,
    Container,
    DeviceNode,
    DeviceType,
    Gpu,
    GpuUuid,
    MigInstance,
    PolicySource,
    Runtime,
)
from otel_gpu_cgroup.nvidia.judgement import judge
from otel_gpu_cgroup.nvidia.lost import LostWatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_gpu_cgroup.cgroup.policy import DevicePolicy
    from otel_gpu_cgroup.nvidia.judgement import Judgement
    from otel_gpu_cgroup.nvidia.lost import Lost

GPUS: Final = tuple(Gpu(minor, GpuUuid(f"GPU-{minor}")) for minor in range(4))
CONTAINER: Final = Container(CgroupPath("/docker/one"), Runtime.DOCKER, "one", inode=7)
ALL: Final = "a *:* rwm\n"
NOTHING: Final = ""
ONE: Final = "c *:* m\nc 195:0 rw\n"
FOUR: Final = "c *:* m\nc 195:0 rw\nc 195:1 rw\nc 195:2 rw\nc 195:3 rw\n"
GENERIC: Final = "c *:* m\n"
UNKNOWN: Final = "?"
"""A cycle in which nobody could say."""
SIGN: Final = "its own /dev has the node"


@dataclass(slots=True)
class Shown:
    """Evidence for these minors, and how often each was looked for."""

    minors: frozenset[int] = frozenset()
    asked: list[int] = field(default_factory=list)

    def find(self, container: Container, policy: DevicePolicy, gpus: Sequence[Gpu]) -> Mapping[Gpu, str]:
        del container, policy
        self.asked += [gpu.minor for gpu in gpus]
        return {gpu: SIGN for gpu in gpus if gpu.minor in self.minors}


class Story:
    """One watch, and what the kernel says cycle by cycle; equal rules are one policy, as the reader gives it."""

    def __init__(self, *minors: int, gpus: Sequence[Gpu] = GPUS) -> None:
        self.shown = Shown(frozenset(minors))
        self.watch = LostWatch(self.shown)
        self.gpus = tuple(gpus)
        self._policies: dict[str, DevicePolicy] = {}
        self._judgements: dict[tuple[str, tuple[Gpu, ...]], Judgement] = {}

    def cycle(self, rules: str, container: Container = CONTAINER) -> list[int]:
        """The minors of what it has lost."""
        self.watch.begin_cycle()
        return self.look(rules, container)

    def look(self, rules: str, container: Container = CONTAINER) -> list[int]:
        """The same within a cycle."""
        return [loss.gpu.minor for loss in self._watched(rules, container)]

    def cycles(self, *rules: str) -> list[list[int]]:
        return [self.cycle(rule) for rule in rules]

    def reasons(self, rules: str) -> list[str]:
        return [loss.reason for loss in self._watched(rules, CONTAINER)]

    def changes(self) -> list[tuple[int, str | None]]:
        return [(change.lost.gpu.minor, change.end) for change in self.watch.take_changes()]

    def _watched(self, rules: str, container: Container) -> tuple[Lost, ...]:
        policy = self._policies.setdefault(rules, _policy(rules))
        judgement = self._judgements.setdefault((rules, self.gpus), judge(policy, self.gpus))
        return self.watch.watch(container, policy, judgement)


def _policy(rules: str) -> DevicePolicy:
    return UnknownPolicy(PolicyUnreadable("refused")) if rules == UNKNOWN else parse_devices_list(rules)


def test_what_was_granted_twice_and_is_denied_twice_is_lost() -> None:
    story = Story()
    assert story.cycles(ONE, ONE, GENERIC, GENERIC, GENERIC) == [[], [], [], [0], [0]]
    assert story.reasons(GENERIC) == ["it could open it before"]
    assert story.changes() == [(0, None)]


def test_a_loss_is_suspected_in_its_first_cycle_alone() -> None:
    story = Story()
    suspected = []
    for rules in (ONE, ONE, GENERIC, GENERIC, GENERIC, ONE):
        story.cycle(rules)
        suspected.append(story.watch.is_suspecting)
    assert suspected == [False, False, True, False, False, False]


@pytest.mark.parametrize(
    "before",
    [
        (),
        (ONE,),
        (ONE, NOTHING),
        (ONE, NOTHING, ONE),
        (ALL, ALL, ALL),
        (ALL, NOTHING, GENERIC),
        (ALL, NOTHING, ONE, ALL),
        (NOTHING, NOTHING),
    ],
    ids=["never", "once", "once", "twice, not running", "all", "set-up", "set-up", "nothing"],
)
def test_less_than_an_explicit_grant_in_two_cycles_running_is_no_loss(before: Sequence[str]) -> None:
    story = Story()
    story.cycles(*before)
    assert story.cycles(*[GENERIC] * 5) == [[]] * 5
    assert story.changes() == []


def test_a_container_that_is_set_up_and_never_gets_a_gpu_has_lost_none() -> None:
    assert Story().cycles(ALL, ALL, NOTHING, NOTHING, GENERIC, GENERIC, GENERIC) == [[]] * 7


def test_a_privileged_container_that_is_restricted_later_has_lost_nothing_by_that() -> None:
    assert Story().cycles(ALL, ALL, ALL, GENERIC, GENERIC, GENERIC) == [[]] * 6


def test_one_of_four_is_lost() -> None:
    left = FOUR.replace("c 195:2 rw\n", "")
    story = Story()
    assert story.cycles(FOUR, FOUR, left, left) == [[], [], [], [2]]
    assert story.cycles(FOUR, FOUR) == [[], []]
    assert story.changes() == [(2, None), (2, "it may open it again")]


def test_a_denial_of_one_cycle_is_no_loss() -> None:
    assert Story().cycles(ONE, ONE, GENERIC, ONE, GENERIC, ONE) == [[]] * 6


def test_what_it_could_open_before_is_known_for_as_long_as_it_lives() -> None:
    story = Story()
    story.cycles(ONE, ONE, GENERIC, GENERIC, ALL)
    assert story.cycles(GENERIC, GENERIC) == [[], [0]]
    assert story.changes() == [(0, None), (0, "it may open it again"), (0, None)]


def test_an_unknown_cycle_neither_confirms_nor_ends_and_shows_nothing() -> None:
    story = Story()
    assert story.cycles(ONE, UNKNOWN, ONE) == [[], [], []]
    assert story.cycles(GENERIC, UNKNOWN) == [[], []]
    assert not story.watch.is_suspecting
    assert story.cycles(UNKNOWN, GENERIC, UNKNOWN, GENERIC) == [[], [0], [], [0]]
    assert story.changes() == [(0, None)]


def test_what_a_fallback_says_is_no_denial() -> None:
    story = Story(0)
    policy = _policy(GENERIC)
    stated = replace(judge(policy, GPUS), source=PolicySource.OCI)
    for _ in range(4):
        story.watch.begin_cycle()
        assert story.watch.watch(CONTAINER, policy, stated) == ()


def test_a_container_that_is_made_again_under_its_id_begins_anew() -> None:
    story = Story()
    story.cycles(ONE, ONE)
    again = replace(CONTAINER, inode=8)
    assert [story.cycle(GENERIC, again) for _ in range(4)] == [[]] * 4


def test_a_container_that_ends_ends_its_loss() -> None:
    story = Story()
    assert story.cycles(ONE, ONE, GENERIC, GENERIC)[-1] == [0]
    for _ in range(2):
        story.watch.begin_cycle()
    assert story.changes() == [(0, None)]
    story.watch.begin_cycle()
    assert story.changes() == [(0, "the container has ended")]
    assert story.cycles(GENERIC, GENERIC, GENERIC) == [[]] * 3


def test_a_cycle_that_found_no_container_at_all_forgets_none() -> None:
    story = Story()
    story.cycles(ONE, ONE, GENERIC)
    story.watch.begin_cycle()
    assert story.cycle(GENERIC) == [0]


def test_a_device_that_is_gone_ends_its_loss_and_is_lost_when_it_comes_back() -> None:
    story = Story()
    assert story.cycles(ONE, ONE, GENERIC, GENERIC)[-1] == [0]
    story.gpus = GPUS[1:]
    assert story.cycles(GENERIC) == [[]]
    assert story.changes() == [(0, None), (0, "the device is gone")]
    story.gpus = GPUS
    assert story.cycles(GENERIC, GENERIC) == [[], [0]]


def test_another_gpu_in_its_place_was_never_the_containers() -> None:
    story = Story()
    story.cycles(ONE, ONE)
    story.gpus = (Gpu(0, GpuUuid("GPU-new")), *GPUS[1:])
    assert story.cycles(GENERIC, GENERIC, GENERIC) == [[]] * 3


def test_a_mig_instance_is_lost_with_its_capability_and_its_sisters_are_not() -> None:
    def instance(minor: int) -> Gpu:
        nodes = (DeviceNode(DeviceType.CHAR, 510, minor), DeviceNode(DeviceType.CHAR, 510, minor + 1))
        return Gpu(0, GpuUuid(f"MIG-{minor}"), instance=MigInstance(GpuUuid("GPU-0"), minor, 0, nodes=nodes))

    first, second = instance(3), instance(12)
    story = Story(gpus=(Gpu(0, GpuUuid("GPU-0"), is_partitioned=True), first, second))
    granted = "c *:* m\nc 195:0 rw\nc 510:3 r\nc 510:3 rw\nc 510:4 rw\n"
    story.cycles(granted, granted)
    without_gpu, without_capability = granted.replace("c 195:0 rw\n", ""), granted.replace("c 510:4 rw\n", "")
    for rules in (without_gpu, without_capability):
        story.cycles(rules, rules)
        assert [change.lost.gpu for change in story.watch.take_changes()] == [first]
        story.cycle(granted)
        assert [change.end for change in story.watch.take_changes()] == ["it may open it again"]


def test_evidence_needs_no_past_but_two_cycles() -> None:
    story = Story(1, 3)
    assert story.cycle(GENERIC) == []
    assert story.watch.is_suspecting
    assert story.cycle(GENERIC) == [1, 3]
    assert story.reasons(GENERIC) == [SIGN, SIGN]
    assert not story.watch.is_suspecting


def test_past_and_evidence_are_both_told() -> None:
    story = Story(0)
    story.cycles(ONE, ONE, GENERIC, GENERIC)
    assert story.reasons(GENERIC) == [f"it could open it before; {SIGN}"]


def test_evidence_is_looked_for_once_for_each_policy_of_a_container() -> None:
    story = Story()
    story.cycles(GENERIC, GENERIC, UNKNOWN, GENERIC, GENERIC)
    assert story.shown.asked == [0, 1, 2, 3]
    story.cycles(ONE, ONE, ONE)
    assert story.shown.asked == [0, 1, 2, 3, 1, 2, 3]
    story.cycle(ONE, replace(CONTAINER, id="two"))
    assert story.shown.asked == [0, 1, 2, 3] + [1, 2, 3] * 2


def test_evidence_of_a_policy_that_is_replaced_must_be_found_again() -> None:
    """What a half-written list looks like is no sign of what the whole one means."""
    story = Story(0)
    assert story.cycle(NOTHING) == []
    story.shown.minors = frozenset()
    assert story.cycles(GENERIC, GENERIC, GENERIC) == [[]] * 3
    story.shown.minors = frozenset({0})
    assert story.cycles(NOTHING, GENERIC) == [[], [0]]


def test_what_is_lost_stays_lost_whatever_becomes_of_the_evidence() -> None:
    story = Story(0)
    story.cycles(GENERIC, GENERIC)
    story.shown.minors = frozenset()
    assert story.cycles(NOTHING, NOTHING, GENERIC) == [[0]] * 3
    assert story.reasons(GENERIC) == [SIGN]


def test_a_gpu_that_is_plugged_in_is_looked_at_under_a_known_policy() -> None:
    story = Story(2, gpus=GPUS[:2])
    story.cycles(GENERIC, GENERIC)
    story.gpus = GPUS
    assert story.cycles(GENERIC, GENERIC) == [[], [2]]
    assert story.shown.asked == [0, 1, 2, 3]


def test_containers_do_not_speak_for_each_other() -> None:
    story = Story()
    other = replace(CONTAINER, id="two")
    for mine, its in ((ONE, GENERIC), (ONE, GENERIC), (GENERIC, ONE)):
        story.cycle(mine)
        assert story.look(its, other) == []
    assert story.cycle(GENERIC) == [0]
    assert story.look(ONE, other) == []


def test_changes_are_told_once() -> None:
    story = Story()
    story.cycles(ONE, ONE, GENERIC, GENERIC)
    assert story.changes() == [(0, None)]
    assert story.cycle(GENERIC) == [0]
    assert story.changes() == []
