# SPDX-License-Identifier: Apache-2.0
"""Pure: the simulated host's GPUs. Its NVML indices and minor numbers differ, as on real hosts after a reset."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

GIB: Final = 1 << 30
MIB: Final = 1 << 20
MODEL: Final = "NVIDIA H100 80GB HBM3"
DRIVER_VERSION: Final = "595.45.04"
MEMORY_TOTAL: Final = 80 * GIB - 512 * MIB
CAPS_MAJOR: Final = 508
"""Of the capability nodes; the kernel gives it out anew each time the driver is loaded."""
SLOTS: Final = 7
"""Compute slices of a GPU of this model."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much of a device is in use, around means that it swings about."""

    memory: int
    """Bytes."""
    busy: float
    """Percent of the time; 0: idle, and what is held stays what it is."""
    period: float = 40
    """Seconds in which it goes up and down once."""

    def memory_used(self, now: float) -> int:
        """Bytes in use at this second since the epoch."""
        return int(self.memory * (1 + 0.1 * self._wave(now))) if self.busy else self.memory

    def percent(self, now: float) -> int:
        """Percent busy at this second."""
        return round(min(100.0, max(0.0, self.busy * (1 + 0.25 * self._wave(now)))))

    def _wave(self, now: float) -> float:
        return math.sin(2 * math.pi * now / self.period)


@dataclass(frozen=True, slots=True)
class SimulatedInstance:
    """One MIG instance; each of this host is a GPU instance with one compute instance."""

    gpu_instance: int
    profile: str
    slices: int
    """Of compute."""
    memory_total: int
    load: Load

    @property
    def uuid(self) -> str:
        """Its name for the driver."""
        return f"MIG-51a7e000-0000-5000-8000-{self.gpu_instance:012x}"

    def capabilities(self, gpu_minor: int) -> tuple[int, int]:
        """The minors of its capability nodes (nv-caps.c of open-gpu-kernel-modules 595): GPU and compute instance."""
        first = 3 + 135 * gpu_minor + 9 * self.gpu_instance
        return first, first + 1


@dataclass(frozen=True, slots=True)
class SimulatedGpu:
    """One GPU."""

    index: int
    minor: int
    load: Load
    instances: tuple[SimulatedInstance, ...] = ()
    """In MIG mode it has some."""

    @property
    def uuid(self) -> str:
        """Its name for the driver."""
        return f"GPU-51a7e000-0000-4000-8000-{self.index:012x}"

    @property
    def address(self) -> str:
        """Its PCI address, as the kernel writes it."""
        return f"0000:{0x1B + 0x10 * self.index:02x}:00.0"

    def memory_used(self, now: float) -> int:
        """Bytes in use at this second: of a partitioned GPU, in use on its instances."""
        if self.instances:
            return sum(instance.load.memory_used(now) for instance in self.instances)
        return self.load.memory_used(now)


_IDLE: Final = Load(3 * MIB, 0)

GPUS: Final = (
    SimulatedGpu(index=0, minor=1, load=Load(61 * GIB, 78)),
    SimulatedGpu(index=1, minor=0, load=Load(61 * GIB, 76)),
    SimulatedGpu(index=2, minor=3, load=Load(60 * GIB, 91, 30)),
    SimulatedGpu(index=3, minor=2, load=Load(62 * GIB, 89, 30)),
    SimulatedGpu(index=4, minor=4, load=Load(33 * GIB, 46, 25)),
    SimulatedGpu(
        index=5,
        minor=5,
        load=_IDLE,
        instances=(
            SimulatedInstance(2, "3g.40gb", 3, 40 * GIB - 512 * MIB, Load(21 * GIB, 64, 20)),
            SimulatedInstance(3, "2g.20gb", 2, 20 * GIB - 256 * MIB, Load(2 * GIB, 0)),
            SimulatedInstance(9, "1g.10gb", 1, 10 * GIB - 128 * MIB, Load(15 * MIB, 0)),
        ),
    ),
    SimulatedGpu(index=6, minor=6, load=Load(12 * GIB, 35, 60)),
    SimulatedGpu(index=7, minor=7, load=_IDLE),
)
