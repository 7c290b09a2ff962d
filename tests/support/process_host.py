# SPDX-License-Identifier: Apache-2.0
"""A host of files with processes in it, where any read may fail; and what NVML would list of it."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.containers.processes.files import Identity, ProcessFiles, ProcessSource
from otel_gpu_cgroup.containers.processes.table import ProcessTable
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import (
    CgroupPath,
    Container,
    DeviceInventory,
    Gpu,
    GpuProcess,
    GpuReading,
    GpuUuid,
    Ownership,
    Runtime,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

UUID: Final = GpuUuid("GPU-1")
STAT: Final = "{pid} ({name}) S 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} 4595712 425 1\n"
LISTED_AT: Final = 100.0
"""CLOCK_BOOTTIME seconds of the NVML pass."""


class Host:
    """A folder with a /proc in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(
        self, pid: int, cgroup: str, *, ticks: int = 1000, name: str = "python", flags: int = 0, line: str = "5:devices"
    ) -> None:
        """A process, as if it were another one than any that had its pid."""
        folder = self.root / "proc" / str(pid)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "cgroup").write_text(f"4:memory:/elsewhere\n{line}:{cgroup}\n")
        (folder / "stat").write_text(STAT.format(pid=pid, name=name, flags=flags, ticks=ticks))

    def move(self, pid: int, cgroup: str, line: str = "5:devices") -> None:
        """The same process, in another cgroup."""
        (self.root / "proc" / str(pid) / "cgroup").write_text(f"{line}:{cgroup}\n")

    def end(self, pid: int) -> None:
        shutil.rmtree(self.root / "proc" / str(pid))

    def mount(self, root: str, kind: str = "cgroup cgroup rw,devices") -> None:
        """Show the hierarchy from this cgroup on."""
        (self.root / "proc/1").mkdir(parents=True, exist_ok=True)
        (self.root / "proc/1/mountinfo").write_text(f"33 31 0:29 {root} /sys/fs/cgroup rw - {kind}\n")

    def table(self, source: ProcessSource | None = None, *, own_only: bool = False) -> ProcessTable:
        return ProcessTable(HostPaths(self.root), own_only=own_only, is_host=False, source=source or self.files())

    def files(self) -> ProcessFiles:
        return ProcessFiles(self.root / "proc", is_kernels=False)


def container(path: str, *, is_v1: bool = True, inode: int = 1) -> Container:
    identity = path.rpartition("/")[2]
    return Container(CgroupPath(path), Runtime.DOCKER, identity, devices=f"/x{path}" if is_v1 else None, inode=inode)


def inventory(*pids: int, listed_at: float = LISTED_AT) -> DeviceInventory:
    reading = GpuReading(processes=tuple(GpuProcess(pid) for pid in pids))
    return DeviceInventory((Gpu(0, UUID),), {UUID: reading}, "580.65.06", booted_at=listed_at)


def keys(ownership: Ownership) -> dict[int, str | None]:
    return {pid: owner.container for pid, owner in ownership.owners.items()}


ONE: Final = container("/docker/one")
TWO: Final = container("/docker/two")
INNER: Final = container("/docker/one/docker/inner")
BOTH: Final = [ONE, TWO, INNER]


class Source:
    """The files; before the n-th answer something may happen, which may be an error."""

    def __init__(self, files: ProcessSource, at: int | None = None, happen: Callable[[], object] | None = None) -> None:
        self._files = files
        self.at = at
        self.happen = happen
        self.asked: Counter[str] = Counter()
        self.hidden: frozenset[int] = frozenset()

    def _count(self, what: str) -> None:
        number = self.asked.total()
        self.asked[what] += 1
        if number == self.at and self.happen is not None:
            self.happen()

    def identify(self, pid: int) -> Identity:
        self._count("identify")
        return self._files.identify(pid)

    def read_cgroup(self, pid: int) -> str:
        self._count("cgroup")
        return self._files.read_cgroup(pid)

    def read_stat(self, pid: int) -> tuple[Identity, str]:
        self._count("stat")
        return self._files.read_stat(pid)

    def is_there(self, pid: int) -> bool:
        return pid in self.hidden


class OneLife(Source):
    """Whatever is written into its files, it is always the same process."""

    def identify(self, pid: int) -> Identity:
        return pid, 0

    def read_stat(self, pid: int) -> tuple[Identity, str]:
        return (pid, 0), super().read_stat(pid)[1]
