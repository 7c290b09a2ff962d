# SPDX-License-Identifier: Apache-2.0
"""A host to measure on: the cgroups that `trees` makes, and around them the files of a driver.

Without root the tree of a v1 host is made of files, which open faster than the kernel prints rules.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.trees import cgroups
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import CgroupMode
from otel_gpu_cgroup.simulate.containers import SimulatedContainer
from otel_gpu_cgroup.simulate.machine import MODEL
from tests.fakes.fake_nvml import World, environment, uniform_gpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fakes.fake_nvml import FakeGpu

GPUS: Final = 8
PODS_SHARE: Final = 4
"""Containers in a pod."""
_POD: Final = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{0:08x}_0000_4000_8000_000000000000.slice"
_SHARED_MEMORY: Final = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class BenchmarkHost:
    """A host with containers, and the fake driver of its GPUs."""

    root: Path
    library: Path
    """The folder of the fake library."""

    @property
    def counts(self) -> Path:
        """Where the fake library counts calls."""
        return self.root / "counts"

    @property
    def environment(self) -> dict[str, str]:
        """For a process whose driver is to be the fake one."""
        return environment(self.library, self.root / "world", self.counts)


class DirectHost(HostPaths):
    """The same for a process's own use: a real host has no symbolic link on the way to its cgroups."""

    __slots__ = ()

    def under_root(self, path: str) -> Path:
        """Without symbolic links."""
        return super().under_root(path).resolve()


@contextmanager
def benchmark_host(
    library: Path,
    containers: int,
    *,
    gpus_each: int = 1,
    gpus: tuple[FakeGpu, ...] = uniform_gpus(GPUS),
    mode: CgroupMode = CgroupMode.V1,
) -> Iterator[BenchmarkHost]:
    """Containers in pods of four, each with some of the GPUs in turn; all of it is gone in the end."""
    made = [_container(number, gpus_each, len(gpus)) for number in range(containers)]
    shared = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="gpu-cgroup-bench-", dir=shared) as folder:
        root = Path(folder)
        World(gpus=gpus).write(root / "world")
        for gpu in gpus:
            _write_gpu(root, gpu)
        with cgroups(mode, root, made):
            yield BenchmarkHost(root, library)


def _container(number: int, gpus_each: int, gpus: int) -> SimulatedContainer:
    minors = tuple(sorted((number + place) % gpus for place in range(gpus_each)))
    pod = _POD.format(number // PODS_SHARE)
    return SimulatedContainer(f"{pod}/cri-containerd-{number:064x}.scope", minors)


def _write_gpu(root: Path, gpu: FakeGpu) -> None:
    """The driver's file and the place on the bus of a fake GPU, whose bus number is its minor number plus one."""
    address = f"0000:{gpu.minor + 1:02x}:00.0"
    text = f"Model: {MODEL}\nGPU UUID: {gpu.uuid}\nBus Location: {address}\nDevice Minor: {gpu.minor}\n"
    _write(root / "proc/driver/nvidia/gpus" / address / "information", text)
    _write(root / "sys/bus/pci/devices" / address / "vendor", "0x10de\n")
    _write(root / "sys/bus/pci/devices" / address / "class", "0x030200\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
