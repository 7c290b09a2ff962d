# SPDX-License-Identifier: Apache-2.0
"""Reads in which cgroups this process is itself: an agent does not report its own container, or that one alone."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.containers.discovery import ContainerDiscovery, read_cgroup_layout
from otel_gpu_cgroup.containers.downward import with_downward_names
from otel_gpu_cgroup.containers.inside import own_folder, parse_own_container, parse_own_paths
from otel_gpu_cgroup.containers.mounts import devices_mount, parse_cgroup_mounts, unified_mount
from otel_gpu_cgroup.errors import HostUnreadable, ParseError
from otel_gpu_cgroup.host import HostPaths, read_text
from otel_gpu_cgroup.model import CgroupLayout

if TYPE_CHECKING:
    from otel_gpu_cgroup.containers.mounts import Mount
    from otel_gpu_cgroup.model import Container, Problem

_CGROUP: Final = "/proc/self/cgroup"
_MOUNTINFO: Final = "/proc/self/mountinfo"


def parse_own_cgroups(text: str) -> frozenset[str]:
    """The cgroups that a /proc/PID/cgroup names (lines `ID:CONTROLLERS:PATH`), and all cgroups above them."""
    paths = (PurePosixPath(line.split(":", 2)[2]) for line in text.split("\n") if line.count(":") >= 2)
    return frozenset(str(path) for own in paths for path in (own, *own.parents) if str(path) != "/")


def read_own_cgroups() -> frozenset[str]:
    """Of this process; empty inside a cgroup namespace, which shows every path as /."""
    try:
        return parse_own_cgroups(read_text(_CGROUP))
    except HostUnreadable:
        return frozenset()


def read_own_id() -> str | None:
    """The runtime's id of the container that this process is in; None where it cannot be told."""
    try:
        return parse_own_container(read_text(_CGROUP), read_text(_MOUNTINFO)).id
    except HostUnreadable:
        return None


class OwnDiscovery:
    """Finds the one container that this process is in, whatever else is on the host."""

    def __init__(self) -> None:
        self._layout = CgroupLayout()

    @property
    def sees_all(self) -> bool:
        """Only the own container is looked at."""
        return False

    @property
    def layout(self) -> CgroupLayout:
        """Where the hierarchies were mounted when the container was last looked for."""
        return self._layout

    @property
    def problems(self) -> tuple[Problem, ...]:
        """None: it is one container, which can be read or not."""
        return ()

    def discover(self) -> list[Container]:
        """The own container; raises HostUnreadable or ParseError."""
        proc_cgroup, mountinfo = read_text(_CGROUP), read_text(_MOUNTINFO)
        mounts, paths = parse_cgroup_mounts(mountinfo), parse_own_paths(proc_cgroup)
        devices, unified = devices_mount(mounts), unified_mount(mounts)
        self._layout = CgroupLayout(_point(devices), _point(unified))
        container = with_downward_names(parse_own_container(proc_cgroup, mountinfo), os.environ)
        folders = own_folder(devices, paths.get("devices")), own_folder(unified, paths.get(""))
        return [replace(container, devices=folders[0], unified=folders[1])]


def sees_only_itself(host: HostPaths) -> bool:
    """Whether what is mounted here is not a whole hierarchy of cgroups, and holds no container below its top.

    The top of a whole one has (v1) or lacks (v2) a file that every other cgroup lacks or has.
    """
    try:
        layout = read_cgroup_layout(host)
        if layout.devices is not None:
            whole = os.path.exists(layout.devices / "release_agent")
        else:
            whole = layout.unified is None or not os.path.exists(layout.unified / "cgroup.type")
        return not whole and not ContainerDiscovery(host).discover()
    except (HostUnreadable, ParseError):
        return False


def _point(mount: Mount | None) -> Path | None:
    return None if mount is None else Path(mount.point)
