# SPDX-License-Identifier: Apache-2.0
"""Pure: the text of a mountinfo, and where in it the cgroup hierarchies that decide on devices are.

The form is that of proc_pid_mountinfo(5):
`ID PARENT DEV ROOT MOUNTPOINT OPTIONS [TAG…] - TYPE SOURCE SUPEROPTIONS`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Iterable

_OCTAL: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount of a cgroup hierarchy."""

    point: str
    root: str
    """Which cgroup of the hierarchy is mounted there, as the reader's cgroup namespace sees it.

    "/" is the namespace's own root, and "/.." and "/../.." are above it.
    """
    controllers: frozenset[str] | None
    """The v1 controllers; None for cgroup2."""


def parse_cgroup_mounts(mountinfo: str) -> tuple[Mount, ...]:
    """The cgroup mounts among all mounts, in their order; ParseError names the line that is no mount."""
    lines = (line for line in mountinfo.split("\n") if " - cgroup" in line)
    return tuple(mount for line in lines if (mount := _parse_mount(line)) is not None)


def devices_mount(mounts: tuple[Mount, ...]) -> Mount | None:
    """The mount of the v1 `devices` hierarchy that shows most of it; None on a host without."""
    return _widest(mount for mount in mounts if mount.controllers is not None and "devices" in mount.controllers)


def unified_mount(mounts: tuple[Mount, ...]) -> Mount | None:
    """The mount of the cgroup2 hierarchy that shows most of it; None on a host without."""
    return _widest(mount for mount in mounts if mount.controllers is None)


def _widest(mounts: Iterable[Mount]) -> Mount | None:
    return min(mounts, key=_narrowness, default=None)


def _narrowness(mount: Mount) -> tuple[int, int, int]:
    """Least for the root that is farthest up with no folder below it; the point decides between equals."""
    folders = [folder for folder in mount.root.split("/") if folder]
    above = folders.count("..")
    return len(folders) - above, -above, len(mount.point)


def _parse_mount(line: str) -> Mount | None:
    before, _, after = line.partition(" - ")
    fields, tail = before.split(" "), after.split(" ")
    if len(fields) < 6 or len(tail) < 3:
        raise ParseError(line, "a line of mountinfo")
    root, point, kind = _unescape(fields[3]), _unescape(fields[4]), tail[0]
    if kind == "cgroup2":
        return Mount(point, root, None)
    return Mount(point, root, frozenset(tail[-1].split(","))) if kind == "cgroup" else None


def _unescape(text: str) -> str:
    """Space, tab, newline and backslash are written as three octal digits."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
