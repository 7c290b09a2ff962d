# SPDX-License-Identifier: Apache-2.0
"""Several programs on a cgroup and along its path: the AND of the effective ones is what the kernel does."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.model import READ_WRITE, gpu_node
from tests.kernel.bpf.generator import Generator
from tests.kernel.bpf.lab import effective
from tests.support import bpf_programs
from tests.support.bpf import MULTI, OVERRIDE, Refused, attached, unified_cgroup
from tests.support.bpf_programs import parse_rule

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.kernel.bpf.comparison import Tally
    from tests.support.devices_cgroup import KernelOracle

pytestmark = pytest.mark.usefixtures("shown")

_EXCLUSIVE: Final = 0
_KIND: Final = "of several on a path"


def _denying(minors: Iterable[int]) -> bytes:
    """As Slurm's: everything but these GPUs."""
    return bpf_programs.slurm([parse_rule(f"deny c 195:{minor} rwm") for minor in minors])


def _allowing(minors: Iterable[int]) -> bytes:
    """As runc's: nothing but these GPUs."""
    return bpf_programs.runc([parse_rule(f"allow c 195:{minor} rwm") for minor in minors])


def test_all_programs_of_a_cgroup_must_allow(unified_kernel: KernelOracle, tally: Tally) -> None:
    with unified_cgroup() as cgroup, attached(cgroup, _allowing(range(8))), attached(cgroup, _allowing({2, 3, 9})):
        assert _gpus(cgroup, unified_kernel, tally) == {2, 3}


def test_a_cgroup_without_a_program_has_those_above(unified_kernel: KernelOracle, tally: Tally) -> None:
    """As crun's and podman's inner cgroup `container`."""
    with unified_cgroup() as scope, unified_cgroup(scope) as container, attached(scope, _allowing({5})):
        assert _gpus(container, unified_kernel, tally) == {5}


def test_programs_along_a_path_must_all_allow(unified_kernel: KernelOracle, tally: Tally) -> None:
    with (
        unified_cgroup() as outer,
        attached(outer, _allowing(range(4))),
        unified_cgroup(outer) as middle,
        unified_cgroup(middle) as inner,
        attached(inner, _denying({0, 9})),
        attached(middle, _denying({1})),
    ):
        assert _gpus(inner, unified_kernel, tally) == {2, 3}
        assert _gpus(middle, unified_kernel, tally) == {0, 2, 3}
        assert _gpus(outer, unified_kernel, tally) == {0, 1, 2, 3}


def test_a_program_that_may_be_overridden_is(unified_kernel: KernelOracle, tally: Tally) -> None:
    """As Slurm attaches: the task's program replaces the step's and the job's."""
    with unified_cgroup() as job, unified_cgroup(job) as step, unified_cgroup(step) as task:
        with (
            attached(job, _denying({0, 1}), OVERRIDE),
            attached(step, _denying({2}), OVERRIDE),
            attached(task, _denying({3}), _EXCLUSIVE),
        ):
            assert _gpus(task, unified_kernel, tally) == set(range(20)) - {3}
            assert _gpus(step, unified_kernel, tally) == set(range(20)) - {2}
            assert _gpus(job, unified_kernel, tally) == set(range(20)) - {0, 1}
        with attached(job, _denying({0, 1}), OVERRIDE):
            assert _gpus(task, unified_kernel, tally) == set(range(20)) - {0, 1}


def test_one_that_overrides_does_so_for_all_below(unified_kernel: KernelOracle, tally: Tally) -> None:
    with (
        unified_cgroup() as job,
        unified_cgroup(job) as step,
        unified_cgroup(step) as task,
        attached(job, _denying({0}), OVERRIDE),
        attached(step, _denying({1}), MULTI),
        attached(task, _denying({2}), MULTI),
    ):
        assert _gpus(task, unified_kernel, tally) == set(range(20)) - {1, 2}
        assert _gpus(step, unified_kernel, tally) == set(range(20)) - {1}


def test_nothing_can_be_attached_below_an_exclusive_program(unified_kernel: KernelOracle, tally: Tally) -> None:
    with unified_cgroup() as outer, unified_cgroup(outer) as inner, attached(outer, _denying({0}), _EXCLUSIVE):
        with pytest.raises(PermissionError), attached(inner, _denying({1})):
            pass
        assert _gpus(inner, unified_kernel, tally) == set(range(20)) - {0}


def test_programs_come_and_go_while_a_process_runs(unified_kernel: KernelOracle, tally: Tally) -> None:
    """A second one, as systemd attaches when it reloads its units, takes the GPUs away; without it they are back."""
    with unified_cgroup() as cgroup, unified_kernel.inside(cgroup) as ask:
        seen = []
        with attached(cgroup, _allowing({0, 1})):
            for added in (None, bpf_programs.systemd([]), None, _denying({1}), None):
                with ExitStack() as stack:
                    if added is not None:
                        stack.enter_context(attached(cgroup, added))
                    answers = ask()
                    tally.add(_KIND, effective(cgroup), answers)
                seen.append({minor for minor in range(20) if answers[gpu_node(minor), READ_WRITE].allowed})
    assert seen == [{0, 1}, set(), {0, 1}, {0}, {0, 1}]
    assert tally.disagreements == []


def test_more_than_64_along_a_path(unified_kernel: KernelOracle, tally: Tally) -> None:
    with ExitStack() as stack:
        outer = stack.enter_context(unified_cgroup())
        inner = stack.enter_context(unified_cgroup(outer))
        for number in range(64):
            stack.enter_context(attached(outer, _denying({number % 10})))
            stack.enter_context(attached(inner, _denying({number % 10 + 5})))
        assert len(effective(inner)) == 128
        assert _gpus(inner, unified_kernel, tally) == set(range(15, 20))


def test_random_programs_on_random_paths(unified_kernel: KernelOracle, tally: Tally) -> None:
    chance = random.Random(tally.seed + 1)
    generator = Generator(chance)
    for _ in range(20):
        with ExitStack() as stack:
            path = [stack.enter_context(unified_cgroup())]
            while len(path) < chance.randint(2, 5):
                path.append(stack.enter_context(unified_cgroup(path[-1])))
            for cgroup in path:
                _attach_some(stack, cgroup, generator, chance)
            for cgroup in (path[-1], path[-2]):
                tally.add(_KIND, effective(cgroup), unified_kernel.ask(cgroup))
    assert tally.disagreements == []


def _attach_some(stack: ExitStack, cgroup: Path, generator: Generator, chance: random.Random) -> None:
    """Up to two programs, or one that may be overridden; what the kernel does not take is left out."""
    flags = chance.choice((MULTI, MULTI, OVERRIDE))
    for _ in range(chance.randint(0, 1 if flags == OVERRIDE else 2)):
        try:
            stack.enter_context(attached(cgroup, generator.program(), flags))
        except (Refused, PermissionError):
            return


def _gpus(cgroup: Path, kernel: KernelOracle, tally: Tally) -> set[int]:
    """The GPUs that the kernel lets a process there open, after it was compared with us on all nodes."""
    answers = kernel.ask(cgroup)
    tally.add(_KIND, effective(cgroup), answers)
    assert tally.disagreements == []
    return {minor for minor in range(20) if answers[gpu_node(minor), READ_WRITE].allowed}
