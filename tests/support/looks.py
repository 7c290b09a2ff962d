# SPDX-License-Identifier: Apache-2.0
"""Lets something happen at the n-th look of this process into a folder, by Python's audit events.

    with at_look(tree, 3, vanish) as looks: ...

An event comes before the kernel is asked, so what `vanish` takes away is gone when it is.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_EVENTS: Final = frozenset({"open", "os.listdir", "os.scandir"})


@dataclass
class Looks:
    """How many there were so far."""

    folder: str
    step: int
    happen: Callable[[], object]
    count: int = 0

    def see(self, path: object) -> None:
        """Of events whose subject this is, those of the folder count."""
        if not isinstance(path, str | os.PathLike) or not os.fspath(path).startswith(self.folder):
            return
        self.count += 1
        if self.count == self.step + 1:
            _watching.remove(self)  # what happens is no look
            try:
                self.happen()
            finally:
                _watching.append(self)


_watching: Final[list[Looks]] = []
"""An audit hook stays for as long as the process, so it is added once and looks here."""


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _EVENTS and _watching and arguments:
        _watching[-1].see(arguments[0])


@cache
def _audit() -> None:
    sys.addaudithook(_hook)


@contextmanager
def at_look(folder: Path, step: int, happen: Callable[[], object]) -> Iterator[Looks]:
    """Call `happen` before the look number `step` (from 0) into anything below the folder."""
    _audit()
    looks = Looks(os.fspath(folder), step, happen)
    _watching.append(looks)
    try:
        yield looks
    finally:
        _watching.remove(looks)
