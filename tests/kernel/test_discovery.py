# SPDX-License-Identifier: Apache-2.0
"""Discovery in this machine's own cgroup hierarchies, with containers that runc makes."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.containers.discovery.containers import ContainerDiscovery, read_cgroup_layout
from otel_gpu_cgroup.containers.discovery.mounts import devices_mount, parse_cgroup_mounts
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import CgroupPath, Runtime
from tests.support.devices_cgroup import devices_cgroup, need_devices_cgroup
from tests.support.eventually import eventually
from tests.support.looks import at_look
from tests.support.need import need
from tests.support.runc import Bind, RuncSpec, devices_hierarchy, docker_cgroup, need_runc, runc_container
from tests.unit.containers.test_identity import RECORDED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.mark.parametrize(
    ("above", "runtime", "pod"),
    [
        ("/docker/{id}", Runtime.DOCKER, None),
        ("/system.slice/docker-{id}.scope", Runtime.DOCKER, None),
        (
            "/kubepods/burstable/pod7f0dd8f9-4b9c-4d5e-a5b3-9a1c1f0d1b2e/{id}",
            Runtime.CONTAINERD,
            "7f0dd8f9-4b9c-4d5e-a5b3-9a1c1f0d1b2e",
        ),
        (
            "/kubepods.slice/kubepods-pod7f0dd8f9_4b9c_4d5e_a5b3_9a1c1f0d1b2e.slice/crio-{id}.scope",
            Runtime.CRIO,
            "7f0dd8f9-4b9c-4d5e-a5b3-9a1c1f0d1b2e",
        ),
    ],
)
def test_a_container_is_found_while_it_runs(above: str, runtime: Runtime, pod: str | None, tmp_path: Path) -> None:
    need_runc()
    identity = secrets.token_hex(32)
    discovery = ContainerDiscovery(HostPaths())
    before = {container.id for container in discovery.discover()}
    with runc_container(tmp_path, RuncSpec(above.format(id=identity))) as real:
        found = {container.id: container for container in discovery.discover()}[identity]
    after = {container.id for container in discovery.discover()}
    assert identity not in before
    assert identity not in after
    assert found.devices == os.fspath(real.devices_cgroup)
    assert found.cgroup == real.cgroup
    assert found.runtime is runtime
    assert (found.pod.uid if found.pod else None) == pod


def test_names_that_the_kernel_permits_break_nothing(tmp_path: Path) -> None:
    need_devices_cgroup(tmp_path)
    identity = secrets.token_hex(32)
    with devices_cgroup() as outer:
        hostile = [b"\x1b[31mred", b"caf\xe9 \xff", b"x" * 255, "\u202etxt".encode(), b"a\rb"]
        folders = [os.path.join(os.fsencode(outer.path), name) for name in hostile]
        inner = [os.path.join(folder, identity.encode()) for folder in folders]
        made = [*folders, *inner]
        for folder in made:
            os.mkdir(folder)
        try:
            found = [container for container in ContainerDiscovery(HostPaths()).discover() if container.id == identity]
        finally:
            for folder in reversed(made):
                os.rmdir(folder)
    assert sorted(os.fsencode(container.devices or "") for container in found) == sorted(inner)


def test_the_whole_hierarchy_is_preferred_to_the_part_that_is_this_containers_own(tmp_path: Path) -> None:
    need_runc()
    shared = Bind(str(devices_hierarchy()), "/host/devices")
    with runc_container(tmp_path, RuncSpec(docker_cgroup(), binds=(shared,))) as container:
        mountinfo = container.run("cat", "/proc/self/mountinfo").stdout
    mounts = [mount for mount in parse_cgroup_mounts(mountinfo) if "devices" in (mount.controllers or ())]
    assert sorted((mount.root, mount.point) for mount in mounts) == [
        ("/", "/sys/fs/cgroup/devices"),
        ("/../..", "/host/devices"),
    ]
    assert devices_mount(tuple(mounts)) == mounts[[mount.root for mount in mounts].index("/../..")]


def test_a_container_without_a_cgroup_namespace_sees_where_its_own_cgroup_is(tmp_path: Path) -> None:
    need_runc()
    spec = RuncSpec(docker_cgroup(), namespaces=("pid", "mount"))
    with runc_container(tmp_path, spec) as container:
        mount = devices_mount(parse_cgroup_mounts(container.run("cat", "/proc/self/mountinfo").stdout))
    assert mount is not None
    assert (mount.root, mount.point) == (spec.cgroup, "/sys/fs/cgroup/devices")


def test_containers_are_found_where_every_folder_has_one_link(tmp_path: Path) -> None:
    """As on overlayfs, whose merged folders say 1 whatever is in them; kernfs says 2 and more."""
    need(os.geteuid() == 0, "mounting an overlay needs root")
    identity, place = secrets.token_hex(32), "sys/fs/cgroup/devices"
    for layer in ("lower", "upper"):
        (tmp_path / layer / place / "docker" / identity).mkdir(parents=True)
    for folder in ("work", "host"):
        (tmp_path / folder).mkdir()
    (tmp_path / "upper/proc/1").mkdir(parents=True)
    (tmp_path / "upper/proc/1/mountinfo").write_text(
        "33 31 0:29 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices\n"
    )
    options = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    mounted = subprocess.run(
        ["mount", "-t", "overlay", "overlay", "-o", options, tmp_path / "host"], capture_output=True, check=False
    )
    need(mounted.returncode == 0, f"no overlay can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        host = HostPaths(tmp_path / "host")
        links = os.stat(tmp_path / "host" / place / "docker").st_nlink
        found = [container.id for container in ContainerDiscovery(host).discover()]
    finally:
        subprocess.run(["umount", tmp_path / "host"], check=True)
    assert links == 1
    assert found == [identity]


def test_this_machines_hierarchies_are_found_where_the_kernel_says() -> None:
    layout = read_cgroup_layout(HostPaths())
    for folder, file in ((layout.devices, "devices.list"), (layout.unified, "cgroup.controllers")):
        if folder is not None:
            assert folder.is_dir()
            assert any((below / file).exists() for below in (folder, *folder.iterdir()))


@pytest.fixture(params=["devices", "unified"])
def part(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[HostPaths, Path]]:
    """A host whose whole hierarchy is a new cgroup of this machine's, and that cgroup's folder."""
    need(os.geteuid() == 0, "making cgroups needs root")
    layout = read_cgroup_layout(HostPaths())
    hierarchy = layout.devices if request.param == "devices" else layout.unified
    need(hierarchy is not None and os.access(hierarchy, os.W_OK), f"no {request.param} hierarchy can be written here")
    assert hierarchy is not None
    top = hierarchy / f"gpu-cgroup-test-{secrets.token_hex(6)}"
    top.mkdir()
    kind = "cgroup cgroup rw,devices" if request.param == "devices" else "cgroup2 cgroup2 rw"
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text(f"35 30 0:30 / /hierarchy rw - {kind}\n")
    (tmp_path / "hierarchy").symlink_to(top)
    try:
        yield HostPaths(tmp_path), top
    finally:
        remove_tree(top)


def remove_tree(top: Path) -> None:
    """From below, as cgroups are removed."""
    for _, folders, _, descriptor in os.fwalk(top, topdown=False):
        for name in folders:
            os.rmdir(name, dir_fd=descriptor)
    top.rmdir()


def test_every_path_of_every_runtime_can_be_made_and_is_found(part: tuple[HostPaths, Path]) -> None:
    host, top = part
    rows = [row for file in RECORDED.glob("*.json") for row in json.loads(file.read_text())]
    told = {row["path"]: row["container"] for row in rows if "\n" not in row["path"]}  # which no cgroup's name may hold
    for path in told:
        os.makedirs(f"{top}{path}", exist_ok=True)
    found = {container.cgroup: container for container in ContainerDiscovery(host).discover()}
    assert {path: found.get(CgroupPath(path.rstrip("/"))) is not None for path in told if not path.endswith("/")} == {
        path: container is not None for path, container in told.items() if not path.endswith("/")
    }
    assert {path: (it.id, it.inode) for path, it in found.items() if path in told} == {
        path: (container.get("id"), os.stat(f"{top}{path}").st_ino)
        for path, container in told.items()
        if container is not None
    }


def test_cgroups_without_others_below_are_not_opened(part: tuple[HostPaths, Path]) -> None:
    host, top = part
    for _ in range(3):
        (top / "docker" / secrets.token_hex(32)).mkdir(parents=True, exist_ok=True)
    discovery = ContainerDiscovery(host)
    discovery.discover()
    with at_look(host.root / "hierarchy", -1, lambda: None) as looks:
        assert len(discovery.discover()) == 3
    assert looks.count == 2  # the top, and the folder of the containers


def test_a_tree_200_deep_is_walked_to_its_end(part: tuple[HostPaths, Path]) -> None:
    host, top = part
    identity = secrets.token_hex(32)
    path = "/" + "/".join(["deep"] * 200 + [f"docker-{identity}.scope"])
    os.makedirs(f"{top}{path}")
    discovery = ContainerDiscovery(host)
    (container,) = discovery.discover()
    assert (container.cgroup, container.id, discovery.problems) == (path, identity, ())
    assert os.path.samefile(container.devices or container.unified or "", f"{top}{path}")


def test_a_path_that_is_too_long_to_be_opened_costs_itself_alone(part: tuple[HostPaths, Path]) -> None:
    """The kernel makes deeper trees than it opens by one path of at most 4095 bytes."""
    host, top = part
    near, far = secrets.token_hex(32), secrets.token_hex(32)
    (top / "docker" / near).mkdir(parents=True)
    descriptor = os.open(top, os.O_RDONLY)
    for name in ["x" * 250] * 18 + ["docker", far]:
        os.mkdir(name, dir_fd=descriptor)
        below = os.open(name, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    discovery = ContainerDiscovery(host)
    assert [container.id for container in discovery.discover()] == [near]
    (problem,) = discovery.problems
    assert "File name too long" in problem.message


def test_a_cgroup_that_is_made_again_is_another_container(part: tuple[HostPaths, Path]) -> None:
    host, top = part
    folder = top / "docker" / secrets.token_hex(32)
    folder.mkdir(parents=True)
    discovery = ContainerDiscovery(host)
    inodes = []
    for _ in range(3):
        assert discovery.discover() == discovery.discover()
        inodes.append(discovery.discover()[0].inode)
        assert inodes[-1] == folder.stat().st_ino
        folder.rmdir()
        folder.mkdir()
    assert len(set(inodes)) == 3


def test_cgroups_that_come_and_go_during_the_walk_break_nothing(part: tuple[HostPaths, Path]) -> None:
    host, top = part
    staying = {secrets.token_hex(32) for _ in range(20)}
    for identity in staying:
        (top / "docker" / identity / "inner").mkdir(parents=True)
    script = (
        "import os, itertools, sys\n"
        "for number in itertools.count():\n"
        "    folder = os.path.join(sys.argv[1], f'{number % 50:064x}')\n"
        "    os.makedirs(folder + '/inner/most'); os.removedirs(folder + '/inner/most')\n"
    )
    with subprocess.Popen([sys.executable, "-I", "-c", script, top / "docker"]) as churn:
        try:
            discovery = ContainerDiscovery(host)
            passing: set[str] = set()

            def has_seen_many() -> bool:
                found = {container.id or "" for container in discovery.discover()}
                assert found >= staying
                assert discovery.problems == ()
                passing.update(found - staying)
                return len(passing) > 10

            eventually(has_seen_many, "no container was seen while it came and went")
        finally:
            churn.kill()
