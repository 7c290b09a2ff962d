# SPDX-License-Identifier: Apache-2.0
"""One NVML pass: every device is asked once, whatever number of containers may open it.

What one query of one device does not answer is absent; it never costs another value or another device.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Protocol

from otel_gpu_cgroup.model import DeviceKind, GpuProcess, GpuReading, GpuSnapshot
from otel_gpu_cgroup.nvidia.nvml import Memory
from otel_gpu_cgroup.nvidia.readings.duty_cycle import (
    LONGEST_SAMPLE,
    MAX_PERCENT,
    WINDOW,
    Instant,
    mean_percent,
    sample_ages,
)
from otel_gpu_cgroup.nvidia.readings.failures import Failures, Listed
from otel_gpu_cgroup.nvidia.readings.instances import ListedInstance
from otel_gpu_cgroup.nvidia.readings.listing import Listing

if TYPE_CHECKING:
    from otel_gpu_cgroup.nvidia.nvml import Nvml

_NO_MEMORY = Memory(None, None)


class Clock(Protocol):
    """The clocks that a pass reads, in seconds."""

    def monotonic(self) -> float:
        """Never goes back."""
        ...

    def instant(self) -> Instant:
        """Now, on both clocks that drivers stamp samples with."""
        ...


class SystemClock:
    """The kernel's clocks."""

    def monotonic(self) -> float:
        """CLOCK_MONOTONIC."""
        return time.monotonic()

    def instant(self) -> Instant:
        """CLOCK_REALTIME and CLOCK_BOOTTIME."""
        return Instant(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME))


class SnapshotReader:
    """Takes snapshots of all GPUs and their instances."""

    def __init__(self, nvml: Nvml, clock: Clock) -> None:
        self._nvml = nvml
        self._clock = clock
        self._failures = Failures()
        self._listing = Listing(nvml, self._failures)

    def forget(self) -> None:
        """List the GPUs anew in the next pass: NVML was started again, its old handles and indices mean nothing."""
        self._listing.forget()

    def release(self) -> None:
        """Give back what is held of the driver's: NVML is about to be stopped."""
        self._listing.release()

    def read(self) -> GpuSnapshot:
        """One pass over all devices; raises NvmlUnavailable when NVML is down.

        While NVML cannot even count them, they are who they were, and have no readings.
        """
        taken_at, booted_at = self._clock.monotonic(), self._clock.instant().boot
        is_doubtful = self._failures.is_list_doubtful
        self._failures.begin()
        version = self._failures.asked("NVML", self._nvml.driver_version)
        count = self._failures.asked("NVML", self._nvml.device_count)
        if count is not None:
            self._listing.refresh(count, is_doubtful=is_doubtful)
        devices = self._listing.devices
        readings = {} if count is None else {listed.uuid: self._read_device(listed) for listed in devices}
        gpus = tuple(listed.gpu for listed in devices)
        return GpuSnapshot(taken_at, gpus, readings, version, tuple(self._failures.problems), count, booted_at)

    def _read_device(self, listed: Listed) -> GpuReading:
        if listed.silent:
            return GpuReading()
        of_instance = listed.gpu.instance is not None
        reading = self._failures.asked(listed.uuid, partial(self._ask_device, listed), of_instance=of_instance)
        return GpuReading() if reading is None else reading

    def _ask_device(self, listed: Listed) -> GpuReading:
        """All values of one device; raises NvmlDeviceLost when it answers nothing any more."""
        memory = self._memory(listed)
        duty_cycle, busy = self._duty_cycles(listed)
        processes, covered = self._processes(listed, memory.total)
        return GpuReading(
            memory.total, memory.used, duty_cycle, None if busy is None else busy / 100, processes, covered
        )

    def _memory(self, listed: Listed) -> Memory:
        """Total and used; a driver that says more is used than there is says nothing."""
        memory = self._failures.supported(listed, "memory", listed.device.memory) or _NO_MEMORY
        if memory.total is not None and memory.used is not None and memory.used > memory.total:
            message = f"memory: {memory.used} bytes used of {memory.total} cannot be"
            self._failures.report(listed.uuid, message)
            return _NO_MEMORY
        return memory

    def _duty_cycles(self, listed: Listed) -> tuple[float | None, float | None]:
        """Percent busy in the last 10 s, and since the previous pass; None where nobody can tell.

        Of a GPU in MIG mode NVML supports neither samples nor rates, and drivers that answer all the same have been
        seen to do it in other units: it is not asked.
        """
        if listed.gpu.kind is DeviceKind.GPU:
            return self._utilization(listed)
        busy = self._metered(listed) if isinstance(listed, ListedInstance) else None
        return busy, busy

    def _metered(self, listed: ListedInstance) -> float | None:
        """Percent busy since the previous pass by the GPU's counters, where they are this instance's alone."""
        if listed.meter is None:
            return None
        return self._failures.supported(listed, "meter", partial(listed.meter.percent, self._clock.monotonic()))

    def _utilization(self, listed: Listed) -> tuple[float | None, float | None]:
        """By the driver's samples; by its rate where no sample is young enough."""
        duty_cycle, busy = self._sampled(listed)
        if duty_cycle is None or busy is None:
            rate = self._failures.supported(listed, "rate", listed.device.utilization_rate)
            credible = None if rate is None or not 0 <= rate <= MAX_PERCENT else float(rate)
            duty_cycle, busy = (credible if value is None else value for value in (duty_cycle, busy))
        return duty_cycle, busy

    def _sampled(self, listed: Listed) -> tuple[float | None, float | None]:
        samples = self._failures.supported(listed, "samples", listed.device.utilization_samples) or ()
        ages, now = sample_ages(samples, self._clock.instant()), self._clock.monotonic()
        since = WINDOW if listed.read_at is None else max(now - listed.read_at, LONGEST_SAMPLE)
        listed.read_at, listed.ages, listed.newest = now, ages, max((it.stamp for it in samples), default=0)
        return mean_percent(ages, WINDOW), mean_percent(ages, since)

    def _processes(
        self, listed: Listed, memory_total: int | None
    ) -> tuple[tuple[GpuProcess, ...] | None, float | None]:
        """Every process and its use of the time since the previous pass, and of how much of it that is the mean."""
        listing = self._failures.supported(listed, "processes", listed.device.processes)
        since = listed.use.ask_from(listed.newest, self._clock.instant())
        samples = None
        if listed.gpu.kind is DeviceKind.GPU:  # in MIG mode NVML supports it neither for the GPU nor for an instance
            samples = self._failures.supported(listed, "process samples", partial(listed.device.process_samples, since))
        return listed.use.join(listing, samples, listed.ages, self._clock.instant(), memory_total)
