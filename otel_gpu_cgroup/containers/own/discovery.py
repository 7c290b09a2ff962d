# SPDX-License-Identifier: Apache-2.0
"""Reads in which cgroups this process is itself: an agent does not report its own container, or that one alone."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.containers.discovery.containers import ContainerDiscovery, read_cgroup_layout
from otel_gpu_cgroup.containers.discovery.mounts import devices_mount, parse_cgroup_mounts, unified_mount
from otel_gpu_cgroup.containers.discovery.namespace import DEVICES, UNIFIED, ShownPaths
from otel_gpu_cgroup.containers.own.downward import with_downward_names
from otel_gpu_cgroup.containers.own.inside import own_folder, parse_own_container, parse_own_paths, parse_upwards
from otel_gpu_cgroup.errors import HostUnreadable, ParseError
from otel_gpu_cgroup.host import HostPaths, read_text
from otel_gpu_cgroup.model import CgroupLayout

if TYPE_CHECKING:
    from otel_gpu_cgroup.containers.discovery.mounts import Mount
    from otel_gpu_cgroup.model import Container, Problem

_CGROUP: Final = "/proc/self/cgroup"
_MOUNTINFO: Final = "/proc/self/mountinfo"


def read_own_cgroups(host: HostPaths | None = None) -> frozenset[str]:
    """The cgroup of this process in the host's tree that is walked, and all above it but the top.

    Where a cgroup namespace hides it, it is looked for in the tree; empty where it is not in it.
    """
    host = host or HostPaths()
    try:
        layout, paths = read_cgroup_layout(host), parse_own_paths(read_text(_CGROUP))
    except (HostUnreadable, ParseError):
        return frozenset()
    tree, controller = (layout.devices, DEVICES) if layout.devices is not None else (layout.unified, UNIFIED)
    if tree is None or controller not in paths:
        return frozenset()
    own = ShownPaths(host, os.fspath(tree), controller).resolve(paths[controller])
    return frozenset() if own is None else frozenset(parse_upwards(own))


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

    def relocate(self, container: Container) -> None:
        """Nowhere else: the next cycle looks anew."""
        del container

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

    The top of a whole one has (v1) or lacks (v2) a file that every other cgroup lacks or has. Units below the top of a
    part are those of the container's own systemd.
    """
    try:
        layout = read_cgroup_layout(host)
        if layout.devices is not None:
            whole = os.path.exists(layout.devices / "release_agent")
        else:
            whole = layout.unified is None or not os.path.exists(layout.unified / "cgroup.type")
        return not whole and all(container.is_unit for container in ContainerDiscovery(host).discover())
    except (HostUnreadable, ParseError):
        return False


def _point(mount: Mount | None) -> Path | None:
    return None if mount is None else Path(mount.point)
