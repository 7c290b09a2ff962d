# SPDX-License-Identifier: Apache-2.0
"""The child of `devices_cgroup.KernelOracle`: moves itself into cgroups and asks the kernel about device nodes.

Its first line of input is `[NODES, SPARE]`: for each node its path, mode and device number, and a path for nodes
that it makes itself. Every further line is the cgroup.procs to move to, or null to ask where it is. It answers with
one line: `[]` when it has moved, else for each node the [access(2), open(2)] pairs for reading, writing and both, and
the answer of mknod(2) twice; 0 or an errno each.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MODES: Final = ((os.R_OK, os.O_RDONLY), (os.W_OK, os.O_WRONLY), (os.R_OK | os.W_OK, os.O_RDWR))
_libc: Final = ctypes.CDLL(None, use_errno=True)  # os.access keeps the errno to itself


def main() -> None:
    nodes, spare = json.loads(sys.stdin.readline())
    for line in sys.stdin:
        procs = json.loads(line)
        if procs is not None:
            _move(procs)
        answers = [] if procs else [_asked(path, mode, device, spare) for path, mode, device in nodes]
        sys.stdout.write(json.dumps(answers) + "\n")
        sys.stdout.flush()


def _move(procs: str) -> None:
    with open(procs, "w") as file:
        file.write(str(os.getpid()))


def _asked(path: str, mode: int, device: int, spare: str) -> list[list[int]]:
    answers = [[_access(path, want), _errno_of(partial(_open, path, flags))] for want, flags in _MODES]
    made = _errno_of(partial(_make, spare, mode, device))
    return [*answers, [made, made]]


def _access(path: str, want: int) -> int:
    return 0 if _libc.access(os.fsencode(path), want) == 0 else ctypes.get_errno()


def _open(path: str, flags: int) -> None:
    os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))


def _make(path: str, mode: int, device: int) -> None:
    os.mknod(path, mode, device)
    os.unlink(path)


def _errno_of(call: Callable[[], None]) -> int:
    try:
        call()
    except OSError as error:
        return error.errno or -1
    return 0


if __name__ == "__main__":
    main()
