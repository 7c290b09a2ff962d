# SPDX-License-Identifier: Apache-2.0
"""GPUs and MIG instances, and what NVML said of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NewType

from otel_gpu_cgroup.model.devices import DeviceNode, gpu_node
from otel_gpu_cgroup.model.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

GpuUuid = NewType("GpuUuid", str)
"""The driver's name of a GPU, `GPU-…`, or of a MIG instance, `MIG-…`, as NVML spells it: the value of `hw.id`."""


PciAddress = NewType("PciAddress", str)
"""domain:bus:device.function in lower case with a domain of 4 digits, such as `0000:3b:00.0`."""


class DeviceKind(enum.StrEnum):
    """What one device is to those who want to use it."""

    GPU = "gpu"
    """A whole GPU."""
    PARTITIONED = "partitioned"
    """A GPU in MIG mode: only its instances can be used."""
    MIG = "mig"
    """One instance of such a GPU."""


@dataclass(frozen=True, slots=True)
class MigInstance:
    """What makes a device a MIG instance: one compute instance of one GPU instance of its GPU."""

    parent: GpuUuid
    """The UUID of its GPU."""
    gpu_instance: int
    compute_instance: int
    profile: str | None = None
    """Such as `1g.10gb`."""
    fraction: float | None = None
    """Its share of its GPU's compute slices, 0..1."""
    nodes: tuple[DeviceNode, ...] | None = None
    """The capability nodes that a container needs beside its GPU's; None while the driver's files do not tell them."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU or MIG instance, as far as it is known yet; what is in it holds until the device set changes."""

    minor: int
    uuid: GpuUuid | None = None
    """None until the driver has initialised the device once."""
    model: str | None = None
    address: PciAddress | None = None
    index: int | None = None
    """Its NVML index, an instance's GPU's; None while NVML does not list it."""
    is_partitioned: bool = False
    """Whether it is a GPU in MIG mode."""
    instance: MigInstance | None = None
    """None for a physical GPU."""

    @property
    def kind(self) -> DeviceKind:
        """A whole GPU, a partitioned one, or an instance."""
        if self.instance is not None:
            return DeviceKind.MIG
        return DeviceKind.PARTITIONED if self.is_partitioned else DeviceKind.GPU

    @property
    def node(self) -> DeviceNode:
        """The node of the physical GPU."""
        return gpu_node(self.minor)

    @property
    def nodes(self) -> tuple[DeviceNode, ...] | None:
        """All nodes that a container must be able to open to use it; None while they are not known."""
        if self.instance is None:
            return (self.node,)
        return None if self.instance.nodes is None else (self.node, *self.instance.nodes)


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """One process on one GPU, as NVML lists it: once, whichever of the driver's lists it is in."""

    pid: int
    """In the PID namespace of who asked, with drivers that translate pids."""
    memory: int | None = None
    """Bytes; None where the driver does not tell."""
    utilization: float | None = None
    """0..1: its share of the time since the previous pass; 0 where it was not active; None where nobody can tell."""
    sampled_at: float | None = None
    """CLOCK_BOOTTIME seconds of the oldest sample in `utilization`; None where there is no sample."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What NVML said of one GPU at one instant; None for what it did not say."""

    memory_total: int | None = None
    """Bytes."""
    memory_used: int | None = None
    """Bytes in use by anybody, without the driver's own reserve where the driver can tell it apart."""
    duty_cycle: float | None = None
    """0..100: mean of the driver's utilization samples of the last 10 s."""
    utilization: float | None = None
    """0..1: mean of the driver's utilization samples since the previous reading."""
    processes: tuple[GpuProcess, ...] | None = None
    """Every process on it; None where its lists could not be read."""
    covered: float | None = None
    """Seconds up to this reading, and since the previous one, that the processes' utilization is the mean of.

    None where it is not told.
    """


@dataclass(frozen=True, slots=True)
class GpuSnapshot:
    """All readings of one NVML pass."""

    taken_at: float
    """Monotonic seconds at the pass's start."""
    gpus: tuple[Gpu, ...] = ()
    readings: Mapping[GpuUuid, GpuReading] = field(default_factory=dict)
    driver_version: str | None = None
    problems: tuple[Problem, ...] = ()
    count: int | None = None
    """How many GPUs NVML counts, of which it may not name all; None when it did not answer."""
    booted_at: float = 0.0
    """CLOCK_BOOTTIME seconds at the pass's start: a process that began later is none that it lists."""


@dataclass(frozen=True, slots=True)
class DeviceInventory:
    """The GPUs of this host in one cycle, from every source that knows of them."""

    gpus: tuple[Gpu, ...] = ()
    readings: Mapping[GpuUuid, GpuReading] = field(default_factory=dict)
    driver_version: str | None = None
    pci_gpus: int = 0
    """NVIDIA GPUs on the PCI bus, bound to the nvidia driver or to none."""
    nvml_gpus: int | None = None
    """GPUs that NVML counts; None when it has not answered in this cycle."""
    nvml_finished_at: float | None = None
    """Monotonic seconds at which an NVML pass last ended; before the first end, at which the wait for it began."""
    problems: tuple[Problem, ...] = ()
    are_all: bool = True
    """Whether its physical GPUs are as many as NVML counted when it last did."""
    booted_at: float = 0.0
    """CLOCK_BOOTTIME seconds at which the NVML pass began that told the readings."""

    @property
    def pids(self) -> frozenset[int]:
        """Every process on any device."""
        return frozenset(process.pid for reading in self.readings.values() for process in reading.processes or ())
