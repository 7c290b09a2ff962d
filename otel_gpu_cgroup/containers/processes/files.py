# SPDX-License-Identifier: Apache-2.0
"""Reads the kernel's files about single processes, and about the namespaces that they are seen from."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final, Protocol

from otel_gpu_cgroup.containers.discovery.mounts import devices_mount, parse_cgroup_mounts, unified_mount
from otel_gpu_cgroup.errors import HostUnreadable, ParseError
from otel_gpu_cgroup.host import HostPaths, read_text

if TYPE_CHECKING:
    from pathlib import Path

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
"""In which the kernel tells when a process began."""
_MOST_BYTES: Final = 64 << 10
"""A path has at most 4 KiB, and there are no more than about fourteen hierarchies; the kernel gives it all at once."""

Identity = tuple[int, int]
"""Of a process' file: its inode and when the kernel made that, in nanoseconds."""


class ProcessSource(Protocol):
    """What is asked about a process; every answer may be an OSError instead, as a process may end at any time."""

    def identify(self, pid: int) -> Identity:
        """What tells a process from every other that had or will have its pid, on procfs."""
        ...

    def read_cgroup(self, pid: int) -> str:
        """Its /proc/PID/cgroup."""
        ...

    def read_stat(self, pid: int) -> tuple[Identity, str]:
        """Its /proc/PID/stat, and the identity of the process that it is of."""
        ...

    def is_there(self, pid: int) -> bool:
        """Whether the kernel knows a process of this pid, whatever /proc shows; raises nothing."""
        ...


class ProcessFiles:
    """The processes of one /proc.

    On procfs an inode belongs to one process, not to its pid: a process that uses a pid again has files with other
    inodes. The kernel may forget the inode of a living process, and makes another one when it is asked next.
    """

    def __init__(self, proc: Path, *, is_kernels: bool = True) -> None:
        """`is_kernels` says that its pids are those of this process' own PID namespace, not of a simulated host."""
        self._proc = os.fspath(proc)
        self._is_kernels = is_kernels

    def identify(self, pid: int) -> Identity:
        """One call, without reading a file."""
        status = os.stat(f"{self._proc}/{pid}/stat")
        return status.st_ino, status.st_ctime_ns

    def read_cgroup(self, pid: int) -> str:
        """At most 64 KiB."""
        descriptor = os.open(f"{self._proc}/{pid}/cgroup", os.O_RDONLY)
        try:
            return _read_once(descriptor)
        finally:
            os.close(descriptor)

    def read_stat(self, pid: int) -> tuple[Identity, str]:
        """Both from one open file."""
        descriptor = os.open(f"{self._proc}/{pid}/stat", os.O_RDONLY)
        try:
            status = os.fstat(descriptor)
            return (status.st_ino, status.st_ctime_ns), _read_once(descriptor)
        finally:
            os.close(descriptor)

    def is_there(self, pid: int) -> bool:
        """By a call that needs no permission; one that a security module forbids was about a process, too."""
        if not self._is_kernels:
            return False
        try:
            os.getpgid(pid)
        except OSError as error:
            return error.errno != errno.ESRCH
        return True


def read_pid_namespaces(host: HostPaths) -> tuple[str | None, str | None]:
    """The PID namespace of this process, and that of a foreign root's first process; None where it cannot be read."""
    first = None if host == HostPaths() else _read_link(f"{os.fspath(host.proc)}/1/ns/pid")
    return _read_link("/proc/self/ns/pid"), first


def read_top(host: HostPaths, *, is_v1: bool) -> str | None:
    """Which cgroup the mounted hierarchy of containers begins at, for this process' cgroup namespace.

    None where that cannot be read.
    """
    try:
        mounts = parse_cgroup_mounts(read_text(host.mountinfo))
    except (HostUnreadable, ParseError):
        return None
    mount = devices_mount(mounts) if is_v1 else unified_mount(mounts)
    return None if mount is None else mount.root


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _read_once(descriptor: int) -> str:
    """All of a file that the kernel tells at once; OSError(EFBIG) for what cannot be such a file."""
    content = os.read(descriptor, _MOST_BYTES)
    if len(content) == _MOST_BYTES:
        raise OSError(errno.EFBIG, "longer than the kernel writes it")
    return content.decode("utf-8", "surrogateescape")
