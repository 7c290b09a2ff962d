# SPDX-License-Identifier: Apache-2.0
"""bpf(2): which device programs decide on a cgroup, and their instructions. Only queries.

Attributes are those of linux/bpf.h (6.18). Every call gets a fresh zeroed buffer of 128 bytes: kernels from 6.17 until
7.2 write the field `revision` at 56 whatever size the caller says, and leave outputs in it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass
from typing import Final

from otel_gpu_cgroup.errors import Gone, PolicyUnreadable
from otel_gpu_cgroup.held import HeldFiles

_NUMBERS: Final = {"x86_64": 321, "aarch64": 280, "ppc64le": 361, "s390x": 351, "riscv64": 280}
_PROG_GET_FD_BY_ID: Final = 13
_OBJ_GET_INFO_BY_FD: Final = 15
_PROG_QUERY: Final = 16
_CGROUP_DEVICE: Final = 6
_QUERY_EFFECTIVE: Final = 1
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY
_BUFFER: Final = 128
_INFO: Final = 256
"""More than struct bpf_prog_info has (232 bytes in 6.18); the kernel takes a larger one if the rest is zero."""
_IDS: Final = 64
"""As many programs as one cgroup can have; along a path there may be more, which ENOSPC tells."""
_DENIED: Final = frozenset({errno.EPERM, errno.EACCES})
_ENDED: Final = frozenset({errno.ENOENT, errno.ENODEV})
"""What a query of a cgroup gets that was removed after its folder was opened; ENOENT in 6.18."""


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """A device program as the kernel has it."""

    id: int
    tag: bytes
    """Hash of the instructions as they were loaded: equal for equal programs, also where the kernel blinds them."""
    name: str
    code: bytes
    has_maps: bool


class ProgramGone(Exception):
    """The program was detached and freed after its id was told; the query has to be made again."""


class Bpf:
    """The system call, as far as it only asks."""

    def __init__(self, files: HeldFiles | None = None) -> None:
        """Cgroup folders are held open where `files` may hold them."""
        self._files = files or HeldFiles()
        libc = ctypes.CDLL(None, use_errno=True)
        self._syscall = libc.syscall
        self._syscall.restype = ctypes.c_long
        self._number = _NUMBERS.get(platform.machine())

    def query_effective(self, cgroup: str) -> tuple[int, ...]:
        """Ids of all programs that decide on devices for the processes in this cgroup2 folder; all must allow.

        Empty: nothing restricts. Raises Gone when the cgroup has ended, PolicyUnreadable when the kernel refuses.
        """
        return self._files.use(cgroup, _FOLDER, self._effective_ids)

    def query_local(self, cgroup: str) -> tuple[int, ...]:
        """Ids of the programs on this cgroup2 folder itself, in effect or not; raises as `query_effective` does."""
        return self._files.use(cgroup, _FOLDER, self._ids)

    def _effective_ids(self, descriptor: int, cgroup: str) -> tuple[int, ...]:
        return self._ids(descriptor, cgroup, _QUERY_EFFECTIVE)

    def _ids(self, descriptor: int, cgroup: str, flags: int = 0) -> tuple[int, ...]:
        room = _IDS
        while True:
            ids = (ctypes.c_uint32 * room)()
            query = (descriptor, _CGROUP_DEVICE, flags, 0, ctypes.addressof(ids), room)
            attributes = _attributes("<IIIIQI", *query)
            error, _ = self._call(_PROG_QUERY, attributes)
            (count,) = struct.unpack_from("<I", attributes, 24)
            if error == 0:
                return tuple(ids[:count])
            if error != errno.ENOSPC:
                raise _refused(f"the device programs of {cgroup!r}", error, "CAP_SYS_ADMIN and CAP_NET_ADMIN")
            room = max(count, 2 * room)

    def read_program(self, identifier: int) -> ProgramInfo:
        """A program with its instructions; raises ProgramGone, or PolicyUnreadable when the kernel hides them."""
        error, descriptor = self._call(_PROG_GET_FD_BY_ID, _attributes("<I", identifier))
        if error == errno.ENOENT:
            raise ProgramGone(identifier)
        if error:
            raise _refused(f"device program {identifier}", error, "CAP_SYS_ADMIN")
        try:
            return self._read_info(identifier, descriptor)
        finally:
            os.close(descriptor)

    def _read_info(self, identifier: int, descriptor: int) -> ProgramInfo:
        """Two calls: the length of the instructions, then they themselves."""
        (size,) = struct.unpack_from("<I", self._info(identifier, descriptor, None), 20)
        code = ctypes.create_string_buffer(max(size, 1))
        info = self._info(identifier, descriptor, code)
        shown, at = struct.unpack_from("<I", info, 20)[0], struct.unpack_from("<Q", info, 32)[0]
        # where constants are blinded and addresses hidden, the kernel keeps the length and drops the pointer
        if size == 0 or shown != size or at == 0:
            raise PolicyUnreadable(
                f"the kernel hides the instructions of device program {identifier}; CAP_SYS_ADMIN is needed, and "
                "kernel.kptr_restrict below 2 where net.core.bpf_jit_harden is 2"
            )
        name = info[64:80].split(b"\0", 1)[0].decode("ascii", "replace")
        has_maps = struct.unpack_from("<I", info, 52)[0] > 0
        return ProgramInfo(identifier, info[8:16], name, code.raw[:size], has_maps)

    def _info(self, identifier: int, descriptor: int, code: ctypes.Array[ctypes.c_char] | None) -> bytes:
        """The struct bpf_prog_info of an open program; into a buffer for its instructions the kernel puts them, too."""
        info = ctypes.create_string_buffer(_INFO)
        if code is not None:
            struct.pack_into("<I", info, 20, len(code))
            struct.pack_into("<Q", info, 32, ctypes.addressof(code))
        error, _ = self._call(_OBJ_GET_INFO_BY_FD, _attributes("<IIQ", descriptor, _INFO, ctypes.addressof(info)))
        if error:
            raise _refused(f"device program {identifier}", error, "CAP_SYS_ADMIN")
        return info.raw

    def _call(self, command: int, attributes: ctypes.Array[ctypes.c_char]) -> tuple[int, int]:
        """The errno (0: none), and what the call returned."""
        if self._number is None:
            return errno.ENOSYS, -1
        result = self._syscall(self._number, command, attributes, _BUFFER)
        return (0, result) if result >= 0 else (ctypes.get_errno(), -1)


def _attributes(form: str, *fields: int) -> ctypes.Array[ctypes.c_char]:
    """A fresh union bpf_attr that begins with these fields."""
    attributes = ctypes.create_string_buffer(_BUFFER)
    struct.pack_into(form, attributes, 0, *fields)
    return attributes


def _refused(what: str, error: int, capability: str) -> PolicyUnreadable | Gone:
    if error in _ENDED:
        return Gone(f"{what}: the cgroup has ended")
    if error in _DENIED:
        return PolicyUnreadable(f"refused: only {capability} can see what cgroup v2 allows", "bpf(2)")
    return PolicyUnreadable(f"{what} cannot be read: {os.strerror(error)}")
