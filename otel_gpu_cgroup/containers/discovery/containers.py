# SPDX-License-Identifier: Apache-2.0
"""Finds the cgroup hierarchies of a host, and in them the cgroups of containers. Only reads."""

from __future__ import annotations

import os
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.containers.discovery.mounts import Mount, devices_mount, parse_cgroup_mounts, unified_mount
from otel_gpu_cgroup.containers.discovery.placement import Placement
from otel_gpu_cgroup.containers.discovery.tree import walk
from otel_gpu_cgroup.containers.identity import parse_container
from otel_gpu_cgroup.errors import HostUnreadable
from otel_gpu_cgroup.host import HostPaths, read_text
from otel_gpu_cgroup.model import CgroupLayout, CgroupPath, Container, Problem

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from pathlib import Path

_BY_PATH: Final = attrgetter("cgroup")


def read_cgroup_layout(host: HostPaths) -> CgroupLayout:
    """Where the hierarchies that decide on devices are mounted; raises HostUnreadable or ParseError."""
    mounts = parse_cgroup_mounts(read_text(host.mountinfo))
    return CgroupLayout(_place(host, devices_mount(mounts)), _place(host, unified_mount(mounts)))


def _place(host: HostPaths, mount: Mount | None) -> Path | None:
    return None if mount is None else host.under_root(mount.point)


class ContainerDiscovery:
    """Finds the containers of a host, cycle after cycle."""

    def __init__(self, host: HostPaths) -> None:
        self._host = host
        self._layout = CgroupLayout()
        self._placement = Placement(host, self._layout)
        self._known: dict[CgroupPath, Container | None] = {}
        """The paths of the last walk, each parsed once."""
        self._inner: AbstractSet[str] = frozenset()
        """Those of its cgroups that had cgroups below."""
        self._problems: list[Problem] = []

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What the last walk could not look into; containers may be missing from its answer."""
        return tuple(self._problems)

    @property
    def sees_all(self) -> bool:
        """Every container is looked for."""
        return True

    @property
    def layout(self) -> CgroupLayout:
        """Where the hierarchies were mounted when containers were last looked for."""
        return self._layout

    def discover(self) -> list[Container]:
        """Every container that has a cgroup now, in the order of their paths.

        Where both hierarchies are mounted the v1 one is walked: runtimes that use it make their cgroups there.
        Raises HostUnreadable or ParseError when no hierarchy can be read; what ends during the walk is left out.
        """
        self._problems = []
        try:
            cgroups = {cgroup[0]: cgroup for cgroup in walk(os.fspath(self._root()), self._problems, self._inner)}
        except HostUnreadable:
            self._set_layout(CgroupLayout())  # so that the next cycle looks for the mounts anew
            raise
        self._inner = {path.rpartition("/")[0] for path in cgroups}
        known = self._known
        self._known = {path: known[path] if path in known else parse_container(path) for path in cgroups}
        found = sorted((container for container in self._known.values() if container is not None), key=_BY_PATH)
        return self._placement.place([(container, cgroups[container.cgroup]) for container in found])

    def relocate(self, container: Container) -> Container | None:
        """The container where its processes are by now, after what spoke for it has gone; None where it has ended."""
        return self._placement.relocate(container)

    def _root(self) -> Path:
        if self._layout.mode is None:
            self._set_layout(read_cgroup_layout(self._host))
        root = self._layout.devices or self._layout.unified
        if root is None:
            where = os.fspath(self._host.mountinfo)
            raise HostUnreadable(f"{where!r} names no cgroup hierarchy that decides on devices; mount /sys/fs/cgroup")
        return root

    def _set_layout(self, layout: CgroupLayout) -> None:
        self._layout, self._placement, self._known = layout, Placement(self._host, layout), {}
