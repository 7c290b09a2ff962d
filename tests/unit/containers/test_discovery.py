# SPDX-License-Identifier: Apache-2.0
"""Discovery on file trees that a person could have made."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.containers.discovery import ContainerDiscovery, read_cgroup_layout
from otel_gpu_cgroup.errors import Gone, HostUnreadable, ParseError
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import CgroupMode, Runtime
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
    made.make("/system.slice/ssh.service")
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
