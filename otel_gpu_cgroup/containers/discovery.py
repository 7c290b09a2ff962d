# SPDX-License-Identifier: Apache-2.0
"""Finds the cgroup hierarchies of a host and walks them for the cgroups of containers. Only reads."""

from __future__ import annotations

import logging
import os
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.containers.identity import parse_container
from otel_gpu_cgroup.containers.mounts import Mount, devices_mount, parse_cgroup_mounts, unified_mount
from otel_gpu_cgroup.containers.placement import Placement
from otel_gpu_cgroup.errors import Gone, HostUnreadable
from otel_gpu_cgroup.host import HostPaths, read_text, unreadable
from otel_gpu_cgroup.model import CgroupLayout, CgroupPath, Container, Problem, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_log: Final = logging.getLogger(__name__)
_BY_PATH: Final = attrgetter("cgroup")
_LEAF_LINKS: Final = 2
"""st_nlink of a folder without subfolders on kernfs (2 + subfolders); btrfs and overlayfs always say 1."""


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
            leaves, known = dict(_walk(self._root(), self._problems)), self._known
        except HostUnreadable:
            self._set_layout(CgroupLayout())  # so that the next cycle looks for the mounts anew
            raise
        self._known = {path: known[path] if path in known else parse_container(path) for path in leaves}
        found = (container for container in self._known.values() if container is not None)
        return self._placement.place(
            [(container, leaves[container.cgroup]) for container in sorted(found, key=_BY_PATH)]
        )

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


def _walk(root: Path, problems: list[Problem]) -> Iterator[tuple[CgroupPath, bool]]:
    """The paths of all cgroups below a hierarchy's root, and whether each is a leaf; leaves are not opened."""
    top = os.fspath(root)
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            found = _subfolders(f"{top}{folder}")
        except OSError as error:
            trouble = unreadable(f"{top}{folder}", error)
            if not folder:
                raise trouble from error
            if isinstance(trouble, Gone):
                _log.debug("cgroup ended during the walk cgroup=%a error=%s", folder, error)
            else:
                problems.append(Problem(Stage.DISCOVERY, folder, str(trouble)))
            continue
        for name, is_leaf in found:
            path = f"{folder}/{name}"
            yield CgroupPath(path), is_leaf
            if not is_leaf:
                folders.append(path)


def _subfolders(folder: str) -> list[tuple[str, bool]]:
    """The name of each subfolder, and whether it is a leaf.

    Asked through the opened folder: the kernel then looks up one name, not all the names of a long path.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(descriptor) as entries:
            return [(entry.name, _is_leaf(entry)) for entry in entries if entry.is_dir(follow_symlinks=False)]
    finally:
        os.close(descriptor)


def _is_leaf(entry: os.DirEntry[str]) -> bool:
    """Whether a folder has no subfolders, as one has none that is gone."""
    try:
        return entry.stat(follow_symlinks=False).st_nlink == _LEAF_LINKS
    except OSError:
        return True
