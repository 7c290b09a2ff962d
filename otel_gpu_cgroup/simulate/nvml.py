# SPDX-License-Identifier: Apache-2.0
"""An NVML whose GPUs exist in memory alone and whose load moves with the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.errors import NvmlQueryFailed, NvmlUnavailable, NvmlUnsupported
from otel_gpu_cgroup.model import Gpu, GpuUuid, PciAddress
from otel_gpu_cgroup.nvidia.duty_cycle import Sample
from otel_gpu_cgroup.nvidia.nvml import ListedProcess, Memory, NvmlGpu, NvmlInstance, NvmlMeter, ProcessSample
from otel_gpu_cgroup.simulate.machine import DRIVER_VERSION, GPUS, MEMORY_TOTAL, MODEL, SimulatedGpu

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
        """It knows no such thing."""
        raise NvmlUnsupported("MIG mode: the simulated GPU has none")

    def slots(self) -> int:
        """None."""
        return 0

    def instance(self, slot: int) -> NvmlInstance | None:  # noqa: ARG002  # there is none
        """None."""
        return None

    def meter(self, gpu_instance: int) -> NvmlMeter:
        """There is no instance to measure."""
        raise NvmlUnsupported(f"performance counters: there is no GPU instance {gpu_instance}")

    def memory(self) -> Memory:
        """Moves by a tenth where the GPU is busy."""
        return Memory(MEMORY_TOTAL, self._gpu.memory_used(self._now()))

    def utilization_samples(self) -> tuple[Sample, ...]:
        """The last 16 seconds, six a second; an idle GPU's buffer has run dry."""
        if not self._gpu.busy:
            return ()
        now = self._now()
        stamps = (now - _SAMPLE_SECONDS * age for age in reversed(range(_SAMPLES)))
        return tuple(Sample(int(stamp * 1e6), self._gpu.percent(stamp)) for stamp in stamps)

    def utilization_rate(self) -> int:
        """The value of this instant."""
        return self._gpu.percent(self._now())

    def processes(self) -> tuple[ListedProcess, ...]:
        """None."""
        return ()

    def process_samples(self, since: int) -> tuple[ProcessSample, ...]:  # noqa: ARG002  # there are none
        """None."""
        return ()
