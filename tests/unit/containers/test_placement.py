# SPDX-License-Identifier: Apache-2.0
"""Which cgroup speaks for a container, on hosts made of files."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.containers.discovery.placement import Placement, parse_pids, parse_unified_path, read_first_process
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import CgroupLayout, CgroupPath, Container, Runtime, SlurmStep

if TYPE_CHECKING:
    from pathlib import Path

PATH = CgroupPath("/docker/abc")
CONTAINER = Container(PATH, Runtime.DOCKER, "abc")


def cgroup(folder: Path, *pids: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    return folder


def process(root: Path, pid: int, text: str) -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup").write_text(text)


def place(placement: Placement, *, is_leaf: bool = True, inode: int = 1) -> tuple[str | None, str | None]:
    [container] = placement.place([(CONTAINER, (PATH, is_leaf, inode))])
    return container.devices, container.unified


def test_pids_of_other_namespaces_are_no_pids() -> None:
    assert parse_pids("0\n12\n0\n7\n") == [12, 7]
    assert parse_pids("") == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("5:devices:/docker/abc\n0::/system.slice/x.scope\n", "/system.slice/x.scope"),
        ("0::/\n", "/"),
        ("5:devices:/docker/abc\n", None),
        ("0::/../../b\n", "/../../b"),
        ("0::/a\rb\n", "/a\rb"),
        ("", None),
    ],
)
def test_the_unified_path_of_a_process(text: str, path: str | None) -> None:
    assert parse_unified_path(text) == path


def test_the_first_process_is_the_lowest_anywhere_below(tmp_path: Path) -> None:
    top = cgroup(tmp_path / "top", 30)
    cgroup(top / "a", 20, 21)
    deep = cgroup(top / "b/c", 5)
    assert read_first_process(str(top)) == (5, str(deep))


def test_an_empty_container_has_no_first_process(tmp_path: Path) -> None:
    assert read_first_process(str(cgroup(tmp_path / "top"))) is None
    assert read_first_process(str(tmp_path / "gone")) is None


def test_with_one_hierarchy_a_leaf_speaks_for_itself(tmp_path: Path) -> None:
    v1 = Placement(HostPaths(tmp_path), CgroupLayout(devices=tmp_path / "devices"))
    v2 = Placement(HostPaths(tmp_path), CgroupLayout(unified=tmp_path / "unified"))
    assert place(v1) == (f"{tmp_path}/devices/docker/abc", None)
    assert place(v2) == (None, f"{tmp_path}/unified/docker/abc")


@pytest.mark.parametrize("hierarchy", ["devices", "unified"])
def test_a_container_with_cgroups_below_speaks_by_its_first_process(tmp_path: Path, hierarchy: str) -> None:
    top = cgroup(tmp_path / hierarchy / "docker/abc")
    inner = cgroup(top / "container", 100)
    cgroup(top / "other", 200)
    placement = Placement(HostPaths(tmp_path), CgroupLayout(**{hierarchy: tmp_path / hierarchy}))
    assert str(inner) in place(placement, is_leaf=False)
    cgroup(inner)  # its processes have moved on
    assert str(top / "other") in place(placement, is_leaf=False)
    cgroup(top / "other")
    assert str(top) in place(placement, is_leaf=False)


MOUNTINFO = "30 22 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"


@pytest.fixture
def hybrid(tmp_path: Path) -> Placement:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text(MOUNTINFO)
    layout = CgroupLayout(devices=tmp_path / "devices", unified=tmp_path / "unified")
    return Placement(HostPaths(tmp_path), layout)


def test_on_a_hybrid_host_the_two_paths_may_differ(tmp_path: Path, hybrid: Placement) -> None:
    folder = cgroup(tmp_path / "devices/docker/abc", 100)
    process(tmp_path, 100, "5:devices:/docker/abc\n0::/system.slice/containerd.service\n")
    assert place(hybrid) == (str(folder), f"{tmp_path}/unified/system.slice/containerd.service")


def test_on_a_hybrid_host_the_root_of_cgroup2_speaks_for_who_is_in_it(tmp_path: Path, hybrid: Placement) -> None:
    cgroup(tmp_path / "devices/docker/abc", 100)
    process(tmp_path, 100, "0::/\n")
    assert place(hybrid)[1] == f"{tmp_path}/unified"


def test_an_empty_container_of_a_hybrid_host_is_where_the_same_path_is(tmp_path: Path, hybrid: Placement) -> None:
    cgroup(tmp_path / "devices/docker/abc")
    assert place(hybrid)[1] is None
    beside = cgroup(tmp_path / "unified/docker/abc")
    assert place(hybrid)[1] == str(beside)


@pytest.mark.parametrize("text", ["0::/../../elsewhere\n", "5:devices:/docker/abc\n", None])
def test_a_cgroup2_that_cannot_be_told_is_hidden_and_not_absent(
    tmp_path: Path, hybrid: Placement, text: str | None
) -> None:
    cgroup(tmp_path / "devices/docker/abc", 100)
    if text is not None:
        process(tmp_path, 100, text)
    [container] = hybrid.place([(CONTAINER, (PATH, True, 1))])
    assert (container.unified, container.is_hidden) == (None, True)


def test_processes_of_other_pid_namespaces_hide_where_they_are(tmp_path: Path, hybrid: Placement) -> None:
    cgroup(tmp_path / "devices/docker/abc", 0)
    cgroup(tmp_path / "unified/docker/abc")
    [container] = hybrid.place([(CONTAINER, (PATH, True, 1))])
    assert (container.unified, container.is_hidden) == (None, True)


def test_cgroups_below_whose_processes_are_of_another_pid_namespace_hide_who_speaks(tmp_path: Path) -> None:
    top = cgroup(tmp_path / "unified/docker/abc")
    cgroup(top / "container", 0, 0)
    placement = Placement(HostPaths(tmp_path), CgroupLayout(unified=tmp_path / "unified"))
    [container] = placement.place([(CONTAINER, (PATH, False, 1))])
    assert (container.unified, container.is_hidden) == (None, True)


def test_an_empty_container_that_is_filled_later_is_looked_for_then(tmp_path: Path, hybrid: Placement) -> None:
    cgroup(tmp_path / "devices/docker/abc")
    cgroup(tmp_path / "unified/docker/abc")
    assert [place(hybrid)[1] for _ in range(3)] == [f"{tmp_path}/unified/docker/abc"] * 3
    cgroup(tmp_path / "devices/docker/abc", 100)
    process(tmp_path, 100, "0::/elsewhere\n")
    assert place(hybrid)[1] == f"{tmp_path}/unified/elsewhere"


def test_a_container_whose_folder_has_gone_is_found_where_its_process_is(tmp_path: Path, hybrid: Placement) -> None:
    cgroup(tmp_path / "devices/docker/abc", 100)
    first, second = cgroup(tmp_path / "unified/first"), cgroup(tmp_path / "unified/second")
    process(tmp_path, 100, "0::/first\n")
    assert [place(hybrid)[1] for _ in range(3)] == [str(first)] * 3
    process(tmp_path, 100, "0::/second\n")
    assert place(hybrid)[1] == str(first)  # nobody asks while the folder is there
    shutil.rmtree(first)
    [container] = hybrid.place([(CONTAINER, (PATH, True, 1))])
    moved = hybrid.relocate(container)
    assert moved is not None
    assert moved.unified == str(second)
    assert place(hybrid)[1] == str(second)
    shutil.rmtree(tmp_path / "devices/docker/abc")
    assert hybrid.relocate(container) is None


def test_a_container_that_makes_cgroups_of_its_own_is_looked_into_at_once(tmp_path: Path) -> None:
    top = cgroup(tmp_path / "unified/docker/abc", 1)
    placement = Placement(HostPaths(tmp_path), CgroupLayout(unified=tmp_path / "unified"))
    assert [place(placement)[1] for _ in range(3)] == [str(top)] * 3
    cgroup(top)
    inner = cgroup(top / "init.scope", 1)
    assert place(placement, is_leaf=False)[1] == str(inner)


def test_what_one_cycle_saw_while_a_container_was_set_up_does_not_last(tmp_path: Path, hybrid: Placement) -> None:
    cgroup(tmp_path / "devices/docker/abc", 100)
    process(tmp_path, 100, "0::/\n")
    assert place(hybrid)[1] == f"{tmp_path}/unified"
    process(tmp_path, 100, "0::/docker/abc\n")
    assert [place(hybrid)[1] for _ in range(3)] == [f"{tmp_path}/unified/docker/abc"] * 3


def test_a_folder_that_was_made_again_is_looked_into_anew(tmp_path: Path, hybrid: Placement) -> None:
    cgroup(tmp_path / "devices/docker/abc", 100)
    cgroup(tmp_path / "unified/first")
    process(tmp_path, 100, "0::/first\n")
    assert [place(hybrid)[1] for _ in range(3)] == [f"{tmp_path}/unified/first"] * 3
    process(tmp_path, 100, "0::/second\n")
    assert place(hybrid, inode=2)[1] == f"{tmp_path}/unified/second"
    [container] = hybrid.place([(CONTAINER, (PATH, True, 3))])
    assert container.inode == 3


@pytest.mark.parametrize("hierarchy", ["devices", "unified"])
def test_what_is_in_a_container_below_is_not_the_outer_ones(tmp_path: Path, hierarchy: str) -> None:
    unit = cgroup(tmp_path / hierarchy / "web.service")
    runtime = cgroup(unit / "runtime", 200)
    payload = cgroup(unit / "libpod-payload-abc", 100)
    outer = Container(CgroupPath("/web.service"), Runtime.SYSTEMD, name="web.service")
    inner = Container(CgroupPath("/web.service/libpod-payload-abc"), Runtime.PODMAN, "abc")
    placement = Placement(HostPaths(tmp_path), CgroupLayout(**{hierarchy: tmp_path / hierarchy}))
    placed = placement.place([(outer, (outer.cgroup, False, 1)), (inner, (inner.cgroup, True, 2))])
    assert [getattr(container, hierarchy) for container in placed] == [str(runtime), str(payload)]


STEP = CgroupPath("/system.slice/slurmstepd.scope/job_7/step_0")


def test_a_slurm_step_speaks_for_all_its_tasks(tmp_path: Path) -> None:
    """Slurm's daemon has the lowest pid and none of the step's rules; a task may have fewer GPUs than the step."""
    step = cgroup(tmp_path / "tree" / STEP.lstrip("/"))
    cgroup(step / "slurm", 100)
    container = Container(STEP, Runtime.SLURM, name="slurm-7.0", slurm=SlurmStep("0", "7"))
    v1 = Placement(HostPaths(tmp_path), CgroupLayout(devices=tmp_path / "tree"))
    v2 = Placement(HostPaths(tmp_path), CgroupLayout(unified=tmp_path / "tree"))
    [early] = v2.place([(container, (STEP, False, 1))])
    assert early.unified == str(step)
    cgroup(step / "user/task_0", 101)
    cgroup(step / "user/task_1", 102)
    [placed] = v2.place([(container, (STEP, False, 1))])
    assert placed.unified == str(step / "user")
    [placed] = v1.place([(container, (STEP, False, 1))])
    assert placed.devices == str(step)


def test_a_path_above_the_readers_namespace_is_the_only_cgroup_that_ends_so(tmp_path: Path) -> None:
    """Where the reader is itself cannot be told here: this process is in none of these cgroups."""
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text(MOUNTINFO.replace(" / ", " /../.. "))
    placement = Placement(HostPaths(tmp_path), CgroupLayout(devices=tmp_path / "devices", unified=tmp_path / "unified"))
    cgroup(tmp_path / "devices/docker/abc", 100)
    beside = cgroup(tmp_path / "unified/pods/one/abc")
    process(tmp_path, 100, "0::/../one/abc\n")
    assert place(placement)[1] == str(beside)
    cgroup(tmp_path / "unified/other/one/abc")
    process(tmp_path, 100, "0::/../one/abc\n")
    [container] = placement.place([(CONTAINER, (PATH, True, 2))])
    assert (container.unified, container.is_hidden) == (None, True)
