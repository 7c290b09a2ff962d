# SPDX-License-Identifier: Apache-2.0
"""An NVML whose GPUs exist in memory alone and whose load moves with the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.errors import NvmlQueryFailed, NvmlUnavailable, NvmlUnsupported
from otel_gpu_cgroup.model import Gpu, GpuUuid, MigInstance, PciAddress
from otel_gpu_cgroup.nvidia.nvml import (
    ListedProcess,
    Memory,
    NvmlGpu,
    NvmlInstance,
    NvmlMeter,
    ProcessSample,
)
from otel_gpu_cgroup.nvidia.readings.duty_cycle import Sample
from otel_gpu_cgroup.simulate.containers import PROCESSES, SimulatedProcess
from otel_gpu_cgroup.simulate.machine import (
    DRIVER_VERSION,
    GPUS,
    MEMORY_TOTAL,
    MODEL,
    SLOTS,
    SimulatedGpu,
    SimulatedInstance,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_SAMPLES: Final = 96
_SAMPLE_SECONDS: Final = 1 / 6


class SimulatedNvml:
    """Answers as a driver does that has the GPUs of the simulated host."""

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        """Loads are a function of this clock, in seconds since the epoch."""
        self._now = wall_clock
        self._started = False

    def start(self) -> None:
        """Always succeeds."""
        self._started = True

    def stop(self) -> None:
        """After this nothing is answered."""
        self._started = False

    def driver_version(self) -> str:
        """A fixed one."""
        self._must_be_started()
        return DRIVER_VERSION

    def device_count(self) -> int:
        """Eight."""
        self._must_be_started()
        return len(GPUS)

    def device(self, index: int) -> NvmlGpu:
        """The GPU with this index."""
        self._must_be_started()
        if index not in range(len(GPUS)):
            raise NvmlQueryFailed(f"device handle: there is no GPU {index}")
        return SimulatedDevice(GPUS[index], self._now)

    def _must_be_started(self) -> None:
        if not self._started:
            raise NvmlUnavailable("Uninitialized")


class SimulatedDevice:
    """One simulated GPU."""

    def __init__(self, gpu: SimulatedGpu, wall_clock: Callable[[], float]) -> None:
        self._gpu = gpu
        self._now = wall_clock

    def identity(self) -> Gpu:
        """As the driver's files tell it, too."""
        gpu = self._gpu
        return Gpu(gpu.minor, GpuUuid(gpu.uuid), MODEL, PciAddress(gpu.address), gpu.index)

    def is_partitioned(self) -> bool:
        """One is."""
        return bool(self._gpu.instances)

    def slots(self) -> int:
        """As the model has."""
        return SLOTS

    def instance(self, slot: int) -> NvmlInstance | None:
        """Those that there are have the first slots."""
        instances = self._gpu.instances
        return SimulatedPart(self._gpu, instances[slot], self._now) if slot < len(instances) else None

    def meter(self, gpu_instance: int) -> NvmlMeter:
        """Of the instance with this id."""
        for instance in self._gpu.instances:
            if instance.gpu_instance == gpu_instance:
                return SimulatedMeter(instance, self._now)
        raise NvmlUnsupported(f"performance counters: there is no GPU instance {gpu_instance}")

    def memory(self) -> Memory:
        """Moves by a tenth where the GPU is busy."""
        return Memory(MEMORY_TOTAL, self._gpu.memory_used(self._now()))

    def utilization_samples(self) -> tuple[Sample, ...]:
        """The last 16 seconds, six a second; an idle GPU's buffer has run dry, and a partitioned one has none."""
        self._must_be_whole("utilization samples")
        if not self._gpu.load.busy:
            return ()
        now = self._now()
        stamps = (now - _SAMPLE_SECONDS * age for age in reversed(range(_SAMPLES)))
        return tuple(Sample(int(stamp * 1e6), self._gpu.load.percent(stamp)) for stamp in stamps)

    def utilization_rate(self) -> int:
        """The value of this instant."""
        self._must_be_whole("utilization rates")
        return self._gpu.load.percent(self._now())

    def processes(self) -> tuple[ListedProcess, ...]:
        """Those of the containers."""
        used = self._gpu.memory_used(self._now())
        return () if self._gpu.instances else tuple(_listed(process, used) for process in self._running())

    def process_samples(self, since: int) -> tuple[ProcessSample, ...]:
        """One of each process that is busy, as new as the newest sample."""
        self._must_be_whole("utilization of processes")
        now = self._now()
        stamp, percent = int(now * 1e6), self._gpu.load.percent(now)
        busy = [process for process in self._running() if percent * process.busy]
        return tuple(ProcessSample(it.pid, stamp, percent * it.busy) for it in busy if stamp > since)

    def _running(self) -> list[SimulatedProcess]:
        return [process for process in PROCESSES if process.minor == self._gpu.minor]

    def _must_be_whole(self, what: str) -> None:
        if self._gpu.instances:
            raise NvmlUnsupported(f"{what}: Not Supported in MIG mode")


class SimulatedPart:
    """One simulated MIG instance."""

    def __init__(self, gpu: SimulatedGpu, instance: SimulatedInstance, wall_clock: Callable[[], float]) -> None:
        self._gpu = gpu
        self._instance = instance
        self._now = wall_clock

    def uuid(self) -> GpuUuid:
        """It is always the same instance."""
        return GpuUuid(self._instance.uuid)

    def describe(self, parent: GpuUuid, slices: int) -> MigInstance:
        """Its profile, and its part of its GPU's slices."""
        instance = self._instance
        return MigInstance(parent, instance.gpu_instance, 0, instance.profile, instance.slices / slices)

    def memory(self) -> Memory:
        """Its own."""
        return Memory(self._instance.memory_total, self._used())

    def utilization_samples(self) -> tuple[Sample, ...]:
        """Drivers have none of instances."""
        raise NvmlUnsupported("utilization samples: Not Supported in MIG mode")

    def utilization_rate(self) -> int:
        """Drivers have none of instances."""
        raise NvmlUnsupported("utilization rates: Not Supported in MIG mode")

    def processes(self) -> tuple[ListedProcess, ...]:
        """Those on this instance."""
        mine = (
            process
            for process in PROCESSES
            if (process.minor, process.gpu_instance) == (self._gpu.minor, self._instance.gpu_instance)
        )
        return tuple(_listed(process, self._used()) for process in mine)

    def process_samples(self, since: int) -> tuple[ProcessSample, ...]:
        """Drivers have none of instances."""
        raise NvmlUnsupported(f"utilization of processes since {since}: Not Supported in MIG mode")

    def _used(self) -> int:
        return self._instance.load.memory_used(self._now())


class SimulatedMeter:
    """How busy one simulated instance is."""

    def __init__(self, instance: SimulatedInstance, wall_clock: Callable[[], float]) -> None:
        self._instance = instance
        self._now = wall_clock
        self._began = False

    def percent(self, now: float) -> float | None:
        """Of this instant, but for the first time, when there is nothing to compare with."""
        del now
        began, self._began = self._began, True
        return float(self._instance.load.percent(self._now())) if began else None

    def release(self) -> None:
        """It holds nothing."""


def _listed(process: SimulatedProcess, used: int) -> ListedProcess:
    return ListedProcess(process.pid, int(used * process.memory))
