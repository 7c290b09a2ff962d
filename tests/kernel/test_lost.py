# SPDX-License-Identifier: Apache-2.0
"""Real containers and real rules of cgroup v1: which of their GPUs are lost, and which never were theirs."""

from __future__ import annotations

import os
import secrets
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from otel_gpu_cgroup.containers.identity import parse_container
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import CgroupPath, Container, Runtime
from tests.integration.gpu_nodes import nodes
from tests.support.devices_cgroup import DevicesCgroup, need_devices_cgroup
from tests.support.eventually import eventually
from tests.support.losses import Watcher, as_systemd_rewrites, reload
from tests.support.need import need
from tests.support.runc import (
    DENY_ALL,
    PRIVILEGED,
    RuncContainer,
    RuncSpec,
    devices_hierarchy,
    docker_cgroup,
    need_runc,
    runc_container,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MINORS: Final = (0, 1, 2, 3)
CONTROL: Final = "allow c 195:255 rw"
ONE: Final = (DENY_ALL, "allow c 195:0 rw", CONTROL)
FOUR: Final = (DENY_ALL, *(f"allow c 195:{minor} rw" for minor in MINORS), CONTROL)
BEFORE: Final = "it could open it before"
MKNOD: Final = "its devices.list has mknod alone for 195:*, as systemd leaves it at daemon-reload"
OWN_DEV: Final = "its own /dev has the node"


def _found(container: RuncContainer) -> Container:
    return _placed(container.cgroup, container.devices_cgroup)


def _placed(cgroup: str, folder: Path) -> Container:
    found = parse_container(CgroupPath(cgroup))
    assert found is not None
    return replace(found, devices=os.fspath(folder), inode=folder.stat().st_ino)


def _may_open(container: RuncContainer, minor: int) -> bool:
    """What the kernel says to a process inside; there is no driver behind the node."""
    said = container.run("/bin/busybox", "head", "-c0", f"/dev/nvidia{minor}").stderr
    assert ("Operation not permitted" in said) != ("No such device or address" in said), said
    return "Operation not permitted" not in said


@pytest.mark.parametrize(
    ("expanded", "sign"), [(False, MKNOD), (True, OWN_DEV)], ids=["one rule left", "a rule for every major left"]
)
def test_a_reload_of_systemd_takes_the_gpu_of_a_container_away(tmp_path: Path, sign: str, *, expanded: bool) -> None:
    need_runc()
    watcher, later = Watcher(MINORS), Watcher(MINORS)
    with runc_container(tmp_path, RuncSpec(docker_cgroup(), ONE, binds=nodes(tmp_path, [0]))) as real:
        container, cgroup = _found(real), DevicesCgroup(real.devices_cgroup)
        assert watcher.cycles(3, container) == [{}, {}, {}]
        assert _may_open(real, 0)
        before = cgroup.devices_list()
        reload(cgroup.path, as_systemd_rewrites(before, expanded=expanded))
        assert not _may_open(real, 0)
        assert watcher.cycles(3, container) == [{}, {0: f"{BEFORE}; {sign}"}, {0: f"{BEFORE}; {sign}"}]
        assert later.cycles(2, container) == [{}, {0: sign}]  # an agent that began after the reload
        assert cgroup.allow("c 195:0 rw")
        assert _may_open(real, 0)
        assert watcher.cycles(2, container) == later.cycles(2, container) == [{}, {}]
        ends = [(change.lost.gpu.minor, change.end) for change in watcher.watch.take_changes()]
    assert ends == [(0, None), (0, "it may open it again")]


def test_one_of_four_gpus_is_lost(tmp_path: Path) -> None:
    need_runc()
    watcher = Watcher(MINORS)
    with runc_container(tmp_path, RuncSpec(docker_cgroup(), FOUR, binds=nodes(tmp_path, MINORS))) as real:
        container = _found(real)
        watcher.cycles(2, container)
        assert DevicesCgroup(real.devices_cgroup).deny("c 195:2 rw")
        assert [_may_open(real, minor) for minor in MINORS] == [True, True, False, True]
        assert watcher.cycles(2, container) == [{}, {2: f"{BEFORE}; {OWN_DEV}"}]


def test_mknod_left_for_one_minor_is_a_sign_of_that_one(tmp_path: Path) -> None:
    need_runc()
    with runc_container(tmp_path, RuncSpec(docker_cgroup(), (DENY_ALL, "allow c 195:1 m"))) as real:
        sign = MKNOD.replace("195:*", "195:1")
        reload(real.devices_cgroup, ["c 1:3 rwm", "c 195:1 m"])
        assert Watcher(MINORS).cycles(2, _found(real)) == [{}, {1: sign}]


def test_rules_that_were_never_given_are_lost_where_the_containers_dev_has_the_node(tmp_path: Path) -> None:
    need_runc()
    with runc_container(tmp_path, RuncSpec(docker_cgroup(), (DENY_ALL, CONTROL), binds=nodes(tmp_path, [1]))) as real:
        assert not _may_open(real, 1)
        assert Watcher(MINORS).cycles(3, _found(real)) == [{}, {1: OWN_DEV}, {1: OWN_DEV}]


def test_a_privileged_container_that_is_restricted_has_lost_the_nodes_in_its_own_dev_alone(tmp_path: Path) -> None:
    need_runc()
    watcher = Watcher(MINORS)
    with runc_container(tmp_path, RuncSpec(docker_cgroup(), PRIVILEGED, binds=nodes(tmp_path, [0]))) as real:
        container = _found(real)
        assert watcher.cycles(3, container) == [{}] * 3
        reload(real.devices_cgroup, ["c *:* m", "c 1:3 rwm"])
        assert watcher.cycles(3, container) == [{}, {0: OWN_DEV}, {0: OWN_DEV}]


@pytest.mark.parametrize(
    "rules",
    [(DENY_ALL,), (DENY_ALL, CONTROL), (), PRIVILEGED, (DENY_ALL, "allow c 195:* m")],
    ids=["denied", "management", "runc's defaults", "privileged", "mknod for every GPU"],
)
def test_a_container_that_never_had_a_gpu_has_lost_none(tmp_path: Path, rules: Sequence[str]) -> None:
    """runc gives each of them `c *:* m`, which is no sign, and a /dev of its own without the node."""
    need_runc()
    with runc_container(tmp_path, RuncSpec(docker_cgroup(), rules)) as real:
        rows = DevicesCgroup(real.devices_cgroup).devices_list()
        assert rows == "a *:* rwm\n" if rules == PRIVILEGED else "c *:* m\n" in rows
        assert Watcher(MINORS).cycles(4, _found(real)) == [{}] * 4
        reload(real.devices_cgroup, as_systemd_rewrites(rows, expanded=True))
        assert Watcher(MINORS).cycles(4, _found(real)) == [{}] * 4


def test_a_container_that_is_made_again_under_its_id_without_the_gpu_has_lost_none(tmp_path: Path) -> None:
    need_runc()
    watcher, cgroup = Watcher(MINORS), docker_cgroup()
    inodes = set()
    for rules in (ONE, (DENY_ALL,), ONE):
        with runc_container(tmp_path, RuncSpec(cgroup, rules)) as real:
            container = _found(real)
            inodes.add(container.inode)
            assert watcher.cycles(4, container) == [{}] * 4
    assert len(inodes) == 3
    assert watcher.watch.take_changes() == ()


class Process(NamedTuple):
    """One in a cgroup made by hand, before a /dev with the node of GPU 0."""

    container: Container
    cgroup: Path
    other: HostPaths
    """A host whose /dev is another one."""
    same: HostPaths
    """A host whose /dev is that one."""


@contextmanager
def _process(tmp_path: Path, cgroup: str) -> Iterator[Process]:
    need_devices_cgroup(tmp_path)
    hierarchy = devices_hierarchy()
    assert hierarchy is not None
    folder = hierarchy / cgroup.lstrip("/")
    ready = tmp_path / "ready"
    script = f"mount -t tmpfs gpus /dev && mknod /dev/nvidia0 c 195 0 && touch {ready} && exec sleep 1000"
    child = subprocess.Popen(["unshare", "--mount", "sh", "-c", script])
    try:
        eventually(lambda: ready.exists() or child.poll() is not None)
        need(child.poll() is None, "nothing can be mounted in a namespace of its own")
        (tmp_path / "proc").mkdir()
        for name in ("1", str(child.pid)):
            (tmp_path / "proc" / name).symlink_to(f"/proc/{child.pid}")
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text(str(child.pid))
        yield Process(_placed(cgroup, folder), folder, HostPaths(), HostPaths(tmp_path))
    finally:
        child.kill()
        child.wait()
        places = cgroup.strip("/").split("/")
        kept = 1 if places[0] in ("docker", "system.slice") else 0  # another test may be making a container in it
        for depth in range(len(places), kept, -1):
            eventually(partial(_removed, hierarchy.joinpath(*places[:depth])))


def _removed(folder: Path) -> bool:
    """Whether a cgroup could be removed, which takes until its last process is gone; one that others use stays."""
    try:
        folder.rmdir()
    except OSError:
        return any(it.is_dir() for it in folder.iterdir())
    return True


@pytest.mark.parametrize(
    ("cgroup", "runtime", "has_lost"),
    [
        ("/slurm/uid_0/job_{}/step_0", Runtime.SLURM, False),
        ("/system.slice/gpu-cgroup-test-{}.service", Runtime.SYSTEMD, False),
        ("/docker/{}", Runtime.DOCKER, True),
    ],
)
def test_nodes_that_a_slurm_step_or_a_unit_sees_prove_nothing(
    tmp_path: Path, cgroup: str, runtime: Runtime, *, has_lost: bool
) -> None:
    """Each sees the host's /dev first, and then one of its own, which only a container has been given."""
    number = str(secrets.randbelow(10**9)) if runtime is Runtime.SLURM else secrets.token_hex(32)
    with _process(tmp_path, cgroup.format(number)) as (container, folder, other, same):
        assert container.runtime is runtime
        reload(folder, ["c 1:3 rwm", "c *:* m", "c 195:255 rw"])
        assert Watcher(MINORS, same).cycles(4, container) == [{}] * 4
        assert Watcher(MINORS, other).cycles(3, container) == [{}, *[{0: OWN_DEV} if has_lost else {}] * 2]
        reload(folder, ["c 1:3 rwm", "c 195:* m"])
        sign = dict.fromkeys(MINORS, MKNOD) if has_lost else {}
        assert Watcher(MINORS, same).cycles(2, container) == [{}, sign]


def test_a_slurm_step_that_could_open_a_gpu_before_has_lost_it(tmp_path: Path) -> None:
    with _process(tmp_path, f"/slurm/uid_0/job_{secrets.randbelow(10**9)}/step_0") as (container, folder, _, same):
        watcher = Watcher(MINORS, same)
        reload(folder, ["c 1:3 rwm", "c 195:0 rw"])
        assert watcher.cycles(2, container) == [{}, {}]
        reload(folder, ["c 1:3 rwm"])
        assert watcher.cycles(2, container) == [{}, {0: BEFORE}]


def test_rules_that_come_one_after_the_other_are_no_loss(tmp_path: Path) -> None:
    """A container that is set up: everything, nothing, then one rule more in each cycle; the node is there at last."""
    with _process(tmp_path, docker_cgroup()) as (container, folder, other, same):
        early, watchers = Watcher(MINORS, same), (Watcher(MINORS, same), Watcher(MINORS, other))
        cgroup = DevicesCgroup(folder)
        assert early.cycles(2, container) == [{}, {}]
        assert cgroup.deny("a")
        assert [watcher.cycle([container]) for watcher in (early, *watchers)] == [{}] * 3
        for rule in ("c *:* m", "c 1:3 rwm", "c 195:255 rw"):
            assert cgroup.allow(rule)
            assert early.cycle([container]) == {}
        assert cgroup.allow("c 195:0 rw")
        assert [watcher.cycles(3, container) for watcher in (early, *watchers)] == [[{}] * 3] * 3
        assert [watcher.watch.take_changes() for watcher in (early, *watchers)] == [()] * 3
