# SPDX-License-Identifier: Apache-2.0
"""NVML as this package uses it, whoever answers: the driver's library, or the simulated host's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from otel_gpu_cgroup.model import Gpu, GpuUuid, MigInstance
    from otel_gpu_cgroup.nvidia.readings.duty_cycle import Sample


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of one device in bytes; None for what the driver marks as not available."""

    total: int | None
    used: int | None


@dataclass(frozen=True, slots=True)
class ListedProcess:
    """One entry of one of the driver's process lists."""

    pid: int
    memory: int | None
    """Bytes; None for what the driver marks as not available."""
    is_mps: bool = False
    """Whether it is in the list of the clients of the Multi-Process Service."""


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One entry of the driver's utilization by process."""

    pid: int
    stamp: int
    """Microseconds of the clock that `Sample` has."""
    percent: float
    """Of the multiprocessors' time; drivers have been seen to answer more than 100."""


class NvmlDevice(Protocol):
    """A GPU or a MIG instance; every method raises NvmlQueryFailed, or NvmlUnavailable when NVML is down."""

    def memory(self) -> Memory:
        """Total and used; used without the driver's reserve where the driver tells it apart."""
        ...

    def utilization_samples(self) -> tuple[Sample, ...]:
        """The utilization samples that the driver still keeps; empty after a time without work."""
        ...

    def utilization_rate(self) -> int:
        """Percent of the driver's last sample period (1/6 s to 1 s) in which a kernel ran."""
        ...

    def processes(self) -> tuple[ListedProcess, ...]:
        """The entries of all of the driver's lists as they are: a process that is in two of them is here twice."""
        ...

    def process_samples(self, since: int) -> tuple[ProcessSample, ...]:
        """What processes did after the driver's stamp `since` (0: all that it still keeps); empty: nobody did."""
        ...


class NvmlInstance(NvmlDevice, Protocol):
    """One MIG instance; when it is destroyed its handle fails, or comes to mean the next one in its slot."""

    def uuid(self) -> GpuUuid:
        """Of the instance that the handle means now."""
        ...

    def describe(self, parent: GpuUuid, slices: int) -> MigInstance:
        """What it is of its GPU, which has so many compute slices."""
        ...


class NvmlMeter(Protocol):
    """How busy one GPU instance is, from pass to pass."""

    def percent(self, now: float) -> float | None:
        """0..100: the part of the time since the previous call in which it worked; `now` is monotonic seconds.

        None in the first call, and after a time too short or too long; raises as a device's methods do.
        """
        ...

    def release(self) -> None:
        """Give back what it holds of the driver's; never raises."""
        ...


class NvmlGpu(NvmlDevice, Protocol):
    """One GPU as NVML lists it."""

    def identity(self) -> Gpu:
        """Minor number, UUID, model and PCI address."""
        ...

    def is_partitioned(self) -> bool:
        """Whether it is in MIG mode now; raises NvmlUnsupported where it knows no such thing."""
        ...

    def slots(self) -> int:
        """How many instances it can have at most: as many as it has compute slices."""
        ...

    def instance(self, slot: int) -> NvmlInstance | None:
        """The instance in this slot; None where there is none, whatever the slots after it hold."""
        ...

    def meter(self, gpu_instance: int) -> NvmlMeter:
        """A new meter for the GPU instance with this id; asks nothing yet."""
        ...


class Nvml(Protocol):
    """The driver's management library."""

    def start(self) -> None:
        """Initialise it; raises NvmlUnavailable."""
        ...

    def stop(self) -> None:
        """Let go of the driver; never raises."""
        ...

    def driver_version(self) -> str:
        """Such as 595.45.04."""
        ...

    def device_count(self) -> int:
        """How many GPUs it lists."""
        ...

    def device(self, index: int) -> NvmlGpu:
        """The GPU with this index."""
        ...
