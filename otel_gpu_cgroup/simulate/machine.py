# SPDX-License-Identifier: Apache-2.0
"""Pure: what the simulated host has. Its NVML indices and minor numbers differ, as on real hosts after a reset."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

GIB: Final = 1 << 30
MODEL: Final = "NVIDIA H100 80GB HBM3"
DRIVER_VERSION: Final = "595.45.04"
MEMORY_TOTAL: Final = 80 * GIB - 512 * (1 << 20)


@dataclass(frozen=True, slots=True)
class SimulatedGpu:
    """One GPU: who it is, and around which values its load moves."""

    index: int
    minor: int
    memory: int
    """Bytes in use when its load is at its mean."""
    busy: float
    """Mean percent of the time in which it is busy."""
    period: float
    """Seconds in which its load goes up and down once."""

    @property
    def uuid(self) -> str:
        """Its name for the driver."""
        return f"GPU-51a7e000-0000-4000-8000-{self.index:012x}"

    @property
    def address(self) -> str:
        """Its PCI address, as the kernel writes it."""
        return f"0000:{0x1B + 0x10 * self.index:02x}:00.0"

    def memory_used(self, now: float) -> int:
        """Bytes in use at this second; an idle GPU holds what it held."""
        return int(self.memory * (1 + 0.1 * self._wave(now))) if self.busy else self.memory

    def percent(self, now: float) -> int:
        """Percent busy at this second."""
        return round(min(100.0, max(0.0, self.busy * (1 + 0.25 * self._wave(now)))))

    def _wave(self, now: float) -> float:
        return math.sin(2 * math.pi * now / self.period)


@dataclass(frozen=True, slots=True)
class SimulatedContainer:
    """One container: its cgroup, and the device rules that its runtime gives it."""

    cgroup: str
    minors: tuple[int, ...] = ()
    """GPUs that it was given; its devices.list, where the host has cgroup v1, is made of them."""
    privileged: bool = False
    programs: tuple[str, ...] = ()
    """Those on its cgroup where the host has cgroup v2, by file of the folder programs/."""

    def devices_list(self) -> str:
        """Its devices.list, in the words of the kernel; the rules are those of runc and NVIDIA's container toolkit."""
        if self.privileged:
            return "a *:* rwm\n"
        gpus = [f"c 195:{minor} rw" for minor in self.minors]
        shared = ["c 195:255 rw", "c 195:254 rw", "c 507:0 rw", "c 507:1 rw"] if gpus else []
        return "".join(f"{rule}\n" for rule in (*_BASE_RULES, *shared, *gpus))


_BASE_RULES: Final = (
    "c *:* m",
    "b *:* m",
    "c 1:3 rwm",
    "c 1:8 rwm",
    "c 1:7 rwm",
    "c 5:0 rwm",
    "c 1:5 rwm",
    "c 1:9 rwm",
    "c 5:1 rwm",
    "c 136:* rwm",
    "c 5:2 rwm",
)

GPUS: Final = (
    SimulatedGpu(index=0, minor=1, memory=61 * GIB, busy=78, period=40),
    SimulatedGpu(index=1, minor=0, memory=61 * GIB, busy=76, period=40),
    SimulatedGpu(index=2, minor=3, memory=60 * GIB, busy=77, period=40),
    SimulatedGpu(index=3, minor=2, memory=62 * GIB, busy=79, period=40),
    SimulatedGpu(index=4, minor=4, memory=33 * GIB, busy=46, period=25),
    SimulatedGpu(index=5, minor=5, memory=9 * GIB, busy=12, period=60),
    SimulatedGpu(index=6, minor=6, memory=24 * GIB, busy=0, period=60),
    SimulatedGpu(index=7, minor=7, memory=3 << 20, busy=0, period=60),
)


def _id(word: str) -> str:
    """A runtime's 64 hexadecimal digits, with a beginning that can be told apart."""
    return word.ljust(64, "0")


_POD: Final = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-{id}.scope"

CONTAINERS: Final = (
    # four GPUs to one training job
    SimulatedContainer(
        _POD.format(uid="7a1de000_0000_4000_8000_000000000001", id=_id("7a1de4")),
        programs=("runc-gpus-0-1-2-3",),
        minors=(0, 1, 2, 3),
    ),
    # one GPU, shared by two servers; systemd, too, keeps to the rules of the second
    SimulatedContainer(
        _POD.format(uid="5e4e0000_0000_4000_8000_000000000002", id=_id("5e4e1")),
        programs=("runc-gpu-4",),
        minors=(4,),
    ),
    SimulatedContainer(
        f"/system.slice/docker-{_id('5e4e2')}.scope",
        programs=("runc-gpu-4", "systemd-assembled-gpu-4"),
        minors=(4,),
    ),
    # a notebook, and one that holds its GPU without using it
    SimulatedContainer(f"/machine.slice/libpod-{_id('0b00c')}.scope", programs=("crun-gpu-5",), minors=(5,)),
    SimulatedContainer(
        f"/kubepods.slice/kubepods-pod1d1e0000_0000_4000_8000_000000000003.slice/crio-{_id('1d1e')}.scope",
        programs=("crun-gpu-6",),
        minors=(6,),
    ),
    # one that may open everything, and one that may open no GPU
    SimulatedContainer(f"/system.slice/docker-{_id('f4ee')}.scope", programs=("runc-privileged",), privileged=True),
    SimulatedContainer(f"/docker/{_id('3eb')}", programs=("runc-no-gpu",)),
)
