# SPDX-License-Identifier: Apache-2.0
"""Reads how this process' cgroup namespace lies in a mounted hierarchy. Only reads.

The kernel tells the root of a mount, and every process' cgroup, from the root of the reader's namespace: `/../..` and
`/../b`. How far up the top of the tree is tells the mount; what the folders on the way are called tells nobody, but
the process itself is in the tree, in one of the cgroups that deep.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.containers.discovery.mounts import devices_mount, parse_cgroup_mounts, unified_mount
from otel_gpu_cgroup.containers.discovery.relative import KnownPaths, resolve_path
from otel_gpu_cgroup.containers.discovery.tree import walk
from otel_gpu_cgroup.containers.own.inside import parse_own_paths
from otel_gpu_cgroup.errors import HostUnreadable, ParseError
from otel_gpu_cgroup.host import read_text

if TYPE_CHECKING:
    from otel_gpu_cgroup.host import HostPaths

DEVICES: Final = "devices"
"""The v1 hierarchy's name in a /proc/PID/cgroup."""
UNIFIED: Final = ""
"""That of cgroup2."""
_OWN: Final = "/proc/self/cgroup"
_NONE: Final = KnownPaths(())


class ShownPaths:
    """What the paths that this process is shown mean in one mounted hierarchy."""

    def __init__(self, host: HostPaths, tree: str, controller: str) -> None:
        self._host = host
        self._tree = tree
        self._controller = controller
        self._own: str | None = None
        self._has_asked = False
        self._known: KnownPaths | None = None

    def begin_cycle(self) -> None:
        """Cgroups may have come and gone; where this process is itself is asked once."""
        self._known = None

    def resolve(self, shown: str) -> str | None:
        """The path below the tree's top of a cgroup that is shown as this; None where that cannot be told."""
        if not self._has_asked:
            self._own, self._has_asked = self._read_own(), True
        if self._own is None and self._known is None:
            self._known = self._read_known()
        return resolve_path(shown, self._own, self._known or _NONE)

    def _read_known(self) -> KnownPaths:
        try:
            return KnownPaths(path for path, _, _ in walk(self._tree, []))
        except HostUnreadable:
            return _NONE

    def _read_own(self) -> str | None:
        """The path of the namespace's root in the tree; None where it cannot be told, or is not in it."""
        try:
            mounts = parse_cgroup_mounts(read_text(self._host.mountinfo))
            mount = devices_mount(mounts) if self._controller == DEVICES else unified_mount(mounts)
            inside = parse_own_paths(read_text(_OWN)).get(self._controller)
            if mount is None or mount.root == "/":
                return None if mount is None else "/"
            above = mount.root.split("/")[1:]
            return None if inside is None or set(above) != {".."} else _find_root(self._tree, len(above), inside)
        except (HostUnreadable, ParseError):
            return None


def _find_root(tree: str, depth: int, inside: str) -> str | None:
    """The cgroup that deep below which, at `inside`, this process is."""
    pid, end = str(os.getpid()), inside.rstrip("/")
    for path, _, _ in walk(tree, []):
        is_candidate = path.count("/") == depth + end.count("/") and path.endswith(end)
        if is_candidate and pid in _read_procs(f"{tree}{path}"):
            return path.removesuffix(end)
    return None


def _read_procs(folder: str) -> list[str]:
    try:
        return read_text(f"{folder}/cgroup.procs").split()
    except HostUnreadable:
        return []
