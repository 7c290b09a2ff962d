# SPDX-License-Identifier: Apache-2.0
"""The host's files: where its root is, and bounded reads that fail with an error of ours.

Pseudo-files lie about their size, so a read goes on until the end or the limit. Nothing here ever writes.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from otel_gpu_cgroup.errors import Gone, HostUnreadable

_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ESRCH})
"""ENODEV and ESRCH are what kernfs and procfs answer for something that ended after it was opened."""

MAX_BYTES: Final = 4 << 20
"""No file that this package reads comes near: 248 device rules are 4 KiB, 5000 mounts about 1 MiB."""


@dataclass(frozen=True, slots=True)
class HostPaths:
    """The root of the host that is looked at, and what lies under it."""

    root: Path = Path("/")

    @property
    def proc(self) -> Path:
        """The host's /proc."""
        return self.root / "proc"

    @property
    def sys(self) -> Path:
        """The host's /sys."""
        return self.root / "sys"

    @property
    def mountinfo(self) -> Path:
        """The mounts to look at: the caller's own, or those of a foreign root's first process."""
        process = "self" if self.root == Path("/") else "1"
        return self.proc / process / "mountinfo"

    def under_root(self, path: str) -> Path:
        """Where an absolute path of the host is for this process."""
        return self.root / path.lstrip("/")


def read_text(path: Path | str, limit: int = MAX_BYTES) -> str:
    """The whole content of a (pseudo-)file; bytes that are no UTF-8 become lone surrogates.

    Raises Gone when it is not there, HostUnreadable when it cannot be read or holds more than `limit` bytes.
    """
    return _read(path, os.O_RDONLY, limit)


def read_stored(path: Path | str, limit: int = MAX_BYTES) -> str:
    """The same of a file on a disk, which others than the kernel write: a pipe in its place is not waited for."""
    return _read(path, os.O_RDONLY | os.O_NONBLOCK, limit)


def read_names(path: Path | str, most: int | None = None) -> list[str]:
    """The names in a folder, sorted; no more than `most` of them are looked at. Raises as `read_text` does."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in islice(entries, most))
    except OSError as error:
        raise unreadable(path, error) from error


def read_link(path: Path | str) -> str:
    """What a symbolic link says, whether or not there is such a file; raises as `read_text` does."""
    try:
        return os.readlink(path)
    except OSError as error:
        raise unreadable(path, error) from error


def read_status(path: Path | str) -> os.stat_result:
    """What stat(2) says of a file or folder; raises as `read_text` does."""
    try:
        return os.stat(path)
    except OSError as error:
        raise unreadable(path, error) from error


class Files(Protocol):
    """The reads above, for who takes them as a value: this module is one, a test's may fail where it likes."""

    def read_text(self, path: Path | str, limit: int = MAX_BYTES) -> str:
        """Its content."""
        ...

    def read_stored(self, path: Path | str, limit: int = MAX_BYTES) -> str:
        """The same of a file on a disk."""
        ...

    def read_names(self, path: Path | str, most: int | None = None) -> list[str]:
        """The names in it."""
        ...

    def read_link(self, path: Path | str) -> str:
        """Where it points."""
        ...

    def read_status(self, path: Path | str) -> os.stat_result:
        """Its owner, age and size."""
        ...


def unreadable(path: Path | str, error: OSError) -> HostUnreadable:
    """What an OSError means for a file of the host."""
    kind = Gone if error.errno in _GONE else HostUnreadable
    return kind(f"{os.fspath(path)!r} cannot be read: {error.strerror or error}")


def _read(path: Path | str, flags: int, limit: int) -> str:
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC)
        try:
            content = _read_all(descriptor, limit)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(content) > limit:
        raise HostUnreadable(f"{os.fspath(path)!r} holds more than {limit} bytes; it is not what it should be")
    return content.decode("utf-8", "surrogateescape")


def _read_all(descriptor: int, limit: int) -> bytes:
    chunk = os.read(descriptor, 65536)
    content = chunk
    while chunk and len(content) <= limit:
        chunk = os.read(descriptor, 65536)
        content += chunk
    return content
