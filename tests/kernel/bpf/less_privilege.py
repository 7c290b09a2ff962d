# SPDX-License-Identifier: Apache-2.0
"""A process with few capabilities that asks what the product asks; its arguments are a cgroup and their numbers.

It drops all others, then prints two lines of JSON: what the query of the cgroup gave and what reading its first
program did, each `["done", ...]` or `[the error's class, its text]`.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.syscall import Bpf
from otel_gpu_cgroup.errors import GpuCgroupError

if TYPE_CHECKING:
    from collections.abc import Callable

_VERSION_3: Final = 0x20080522


def main() -> None:
    cgroup, identifier, *kept = sys.argv[1:]
    _keep({int(number) for number in kept})
    bpf = Bpf()
    _print(lambda: list(bpf.query_effective(cgroup)))
    _print(lambda: [bpf.read_program(int(identifier)).code.hex()])


def _keep(numbers: set[int]) -> None:
    """Give up all capabilities but these (capset(2))."""
    mask = sum(1 << number for number in numbers)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    header, sets = struct.pack("<Ii", _VERSION_3, 0), struct.pack("<6I", low, low, 0, high, high, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


def _print(ask: Callable[[], object]) -> None:
    try:
        answer = ["done", ask()]
    except GpuCgroupError as error:
        answer = [type(error).__name__, str(error)]
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
