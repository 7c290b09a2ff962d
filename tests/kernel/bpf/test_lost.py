# SPDX-License-Identifier: Apache-2.0
"""Containers of real runc and crun on cgroup2 that a second program denies their GPU: whose is it, and where."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.containers.identity import parse_container
from otel_gpu_cgroup.model import READ_WRITE, CgroupPath, Container, gpu_node
from tests.kernel.bpf.runtimes import CASES, created, need_runtime
from tests.kernel.bpf.sysctl import hardening
from tests.support import bpf_programs
from tests.support.bpf import attached, unified_cgroup, unified_hierarchy
from tests.support.bpf_programs import parse_rule
from tests.support.losses import Watcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.devices_cgroup import KernelOracle

MINORS: Final = (0, 1)
BEFORE: Final = "it could open it before"
PROGRAMS: Final = "of the 2 programs on its cgroup systemd's denies it"
_DEFAULTS: Final = [parse_rule(rule) for rule in ("allow c 1:3 rwm", "allow c 136:* rwm", "allow c *:* m")]
RELOADED: Final = bpf_programs.systemd(_DEFAULTS)
"""What systemd knows of: nothing of NVIDIA's."""
WITH_THE_GPU: Final = bpf_programs.systemd([*_DEFAULTS, parse_rule("allow c 195:0 rw")])
OF_SLURM: Final = bpf_programs.slurm([parse_rule("deny c 195:0 rwm")])
OF_RUNC: Final = bpf_programs.runc(_DEFAULTS)

pytestmark = pytest.mark.parametrize("runtime", ["runc", "crun"])


@contextmanager
def _container(runtime: str, tmp_path: Path, above: Path | None = None, case: str = "one-gpu") -> Iterator[Path]:
    need_runtime(runtime)
    with created(runtime, tmp_path, CASES[case].rules, above=above, name=secrets.token_hex(32)) as cgroup:
        yield cgroup


def _found(cgroup: Path, leaf: Path | None = None) -> Container:
    """As the product finds it on a host of cgroup2 alone, its first process in a cgroup below its own or not."""
    top = unified_hierarchy()
    assert top is not None
    found = parse_container(CgroupPath(f"/{cgroup.relative_to(top)}"))
    assert found is not None
    return replace(found, unified=os.fspath(leaf or cgroup), inode=cgroup.stat().st_ino)


def _may_open(kernel: KernelOracle, cgroup: Path) -> bool:
    return kernel.ask(cgroup)[gpu_node(0), READ_WRITE].allowed


@pytest.mark.parametrize("harden", [0, 2], ids=["plain", "blinded"])
@pytest.mark.parametrize("code", [RELOADED, bpf_programs.systemd([])], ids=["with rules", "strict and empty"])
def test_systemds_program_beside_the_runtimes_takes_the_gpu_away(
    runtime: str, code: bytes, harden: int, tmp_path: Path, unified_kernel: KernelOracle
) -> None:
    watcher, later = Watcher(MINORS), Watcher(MINORS)
    with hardening(harden, 0), _container(runtime, tmp_path) as cgroup:
        container = _found(cgroup)
        assert watcher.cycles(3, container) == [{}] * 3
        assert _may_open(unified_kernel, cgroup)
        with attached(cgroup, code):
            assert not _may_open(unified_kernel, cgroup)
            reason = f"{BEFORE}; {PROGRAMS}"
            assert watcher.cycles(3, container) == [{}, {0: reason}, {0: reason}]
            assert later.cycles(2, container) == [{}, {0: PROGRAMS}]  # an agent that began after the reload
        assert _may_open(unified_kernel, cgroup)
        assert watcher.cycles(2, container) == later.cycles(2, container) == [{}, {}]


@pytest.mark.usefixtures("shown")
def test_a_program_that_bears_systemds_name_is_its_own(runtime: str, tmp_path: Path) -> None:
    with _container(runtime, tmp_path) as cgroup, attached(cgroup, OF_RUNC, name="sd_devices"):
        assert Watcher(MINORS).cycles(2, _found(cgroup)) == [{}, {0: PROGRAMS}]


@pytest.mark.usefixtures("shown")
def test_the_programs_are_on_the_containers_cgroup_and_its_processes_below(runtime: str, tmp_path: Path) -> None:
    """As crun's `container/` below a scope, or a systemd inside."""
    with _container(runtime, tmp_path) as cgroup, attached(cgroup, RELOADED), unified_cgroup(cgroup) as leaf:
        assert Watcher(MINORS).cycles(2, _found(cgroup, leaf)) == [{}, {0: PROGRAMS}]


@pytest.mark.usefixtures("shown")
@pytest.mark.parametrize("code", [RELOADED, bpf_programs.systemd([])], ids=["with rules", "strict and empty"])
def test_a_denial_from_above_is_a_true_restriction(
    runtime: str, code: bytes, tmp_path: Path, unified_kernel: KernelOracle
) -> None:
    with unified_cgroup() as above, _container(runtime, tmp_path, above) as cgroup, attached(above, code):
        assert not _may_open(unified_kernel, cgroup)
        assert Watcher(MINORS).cycles(3, _found(cgroup)) == [{}] * 3
        with attached(cgroup, RELOADED):  # which denies no more than the one above
            assert Watcher(MINORS).cycles(3, _found(cgroup)) == [{}] * 3


@pytest.mark.usefixtures("shown")
@pytest.mark.parametrize("code", [OF_SLURM, OF_RUNC], ids=["Slurm's", "a runtime's"])
def test_a_second_program_that_is_not_systemds_is_a_restriction(
    runtime: str, code: bytes, tmp_path: Path, unified_kernel: KernelOracle
) -> None:
    with _container(runtime, tmp_path) as cgroup, attached(cgroup, code):
        assert not _may_open(unified_kernel, cgroup)
        assert Watcher(MINORS).cycles(3, _found(cgroup)) == [{}] * 3


@pytest.mark.usefixtures("shown")
@pytest.mark.parametrize("case", ["no-gpu", "privileged", "mknod-alone"])
def test_who_was_granted_no_gpu_has_lost_none_by_a_reload(runtime: str, case: str, tmp_path: Path) -> None:
    watcher = Watcher(MINORS)
    with _container(runtime, tmp_path, case=case) as cgroup:
        container = _found(cgroup)
        assert watcher.cycles(3, container) == [{}] * 3
        with attached(cgroup, RELOADED):
            assert watcher.cycles(4, container) == [{}] * 4


@pytest.mark.usefixtures("shown")
def test_a_systemd_that_knows_of_the_gpu_takes_nothing(
    runtime: str, tmp_path: Path, unified_kernel: KernelOracle
) -> None:
    watcher = Watcher(MINORS)
    with _container(runtime, tmp_path) as cgroup:
        container = _found(cgroup)
        watcher.cycles(3, container)
        with attached(cgroup, WITH_THE_GPU):
            assert _may_open(unified_kernel, cgroup)
            assert watcher.cycles(3, container) == [{}] * 3
