# SPDX-License-Identifier: Apache-2.0
"""Containers that runc and crun make on cgroup2: what we compute of their programs is what the kernel does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.model import READ_WRITE, gpu_node
from tests.kernel.bpf.lab import effective
from tests.kernel.bpf.runtimes import CASES, created, need_runtime
from tests.kernel.bpf.sysctl import hardening
from tests.support import bpf_programs
from tests.support.bpf import attached, unified_cgroup

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kernel.bpf.comparison import Answers, Tally
    from tests.support.devices_cgroup import KernelOracle

_RUNTIMES = ("runc", "crun")


@pytest.mark.parametrize("harden", [0, 2])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("runtime", _RUNTIMES)
def test_a_containers_program(
    runtime: str, name: str, harden: int, tmp_path: Path, unified_kernel: KernelOracle, tally: Tally
) -> None:
    need_runtime(runtime)
    with hardening(harden, 0), created(runtime, tmp_path, CASES[name].rules) as cgroup:
        answers = unified_kernel.ask(cgroup)
        (code,) = effective(cgroup)
        tally.add(f"of real {runtime} containers", [code], answers)
    assert tally.disagreements == []
    assert _gpus(answers) == CASES[name].gpus


@pytest.mark.usefixtures("shown")
def test_without_rules_runc_denies_and_crun_attaches_nothing(
    tmp_path: Path, unified_kernel: KernelOracle, tally: Tally
) -> None:
    outcomes = {}
    for runtime in _RUNTIMES:
        need_runtime(runtime)
        with created(runtime, tmp_path, ()) as cgroup:
            answers, codes = unified_kernel.ask(cgroup), effective(cgroup)
            tally.add(f"of real {runtime} containers", codes, answers)
        outcomes[runtime] = len(codes), _gpus(answers)
    assert tally.disagreements == []
    assert outcomes == {"runc": (1, set()), "crun": (0, set(range(20)))}


@pytest.mark.usefixtures("shown")
@pytest.mark.parametrize("runtime", _RUNTIMES)
def test_a_container_inside_a_container(
    runtime: str, tmp_path: Path, unified_kernel: KernelOracle, tally: Tally
) -> None:
    need_runtime(runtime)
    with (
        created(runtime, tmp_path, CASES["eight-gpus"].rules) as outer,
        created(runtime, tmp_path, CASES["one-gpu-with-mknod"].rules, above=outer) as inner,
        unified_cgroup(inner) as innermost,
    ):
        found = {}
        for cgroup in (outer, inner, innermost):
            answers, codes = unified_kernel.ask(cgroup), effective(cgroup)
            tally.add(f"of real {runtime} containers", codes, answers)
            found[cgroup] = len(codes), _gpus(answers)
    assert tally.disagreements == []
    assert list(found.values()) == [(1, set(range(8))), (2, {7}), (2, {7})]


@pytest.mark.usefixtures("shown")
@pytest.mark.parametrize("runtime", _RUNTIMES)
def test_a_second_program_takes_a_containers_gpus_away(
    runtime: str, tmp_path: Path, unified_kernel: KernelOracle, tally: Tally
) -> None:
    """As a systemd that reloads its units does, or a hook that adds devices one by one."""
    need_runtime(runtime)
    with created(runtime, tmp_path, CASES["eight-gpus"].rules) as cgroup, unified_kernel.inside(cgroup) as ask:
        seen = [ask()]
        (existing,) = effective(cgroup)
        with attached(cgroup, bpf_programs.systemd([])):
            seen.append(ask())
            tally.add(f"of real {runtime} containers", effective(cgroup), seen[-1])
        seen.append(ask())
    assert tally.disagreements == []
    assert [_gpus(answers) for answers in seen] == [set(range(8)), set(), set(range(8))]
    with unified_cgroup() as cgroup:
        added = bpf_programs.nvcgo([bpf_programs.parse_rule("allow c 195:12 rw")], existing)
        with attached(cgroup, added):
            answers = unified_kernel.ask(cgroup)
            tally.add("in the shape of nvcgo's", effective(cgroup), answers)
    assert tally.disagreements == []
    assert _gpus(answers) == {*range(8), 12}


def _gpus(answers: Answers) -> set[int]:
    return {minor for minor in range(20) if answers[gpu_node(minor), READ_WRITE].allowed}
