# SPDX-License-Identifier: Apache-2.0
"""Programs in the shapes of container runtimes: the rules, the kernel and we say the same."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.model import READ_WRITE, Permission, gpu_node
from tests.kernel.bpf.sysctl import hardening
from tests.support import bpf_programs
from tests.support.bpf_programs import first_match, first_named, parse_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_gpu_cgroup.model import DeviceNode
    from tests.kernel.bpf.comparison import Tally
    from tests.kernel.bpf.lab import Lab
    from tests.support.bpf_programs import Rule

    Says = Callable[[DeviceNode, Permission], bool]

_LISTS: Final = 12
"""Random lists in each shape and hardening."""


@pytest.mark.parametrize("harden", [0, 1, 2])
@pytest.mark.parametrize("shape", ["runc", "crun", "systemd", "nvcgo", "lxc", "slurm"])
def test_random_lists(shape: str, harden: int, lab: Lab, tally: Tally) -> None:
    chance = random.Random(f"{tally.seed} {shape} {harden}")
    with hardening(harden, 0):
        for _ in range(_LISTS):
            rules = [_rule(chance) for _ in range(chance.randint(0, 12))]
            code, says = _assembled(shape, rules, chance)
            case = lab.attempt(code)
            tally.add(f"in the shape of {shape}'s", [case.code], case.answers)
            told = {request: says(*request) for request in case.answers}
            assert {request: answer.allowed for request, answer in case.answers.items()} == told
    assert tally.disagreements == []


@pytest.mark.usefixtures("shown")
def test_a_deny_list_of_writes_lets_reading_and_writing_at_once_pass(lab: Lab, tally: Tally) -> None:
    """As it happens on cgroup v2 and not on v1: the program is asked once, for both."""
    case = lab.attempt(bpf_programs.runc([parse_rule("deny c 195:0 w")], default=True))
    tally.add("in the shape of runc's", [case.code], case.answers)
    asked = (Permission.READ, Permission.WRITE, READ_WRITE)
    assert [case.answers[gpu_node(0), one].allowed for one in asked] == [True, False, True]
    assert tally.disagreements == []


def _assembled(shape: str, rules: Sequence[Rule], chance: random.Random) -> tuple[bytes, Says]:
    """A program of this shape, and what its rules say."""
    default = chance.random() < 0.3
    if shape == "systemd":
        rules = [_allowing(rule) for rule in rules]
        return bpf_programs.systemd(rules), lambda *request: first_match(rules, *request, default=False)
    if shape == "nvcgo":
        added = [parse_rule(f"allow c 195:{minor} rw") for minor in chance.sample(range(20), 3)]
        existing = bpf_programs.runc(rules)
        return bpf_programs.nvcgo(added, existing), lambda *request: first_match(
            [*added, *rules], *request, default=False
        )
    if shape == "slurm":
        return bpf_programs.slurm(rules), lambda *request: first_named(rules, *request, default=True)
    code: bytes = getattr(bpf_programs, shape)(rules, default=default)
    return code, lambda *request: first_match(rules, *request, default=default)


def _rule(chance: random.Random) -> Rule:
    major = chance.choice(("195", "195", "195", "1", "7", "507", "*"))
    minor = "*" if chance.random() < 0.15 else str(chance.choice((*range(20), 255)))
    letters = "".join(chance.sample("rwm", chance.randint(1, 3)))
    verb, kind = chance.choice(("allow", "allow", "deny")), chance.choice("cccccba")
    return parse_rule(f"{verb} {kind} {major}:{minor} {letters}")


def _allowing(rule: Rule) -> Rule:
    """systemd has no others, and gives each a type."""
    return replace(rule, allow=True, kind=rule.kind or "c")
