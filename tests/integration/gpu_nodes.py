# SPDX-License-Identifier: Apache-2.0
"""GPU nodes in containers of runc: real device nodes without a driver behind them, which access(2) does not need."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, Final

from tests.fakes.fake_nvml import GIB, FakeGpu, FakeMemory
from tests.support.runc import DENY_ALL, Bind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

GPUS: Final = tuple(
    FakeGpu(uuid=f"GPU-{minor}", minor=minor, memory=FakeMemory(total=80 * GIB, used=(minor + 1) * GIB))
    for minor in range(3)
)
ONE_GPU: Final = (DENY_ALL, "allow c 195:0 rw", "allow c 195:255 rw")
EVERY_GPU: Final = (DENY_ALL, "allow c 195:* rw")


def nodes(folder: Path, minors: Sequence[int], mode: int = 0o666) -> list[Bind]:
    """Device nodes, and how a container sees them in its /dev."""
    binds = []
    for minor in minors:
        path = folder / f"nvidia{minor}-{mode:o}"
        if not path.exists():
            os.mknod(path, stat.S_IFCHR | mode, os.makedev(195, minor))
            path.chmod(mode)
        binds.append(Bind(str(path), f"/dev/nvidia{minor}", writable=True))
    return binds


def deny_minor(minor: int) -> bytes:
    """r1 = ctx->minor; r0 = 1; if r1 != MINOR goto exit; r0 = 0; exit."""
    number = minor.to_bytes(4, "little").hex()
    return bytes.fromhex(f"6111080000000000b70000000100000055010100{number}b7000000000000009500000000000000")


def rows(container: dict[str, Any]) -> list[str]:
    """The GPUs that a container of the JSON has, without those that it should have and is denied."""
    return [row["id"] for row in container["accelerators"] if not row["lost"]]


def attributes(log: str, metric: str) -> set[str]:
    """All attributes of the points that the console shows below a metric's heading."""
    words: set[str] = set()
    for block in log.split(f"{metric} [")[1:]:
        for line in block.splitlines()[1:]:
            if not line.startswith("  "):
                break
            words |= set(line.split()[1:])
    return words
