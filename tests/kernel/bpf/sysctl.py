# SPDX-License-Identifier: Apache-2.0
"""Kernel settings that change what is seen of a program, for a while; in the end they are always as before."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SYSCTL: Final = Path("/proc/sys")
HARDEN: Final = "net/core/bpf_jit_harden"
"""2: constants of all programs are blinded when they are compiled."""
KPTR: Final = "kernel/kptr_restrict"
"""2: addresses are shown to nobody; nor are, then, blinded programs."""


@contextmanager
def hardening(harden: int, kptr: int) -> Iterator[None]:
    """Set both; another test run on this machine waits, or it would restore what this one has set."""
    with (_SYSCTL / HARDEN).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _set(HARDEN, harden), _set(KPTR, kptr):
            yield


@contextmanager
def _set(name: str, value: int) -> Iterator[None]:
    file = _SYSCTL / name
    before = file.read_text()
    file.write_text(f"{value}\n")
    try:
        yield
    finally:
        file.write_text(before)
