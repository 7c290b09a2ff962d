# SPDX-License-Identifier: Apache-2.0
"""Whose real processes are, in real containers and cgroups, while they move, end and are replaced."""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.containers.discovery.containers import ContainerDiscovery
from otel_gpu_cgroup.containers.processes.table import MOST_CYCLES, ProcessTable
from otel_gpu_cgroup.host import HostPaths
from tests.support.attribution import container, end, inventory, keys, sleeper
from tests.support.bpf import unified_cgroup, unified_hierarchy
from tests.support.devices_cgroup import DevicesCgroup, devices_cgroup, need_devices_cgroup
from tests.support.eventually import eventually
from tests.support.need import need
from tests.support.runc import RuncSpec, docker_cgroup, need_runc, runc_container

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.model import Container

TICK: Final = 1 / os.sysconf("SC_CLK_TCK")


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Cgroups:
    """Two cgroups in one hierarchy, as containers, and processes in them."""

    def __init__(self, folders: list[Path], *, is_v1: bool) -> None:
        self.folders = dict(zip(("one", "two"), folders, strict=True))
        self.is_v1 = is_v1
        self.sleepers: list[int] = []

    def containers(self, *keys: str) -> list[Container]:
        return [container(key, f"/{self.folders[key].name}", is_v1=self.is_v1) for key in keys or self.folders]

    def start(self, key: str) -> int:
        self.sleepers.append(sleeper(str(self.folders[key])))
        return self.sleepers[-1]

    def move(self, pid: int, key: str) -> None:
        (self.folders[key] / "cgroup.procs").write_text(str(pid))

    def end(self, pid: int) -> None:
        self.sleepers.remove(pid)
        end(pid)


@contextmanager
def _hierarchy(stack: ExitStack, kind: str, tmp_path: Path) -> Iterator[Cgroups]:
    if kind == "v1":
        need_devices_cgroup(tmp_path)
        folders = [stack.enter_context(devices_cgroup()).path for _ in range(2)]
    else:
        top = unified_hierarchy()
        need(os.geteuid() == 0 and top is not None and os.access(top, os.W_OK), "cgroup2 cannot be written here")
        folders = [stack.enter_context(unified_cgroup()) for _ in range(2)]
    cgroups = Cgroups(folders, is_v1=kind == "v1")
    try:
        yield cgroups
    finally:
        for pid in cgroups.sleepers:
            end(pid)


@pytest.fixture(params=["v1", "v2"])
def cgroups(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cgroups]:
    with ExitStack() as stack, _hierarchy(stack, request.param, tmp_path) as made:
        yield made


@pytest.fixture
def v1(tmp_path: Path) -> Iterator[Cgroups]:
    with ExitStack() as stack, _hierarchy(stack, "v1", tmp_path) as made:
        yield made


def test_processes_of_containers_that_runc_made(tmp_path: Path) -> None:
    need_runc()
    with (
        runc_container(tmp_path, RuncSpec(docker_cgroup())) as outer,
        runc_container(tmp_path, RuncSpec(f"{outer.cgroup}{docker_cgroup()}")) as inner,
        runc_container(tmp_path, RuncSpec(docker_cgroup(), namespaces=("mount",))) as other,
        devices_cgroup(DevicesCgroup(other.devices_cgroup)) as below,
    ):
        deep = sleeper(str(below.path))
        try:
            found = ContainerDiscovery(HostPaths()).discover()
            ownership = ProcessTable(HostPaths()).attribute(
                inventory([outer.pid, inner.pid, other.pid, deep, os.getpid()]), found
            )
        finally:
            end(deep)
    ids = {real.pid: real.cgroup.rpartition("/")[2] for real in (outer, inner, other)}
    assert keys(ownership) == {**ids, deep: ids[other.pid], os.getpid(): None}
    assert (ownership.is_told, ownership.are_samples_told, ownership.problems) == (True, True, ())


def test_starts_are_in_the_clock_of_the_passes(cgroups: Cgroups) -> None:
    before = boottime()
    pid = cgroups.start("one")
    after = boottime()
    [owner] = ProcessTable(HostPaths()).attribute(inventory([pid]), cgroups.containers()).owners.values()
    assert before - TICK <= owner.started_at <= after


def test_a_process_that_began_after_the_list_is_another_one(cgroups: Cgroups) -> None:
    table, listed = ProcessTable(HostPaths()), boottime()
    eventually(lambda: boottime() > listed + 3 * TICK)
    pid = cgroups.start("one")
    assert keys(table.attribute(inventory([pid], listed_at=listed), cgroups.containers())) == {}
    assert keys(table.attribute(inventory([pid]), cgroups.containers())) == {pid: "one"}


def test_a_move_is_noticed_in_so_many_cycles(cgroups: Cgroups) -> None:
    table, pids = ProcessTable(HostPaths()), [cgroups.start("one") for _ in range(MOST_CYCLES)]
    assert set(keys(table.attribute(inventory(pids), cgroups.containers())).values()) == {"one"}
    for pid in pids:
        cgroups.move(pid, "two")
    moved = []
    for _ in range(MOST_CYCLES):
        seen = keys(table.attribute(inventory(pids), cgroups.containers()))
        moved.append(list(seen.values()).count("two"))
    assert moved == list(range(1, MOST_CYCLES + 1))  # one in each cycle


def test_a_move_is_noticed_at_once_when_its_container_has_ended(cgroups: Cgroups) -> None:
    table, pid = ProcessTable(HostPaths()), cgroups.start("one")
    assert keys(table.attribute(inventory([pid]), cgroups.containers())) == {pid: "one"}
    cgroups.move(pid, "two")
    assert keys(table.attribute(inventory([pid]), cgroups.containers("two"))) == {pid: "two"}


def test_another_cgroup_of_the_same_name_is_another_container(v1: Cgroups) -> None:
    table, pid, folder = ProcessTable(HostPaths()), v1.start("one"), v1.folders["one"]

    def containers() -> list[Container]:
        return [replace(it, inode=os.stat(v1.folders[it.key]).st_ino) for it in v1.containers()]

    assert keys(table.attribute(inventory([pid]), containers())) == {pid: "one"}
    v1.move(pid, "two")
    folder.rmdir()
    folder.mkdir()
    assert keys(table.attribute(inventory([pid]), containers())) == {pid: "two"}


def test_a_process_that_has_ended_but_is_not_reaped_stays_where_it_was(cgroups: Cgroups) -> None:
    """The kernel takes it out of every v1 cgroup at once, while the driver may still free its memory."""
    table, pid = ProcessTable(HostPaths()), cgroups.start("one")
    assert keys(table.attribute(inventory([pid]), cgroups.containers())) == {pid: "one"}
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert f":/{cgroups.folders['one'].name}" in Path(f"/proc/{pid}/cgroup").read_text() or cgroups.is_v1
    seen = [keys(table.attribute(inventory([pid]), cgroups.containers())) for _ in range(MOST_CYCLES)]
    assert seen == [{pid: "one"}] * MOST_CYCLES
    cgroups.end(pid)
    assert keys(table.attribute(inventory([pid]), cgroups.containers())) == {}


def test_pids_of_no_process(cgroups: Cgroups) -> None:
    ended = cgroups.start("one")
    cgroups.end(ended)
    pids = [cgroups.start("one"), ended, 0, -1, -ended, 1 << 22, (1 << 31) - 1, 1 << 31, 1 << 40]
    ownership = ProcessTable(HostPaths()).attribute(inventory(pids), cgroups.containers())
    assert keys(ownership) == {pids[0]: "one"}
    assert ownership.problems == ()


@pytest.mark.parametrize("name", [b"a) R 1 (b", b") S 1 1 1 0", b"((((", b"\xff\xfe\n", b"\x1b[2J", b"a\tb c"])
def test_names_that_a_process_may_give_itself(v1: Cgroups, name: bytes) -> None:
    pid = v1.start("one")
    libc = ctypes.CDLL(None)
    parent, child = os.pipe()
    named = os.fork()
    if named == 0:
        libc.prctl(15, name, 0, 0, 0)  # PR_SET_NAME
        os.write(child, b".")
        signal.pause()
        os._exit(0)
    os.read(parent, 1)
    v1.sleepers.append(named)
    v1.move(named, "two")
    after = boottime()
    ownership = ProcessTable(HostPaths()).attribute(inventory([pid, named]), v1.containers())
    assert keys(ownership) == {pid: "one", named: "two"}
    assert after - 30 < ownership.owners[named].started_at <= after


def test_cgroups_below_cgroups(v1: Cgroups) -> None:
    """Two hundred of them, and more names than the kernel shows: it cuts a path at 4 KiB, or shows none."""
    top, short, long = v1.folders["one"], ["d"] * 200, ["n" * 250] * 18
    table = ProcessTable(HostPaths())
    for names, most_problems in ((short, 0), (long, 1)):
        with _nested(top, names) as innermost:
            pid = sleeper()
            try:
                os.write(innermost, str(pid).encode())
                ownership = table.attribute(inventory([pid]), v1.containers())
            finally:
                end(pid)
        assert set(keys(ownership).values()) <= {"one"}
        assert len(ownership.problems) <= most_problems
        assert len(ownership.owners) + len(ownership.problems) == 1


@contextmanager
def _nested(top: Path, names: list[str]) -> Iterator[int]:
    """A descriptor for the processes of the innermost; each is made inside the one above it, as a path is too long."""
    folders = [os.open(top, os.O_RDONLY)]
    try:
        for name in names:
            os.mkdir(name, dir_fd=folders[-1])
            folders.append(os.open(name, os.O_RDONLY, dir_fd=folders[-1]))
        procs = os.open("cgroup.procs", os.O_WRONLY, dir_fd=folders[-1])
        yield procs
        os.close(procs)
    finally:
        for name, folder in zip(reversed(names[: len(folders) - 1]), reversed(folders[1:]), strict=True):
            os.close(folder)
            folders.pop()
            os.rmdir(name, dir_fd=folders[-1])
        os.close(folders[0])


def test_processes_that_end_while_they_are_looked_at(cgroups: Cgroups) -> None:
    """Whatever was read of one before, the others are told and nothing is a problem."""
    table, stays = ProcessTable(HostPaths()), cgroups.start("two")
    for _ in range(50):
        ends = cgroups.start("one")
        seen = keys(table.attribute(inventory([ends, stays]), cgroups.containers()))
        os.kill(ends, signal.SIGKILL)  # it ends at some step of the next looks
        looks = [table.attribute(inventory([ends, stays]), cgroups.containers()) for _ in range(3)]
        cgroups.end(ends)
        assert seen == {ends: "one", stays: "two"}
        assert all(keys(look) == {ends: "one", stays: "two"} and not look.problems for look in looks)
        assert keys(table.attribute(inventory([ends, stays]), cgroups.containers())) == {stays: "two"}


def test_who_looks_for_names_of_nothing_finds_nothing() -> None:
    missing = container("gone", f"/gone-{secrets.token_hex(8)}")
    assert keys(ProcessTable(HostPaths()).attribute(inventory([os.getpid()]), [missing])) == {os.getpid(): None}
