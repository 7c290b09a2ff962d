# SPDX-License-Identifier: Apache-2.0
"""A bpf(2) whose programs are files of the simulated host: what it hands out is decoded and run as ever."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from otel_gpu_cgroup.cgroup.bpf.syscall import ProgramGone, ProgramInfo
from otel_gpu_cgroup.errors import Gone
from otel_gpu_cgroup.simulate.tree import PROGRAMS, UNIFIED

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class SimulatedBpf:
    """Answers for the cgroups of a simulated host."""

    def __init__(self, root: Path) -> None:
        """Below the same folder that `write_tree` was given."""
        self._unified = root / UNIFIED
        self._programs = root / PROGRAMS
        self._files: dict[int, Path] = {}

    def query_effective(self, cgroup: str) -> tuple[int, ...]:
        """The programs of the cgroup and of all above it, as if each was attached to be asked together."""
        own = self._folder(cgroup)
        return self._ids(folder for folder in (own, *own.parents) if folder.is_relative_to(self._programs))

    def query_local(self, cgroup: str) -> tuple[int, ...]:
        """The programs of the cgroup alone."""
        return self._ids([self._folder(cgroup)])

    def _folder(self, cgroup: str) -> Path:
        """Where the programs of a cgroup lie; raises Gone."""
        if not os.path.isdir(cgroup):
            raise Gone(f"{cgroup!r} has ended")
        return self._programs / os.path.relpath(cgroup, self._unified)

    def _ids(self, folders: Iterable[Path]) -> tuple[int, ...]:
        files = [file for folder in folders for file in sorted(folder.glob("*.bin"))]
        ids = {file.stat().st_ino: file for file in files}
        self._files |= ids
        return tuple(ids)

    def read_program(self, identifier: int) -> ProgramInfo:
        """A file's bytes, under its inode's number; raises ProgramGone."""
        file = self._files.get(identifier)
        if file is None or not file.exists():
            raise ProgramGone(identifier)
        code = file.read_bytes()
        return ProgramInfo(identifier, hashlib.sha1(code, usedforsecurity=False).digest()[:8], "", code, has_maps=False)
