# SPDX-License-Identifier: Apache-2.0
"""Loads device programs into the kernel and attaches them to cgroups of the unified hierarchy; needs root.

    need_bpf()
    with unified_cgroup() as cgroup, attached(cgroup, code):
        ...

What the product asks of bpf(2) it asks by its own code; this is the other half, which the product never does.
Offsets are those of union bpf_attr in linux/bpf.h (6.18).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import secrets
import struct
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.containers.discovery.mounts import parse_cgroup_mounts, unified_mount
from tests.support.need import need

if TYPE_CHECKING:
    from collections.abc import Iterator

OVERRIDE: Final = 1
"""BPF_F_ALLOW_OVERRIDE: a program of a cgroup below replaces this one there."""
MULTI: Final = 2
"""BPF_F_ALLOW_MULTI: programs of one cgroup and of those below must all allow."""

_NUMBERS: Final = {"x86_64": 321, "aarch64": 280}
_PROG_LOAD: Final = 5
_PROG_ATTACH: Final = 8
_PROG_DETACH: Final = 9
_TYPE_CGROUP_DEVICE: Final = 15
_ATTACH_CGROUP_DEVICE: Final = 6
_LOG: Final = 1 << 20
_ALLOW: Final = bytes.fromhex("b700000001000000 9500000000000000")
"""r0 = 1; exit."""

_libc: Final = ctypes.CDLL(None, use_errno=True)


class Refused(OSError):
    """The kernel does not take a program; `log` has the verifier's reason."""

    def __init__(self, error: int, log: str) -> None:
        super().__init__(error, os.strerror(error))
        self.log = log


def load(code: bytes, name: str = "") -> int:
    """A descriptor of the program, which lives as long as one is open or it is attached; raises Refused."""
    try:
        return _load(code, name, None)
    except Refused as refusal:
        if refusal.errno == errno.E2BIG:
            raise  # a million steps of the verifier are reason enough
        return _load(code, name, ctypes.create_string_buffer(_LOG))  # once more, for the reason


@contextmanager
def loaded(code: bytes, name: str = "") -> Iterator[int]:
    """The program's descriptor, closed in the end."""
    program = load(code, name)
    try:
        yield program
    finally:
        os.close(program)


def attach(cgroup: Path, program: int, flags: int = MULTI) -> None:
    """Let the program decide on the cgroup's devices; it goes with the cgroup. Raises OSError."""
    with _opened(cgroup) as target:
        _call(_PROG_ATTACH, struct.pack("<IIII", target, program, _ATTACH_CGROUP_DEVICE, flags))


def detach(cgroup: Path, program: int) -> None:
    """Take it away again."""
    with _opened(cgroup) as target:
        _call(_PROG_DETACH, struct.pack("<III", target, program, _ATTACH_CGROUP_DEVICE))


@contextmanager
def attached(cgroup: Path, code: bytes, flags: int = MULTI, name: str = "") -> Iterator[int]:
    """Load and attach, and detach in the end."""
    with loaded(code, name) as program:
        attach(cgroup, program, flags)
        try:
            yield program
        finally:
            detach(cgroup, program)


@contextmanager
def unified_cgroup(above: Path | None = None) -> Iterator[Path]:
    """A new cgroup, inside another or at the top; removed in the end, with the programs that are still on it."""
    top = unified_hierarchy() if above is None else above
    assert top is not None
    cgroup = top / f"gpu-cgroup-test-{secrets.token_hex(6)}"
    cgroup.mkdir()
    try:
        yield cgroup
    finally:
        cgroup.rmdir()


def unified_hierarchy() -> Path | None:
    """Where this machine's cgroup2 is mounted; None where it is not."""
    mount = unified_mount(parse_cgroup_mounts(Path("/proc/self/mountinfo").read_text()))
    return None if mount is None else Path(mount.point)


def need_bpf() -> None:
    """Skip (or fail where nothing may be skipped) unless device programs can be loaded and attached here."""
    need(os.geteuid() == 0, "loading device programs needs root")
    need(platform.machine() in _NUMBERS, f"the number of bpf(2) on {platform.machine()} is not known to the tests")
    hierarchy = unified_hierarchy()
    need(hierarchy is not None, "no cgroup2 hierarchy is mounted")
    need(hierarchy is not None and os.access(hierarchy, os.W_OK), "the cgroup2 hierarchy is read-only")
    refusal = _refusal()
    need(refusal is None, f"the kernel takes no device program here: {refusal}")


def _refusal() -> str | None:
    try:
        with unified_cgroup() as cgroup, attached(cgroup, _ALLOW):
            return None
    except OSError as error:
        return str(error)


def _load(code: bytes, name: str, log: ctypes.Array[ctypes.c_char] | None) -> int:
    instructions, terms = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"Apache-2.0")
    logging = (0, 0, 0) if log is None else (1, len(log), ctypes.addressof(log))
    places = (ctypes.addressof(instructions), ctypes.addressof(terms))
    attributes = struct.pack("<IIQQIIQ", _TYPE_CGROUP_DEVICE, len(code) // 8, *places, *logging)
    attributes += struct.pack("<II16sII", 0, 0, name.encode(), 0, _ATTACH_CGROUP_DEVICE)
    try:
        return _call(_PROG_LOAD, attributes)
    except OSError as error:
        reason = "" if log is None else log.value.decode()
        raise Refused(error.errno or errno.EINVAL, reason) from error


def _call(command: int, attributes: bytes) -> int:
    given = ctypes.create_string_buffer(attributes, max(len(attributes), 128))
    result = int(_libc.syscall(_NUMBERS[platform.machine()], command, given, len(given)))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


@contextmanager
def _opened(cgroup: Path) -> Iterator[int]:
    descriptor = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
