# SPDX-License-Identifier: Apache-2.0
"""Files of kernfs that are read in every cycle and kept open in between: to open one costs ten times a read.

A cgroup that was removed answers none of its open files, so what a held one says is always said of a cgroup that is
there. As many are held as the process may spare; the others are opened each time.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, TypeVar

from otel_gpu_cgroup.errors import Gone, HostUnreadable
from otel_gpu_cgroup.host import MAX_BYTES, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_CHUNK: Final = 65536
_PAGE: Final = 2048
"""Half of the least page: seq_file (fs/seq_file.c) fills one before it hands out less than it was asked for."""


class HeldFiles:
    """Open files by their paths, of this cycle and the last."""

    def __init__(self, most: int = 0) -> None:
        """Hold at most this many."""
        self._most = most
        self._met: dict[str, int] = {}
        self._met_before: dict[str, int] = {}

    def begin_cycle(self) -> None:
        """Close those that the last cycle did not meet."""
        _close(self._met_before)
        self._met_before, self._met = self._met, {}

    def close(self) -> None:
        """Close all of them."""
        self.begin_cycle()
        self.begin_cycle()

    def read_text(self, path: str) -> str:
        """The whole content of a file, as `host.read_text` gives it; raises as that does."""
        return self.use(path, os.O_RDONLY, _read).decode("utf-8", "surrogateescape")

    def use(self, path: str, flags: int, call: Callable[[int, str], T]) -> T:
        """What the call makes of the open file and its path; one that was held and answers Gone is opened anew, once.

        Raises what the call raises, and Gone or HostUnreadable where the file cannot be opened.
        """
        held = self._met_before.pop(path, None)
        if held is not None:
            self._met[path] = held
        descriptor = self._met.get(path)
        if descriptor is not None:
            try:
                return call(descriptor, path)
            except Gone:
                os.close(self._met.pop(path))
        return self._use_new(path, flags, call)

    def _use_new(self, path: str, flags: int, call: Callable[[int, str], T]) -> T:
        descriptor = _open(path, flags)
        if len(self._met) + len(self._met_before) < self._most:
            self._met[path] = descriptor
            return call(descriptor, path)
        try:
            return call(descriptor, path)
        finally:
            os.close(descriptor)


def _open(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(path, error) from error


def _close(files: dict[str, int]) -> None:
    while files:
        os.close(files.popitem()[1])


def _read(descriptor: int, path: str) -> bytes:
    """From its beginning, which makes the kernel tell anew; what fits into a page, it tells at once."""
    try:
        content = chunk = os.pread(descriptor, _CHUNK, 0)
        while len(content) >= _PAGE and chunk and len(content) <= MAX_BYTES:
            chunk = os.pread(descriptor, _CHUNK, len(content))
            content += chunk
    except OSError as error:
        raise unreadable(path, error) from error
    if len(content) > MAX_BYTES:
        raise HostUnreadable(f"{path!r} holds more than {MAX_BYTES} bytes; it is not what it should be")
    return content
