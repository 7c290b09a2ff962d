# SPDX-License-Identifier: Apache-2.0
"""Discovery on file trees that a person could have made."""

from __future__ import annotations

import dataclasses
import os
import shutil
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.containers.discovery.containers import ContainerDiscovery, read_cgroup_layout
from otel_gpu_cgroup.errors import Gone, HostUnreadable, ParseError
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import CgroupMode, Runtime
from tests.support.looks import at_look
from tests.unit.containers.test_identity import ID, OTHER, UID

if TYPE_CHECKING:
    from pathlib import Path

DEVICES_LINE: Final = "35 30 0:30 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n"
UNIFIED_LINE: Final = "30 22 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"


@dataclass
class Host:
    """A host's files in a folder."""

    root: Path
    discovery: ContainerDiscovery = field(init=False)

    def __post_init__(self) -> None:
        self.discovery = ContainerDiscovery(HostPaths(self.root))

    def mount(self, *lines: str) -> None:
        (self.root / "proc/1").mkdir(parents=True, exist_ok=True)
        (self.root / "proc/1/mountinfo").write_text("".join(lines))

    def make(self, cgroup: str, hierarchy: str = "devices") -> Path:
        folder = self.root / "sys/fs/cgroup" / hierarchy / cgroup.lstrip("/")
        folder.mkdir(parents=True)
        return folder

    def found(self) -> list[str]:
        return [container.cgroup for container in self.discovery.discover()]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(tmp_path / "host")
    made.mount(DEVICES_LINE)
    made.make("/system.slice/boot.mount")
    return made


def test_containers_come_in_the_order_of_their_paths_with_their_folder(host: Host) -> None:
    pod, docker = host.make(f"/kubepods/burstable/pod{UID}/{ID}"), host.make(f"/docker/{OTHER}")
    containers = host.discovery.discover()
    assert [container.cgroup for container in containers] == [
        f"/docker/{OTHER}",
        f"/kubepods/burstable/pod{UID}/{ID}",
    ]
    assert [container.devices for container in containers] == [os.fspath(docker), os.fspath(pod)]
    assert [container.runtime for container in containers] == [Runtime.DOCKER, Runtime.CONTAINERD]


def test_containers_come_and_go(host: Host) -> None:
    assert host.found() == []
    folder = host.make(f"/docker/{ID}")
    assert host.found() == [f"/docker/{ID}"]
    first = host.discovery.discover()
    assert host.discovery.discover()[0] is first[0]
    folder.rmdir()
    assert host.found() == []


def test_units_of_the_host_are_found_and_those_of_containers_are_not(host: Host) -> None:
    host.make("/system.slice/ssh.service")
    host.make("/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service")
    host.make(f"/docker/{ID}/system.slice/nginx.service")
    found = {container.name: container for container in host.discovery.discover()}
    assert sorted(name or "" for name in found) == ["", "jupyter.service", "ssh.service", "user@1000.service"]
    assert [container.is_unit for container in found.values()] == [False, True, True, True]


def test_a_folder_that_is_made_again_is_another_container(host: Host) -> None:
    folder = host.make(f"/docker/{ID}")
    (first,) = host.discovery.discover()
    assert host.discovery.discover() == [first]
    folder.rename(folder.with_name("aside"))  # so that the file system does not give its inode again
    host.make(f"/docker/{ID}")
    (second,) = host.discovery.discover()
    assert (first.inode, second.inode) == ((folder.with_name("aside")).stat().st_ino, folder.stat().st_ino)
    assert first.inode != second.inode
    assert second == dataclasses.replace(first, inode=second.inode)


def two_containers(root: Path, *lines: str) -> Host:
    """A host on which one has cgroups below and one has none, each with a process."""
    host = Host(root)
    host.mount(*lines)
    for identity, below, pid in ((ID, "/inner/most", 70), (OTHER, "", 80)):
        for hierarchy in ("devices", "unified"):
            (host.make(f"/docker/{identity}{below}", hierarchy) / "cgroup.procs").write_text(f"{pid}\n")
        (root / f"proc/{pid}").mkdir()
        (root / f"proc/{pid}/cgroup").write_text(f"0::/docker/{identity}{below}\n")
    return host


@pytest.mark.parametrize("lines", [(DEVICES_LINE,), (UNIFIED_LINE,), (DEVICES_LINE, UNIFIED_LINE)])
def test_what_vanishes_at_any_step_costs_itself_alone(tmp_path: Path, lines: tuple[str, ...]) -> None:
    """Before the n-th look into the tree a container's cgroups are gone, for every n; its neighbour stays."""
    undisturbed = two_containers(tmp_path / "undisturbed", *lines)
    with at_look(undisturbed.root / "sys", -1, lambda: None) as looks:
        (neighbour, _) = undisturbed.found()
    assert looks.count > 5
    for step in range(looks.count):
        host = two_containers(tmp_path / f"host-{step}", *lines)
        going = [host.root / "sys/fs/cgroup" / tree / "docker" / ID for tree in ("devices", "unified")]
        with at_look(host.root / "sys", step, partial(move_away, *going, host.root / "proc/70")) as looks:
            found = host.found()
        assert looks.count > step
        assert found[0] == neighbour
        assert host.discovery.problems == ()
        assert host.found() == [neighbour]


def move_away(*folders: Path) -> None:
    """Which is at once, as a cgroup's end is."""
    for number, folder in enumerate(folders):
        folder.rename(folder.parents[1] / f"gone-{number}")


def test_a_container_inside_a_container_is_one_more(host: Host) -> None:
    host.make(f"/docker/{ID}/init.scope")
    host.make(f"/docker/{ID}/docker/{OTHER}")
    assert host.found() == [f"/docker/{ID}", f"/docker/{ID}/docker/{OTHER}"]


def test_the_devices_hierarchy_is_walked_where_both_are_mounted(host: Host) -> None:
    host.mount(DEVICES_LINE, UNIFIED_LINE)
    host.make(f"/docker/{ID}")
    host.make(f"/docker/{OTHER}", "unified")
    assert host.found() == [f"/docker/{ID}"]
    assert host.discovery.layout.mode is CgroupMode.HYBRID


def test_cgroup2_is_walked_where_it_is_alone(host: Host) -> None:
    host.mount(UNIFIED_LINE)
    host.make(f"/docker/{ID}")
    host.make(f"/docker/{OTHER}", "unified")
    (container,) = host.discovery.discover()
    assert container.cgroup == f"/docker/{OTHER}"
    assert container.devices is None
    assert host.discovery.layout.mode is CgroupMode.V2


def test_symbolic_links_are_not_followed(host: Host, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / ID
    elsewhere.mkdir(parents=True)
    top = host.make("/docker").parent
    (top / "docker" / ID).symlink_to(elsewhere)
    (top / "loop").symlink_to(top)
    (top / "outside").symlink_to(tmp_path / "elsewhere")
    assert host.found() == []


def test_files_are_no_cgroups(host: Host) -> None:
    (host.make("/docker") / ID).write_text("")
    assert host.found() == []


@pytest.mark.parametrize(
    "name",
    [b"new\nline", b"\x1b[2Jred", b"caf\xe9", b"\xff\xfe", b"x" * 255, "\u202e\U0001f600".encode(), b"with space"],
)
def test_hostile_names_break_nothing(host: Host, name: bytes) -> None:
    folder = os.path.join(os.fsencode(host.make("/docker")), name, ID.encode())
    os.makedirs(folder)
    (container,) = host.discovery.discover()
    assert os.fsencode(container.cgroup) == b"/docker/" + name + b"/" + ID.encode()
    assert container.id == ID
    assert os.path.isdir(container.devices or "")


def test_deep_trees_are_walked_to_their_end(host: Host) -> None:
    host.make("/".join(["", *("deep" for _ in range(200)), ID]))
    assert [container.id for container in host.discovery.discover()] == [ID]


def test_no_hierarchy_is_told_with_what_to_do(host: Host) -> None:
    host.mount("28 0 259:2 / / rw - ext4 /dev/sda1 rw\n")
    with pytest.raises(HostUnreadable, match="names no cgroup hierarchy"):
        host.found()
    assert host.discovery.layout.mode is None


def test_no_mountinfo_is_told(tmp_path: Path) -> None:
    with pytest.raises(Gone, match="mountinfo"):
        ContainerDiscovery(HostPaths(tmp_path)).discover()


def test_a_mountinfo_of_another_form_is_told(host: Host) -> None:
    host.mount("1 2 - cgroup cgroup rw,devices\n")
    with pytest.raises(ParseError):
        host.found()


def test_a_hierarchy_that_moves_is_found_again(host: Host) -> None:
    host.make(f"/docker/{ID}")
    assert host.found() == [f"/docker/{ID}"]
    shutil.rmtree(host.root / "sys/fs/cgroup/devices")
    with pytest.raises(Gone):
        host.found()
    host.mount(UNIFIED_LINE)
    host.make(f"/docker/{ID}", "unified")
    assert host.found() == [f"/docker/{ID}"]
    assert host.discovery.discover()[0].devices is None


def test_the_layout_lies_below_the_hosts_root(host: Host) -> None:
    host.mount(DEVICES_LINE, UNIFIED_LINE)
    layout = read_cgroup_layout(HostPaths(host.root))
    assert layout.devices == host.root / "sys/fs/cgroup/devices"
    assert layout.unified == host.root / "sys/fs/cgroup/unified"


def test_mount_points_may_hold_spaces(host: Host) -> None:
    host.mount(DEVICES_LINE.replace("/sys/fs/cgroup/devices", r"/sys/fs/cgroup/my\040devices"))
    host.make(f"/docker/{ID}", "my devices")
    assert host.found() == [f"/docker/{ID}"]
