# SPDX-License-Identifier: Apache-2.0
"""A Slurm step's job and owner, where its path does not tell them: from its daemon and its tasks."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.containers.naming.naming import Naming
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import CgroupPath, Container, Runtime, SlurmStep, Stage
from tests.support.name_host import NameHost
from tests.support.need import need

if TYPE_CHECKING:
    from pathlib import Path

SLUID = "s0123456789ABC"
OWNER = 1234


@pytest.fixture
def host(tmp_path: Path) -> NameHost:
    need(os.geteuid() == 0, "only root gives files to others")
    return NameHost(tmp_path)


@pytest.fixture
def naming(tmp_path: Path) -> Naming:
    return Naming(HostPaths(tmp_path))


def _last(naming: Naming, container: Container) -> Container:
    return [naming.name([container]) for _ in range(3)][-1][0]


@pytest.mark.parametrize("step", ["0", "batch", "interactive", "0+1"])
def test_a_path_with_the_sluid_alone(host: NameHost, naming: Naming, step: str) -> None:
    container = host.step(SLUID, step, f"slurmstepd: [77.{step}]", OWNER)
    [found] = naming.name([container])
    assert (found.name, found.slurm) == (f"slurm-77.{step}", SlurmStep(step, "77", OWNER))
    assert (naming.problems, naming.is_up) == ((), True)
    assert naming.name([container])[0] is found


def test_a_path_with_the_job_lacks_its_owner_alone(host: NameHost, naming: Naming) -> None:
    [found] = naming.name([host.step("job_77", "0", "slurmstepd", OWNER)])
    assert (found.name, found.slurm) == ("slurm-77.0", SlurmStep("0", "77", OWNER))
    assert naming.is_up is None


def test_where_tasks_are_not_confined_they_are_above(host: NameHost, naming: Naming) -> None:
    container = host.step("job_77", "0", "slurmstepd", OWNER)
    (host.root / f"sys/fs/cgroup{container.cgroup}/user/task_0/cgroup.procs").write_text("")
    (host.root / f"sys/fs/cgroup{container.cgroup}/user/cgroup.procs").write_text("201\n")
    [found] = naming.name([container])
    assert found.slurm == SlurmStep("0", "77", OWNER)


def test_a_path_of_v1_tells_all(naming: Naming) -> None:
    cgroup = CgroupPath("/slurm/uid_1000/job_77/step_0")
    step = Container(cgroup, Runtime.SLURM, name="slurm-77.0", slurm=SlurmStep("0", "77", 1000))
    assert naming.name([step])[0] is step


@pytest.mark.parametrize("title", ["slurmstepd", "slurmstepd: [77.1]", "slurmstepd: [77]", "evil: [77.0]", ""])
def test_a_job_that_no_daemon_tells_is_not_invented(host: NameHost, naming: Naming, title: str) -> None:
    container = host.step(SLUID, "0", title, OWNER)
    [first] = naming.name([container])
    assert not first.is_named
    found = _last(naming, container)
    assert (found.name, found.slurm, found.is_named) == (f"slurm-{SLUID}.0", SlurmStep("0", None, OWNER), True)
    [problem] = naming.problems
    assert (problem.stage, problem.subject, naming.is_up) == (Stage.NAMES, container.cgroup, False)


@pytest.mark.parametrize("owner", [0, None])
def test_roots_processes_are_nobodys(host: NameHost, naming: Naming, owner: int | None) -> None:
    """The second process has ended, or is still the one that sets the step up."""
    container = host.step("job_77", "0", "slurmstepd", owner)
    assert not naming.name([container])[0].is_named
    found = _last(naming, container)
    assert (found.slurm, found.is_named) == (SlurmStep("0", "77", None), True)
    assert (naming.problems, naming.is_up) == ((), None)


def test_in_a_hybrid_host_the_folder_that_shows_the_step_is_asked(host: NameHost, naming: Naming) -> None:
    container = host.step(SLUID, "0", "slurmstepd: [77.0]", OWNER)
    elsewhere = replace(container, unified="/sys/fs/cgroup/unified/other", devices=container.unified)
    assert naming.name([elsewhere])[0].name == "slurm-77.0"
    nowhere = replace(container, unified=None, inode=4)
    assert _last(naming, nowhere).name == f"slurm-{SLUID}.0"
