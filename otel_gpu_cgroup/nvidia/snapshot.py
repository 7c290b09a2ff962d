# SPDX-License-Identifier: Apache-2.0
"""One NVML pass: every GPU is asked once, whatever number of containers may open it.

What one query of one GPU does not answer is absent; it never costs another value or another GPU.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from otel_gpu_cgroup.errors import NvmlDeviceLost, NvmlQueryFailed, NvmlUnsupported, ParseError
from otel_gpu_cgroup.model import Gpu, GpuProcess, GpuReading, GpuSnapshot, GpuUuid, Problem, Stage
from otel_gpu_cgroup.nvidia.duty_cycle import LONGEST_SAMPLE, MAX_PERCENT, WINDOW, Instant, mean_percent, sample_ages
from otel_gpu_cgroup.nvidia.nvml import Memory, Nvml, NvmlDevice
from otel_gpu_cgroup.nvidia.process_use import ProcessUse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
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


@dataclass(slots=True)
class _Listed:
    """One GPU as NVML lists it, and what is remembered of it from pass to pass."""

    gpu: Gpu
    uuid: GpuUuid
    device: NvmlDevice
    unsupported: set[str] = field(default_factory=set)
    read_at: float | None = None
    """Monotonic seconds of the previous reading."""
    ages: Sequence[tuple[float, float]] = ()
    """Of the utilization samples of this reading."""
    newest: int = 0
    """Stamp of the newest of them; 0 where there is none."""
    use: ProcessUse = field(default_factory=ProcessUse)
    silent: bool = False
    """Whether it does not even say who it is any more; then it is who it was, and is asked nothing."""


class SnapshotReader:
    """Takes snapshots of all GPUs; lists them anew when their number changes or one of them failed."""

    def __init__(self, nvml: Nvml, clock: Clock) -> None:
        self._nvml = nvml
        self._clock = clock
        self._listed: dict[GpuUuid, _Listed] = {}
        self._count: int | None = None
        self._list_anew = True
        self._problems: list[Problem] = []

    def forget(self) -> None:
        """List the GPUs anew in the next pass: NVML was started again, its old handles and indices mean nothing."""
        self._count, self._list_anew = None, True

    def read(self) -> GpuSnapshot:
        """One pass over all GPUs; raises NvmlUnavailable when NVML is down.

        While NVML cannot even count them, they are who they were, and have no readings.
        """
        taken_at, booted_at = self._clock.monotonic(), self._clock.instant().boot
        self._problems = []
        version = self._asked("NVML", self._nvml.driver_version)
        count = self._asked("NVML", self._nvml.device_count)
        if count is not None and (count != self._count or self._list_anew):
            self._list(count)
        listed = () if count is None else tuple(self._listed.values())
        readings = {gpu.uuid: self._read_gpu(gpu) for gpu in listed}
        self._list_anew = bool(self._problems)
        gpus = tuple(gpu.gpu for gpu in self._listed.values())
        return GpuSnapshot(taken_at, gpus, readings, version, tuple(self._problems), count, booted_at)

    def _list(self, count: int) -> None:
        """Ask each GPU who it is; what the same set of GPUs does not support is not asked again.

        While their number stays, one that does not answer (it is lost) is still the one that it was.
        """
        before = {gpu.gpu.index: gpu for gpu in self._listed.values()} if count == self._count else {}
        names = [before[index].uuid if index in before else f"GPU {index}" for index in range(count)]
        found = [self._asked(name, partial(self._identify, index)) for index, name in enumerate(names)]
        listed = self._distinct(found)
        for index, gpu in enumerate(found):
            if gpu is None and index in before and before[index].uuid not in listed:
                listed[before[index].uuid] = replace(before[index], silent=True)
        if listed.keys() == self._listed.keys():
            for uuid, known in self._listed.items():
                listed[uuid].unsupported, listed[uuid].read_at = known.unsupported, known.read_at
                listed[uuid].use = known.use
        self._listed, self._count = listed, count

    def _distinct(self, found: Sequence[_Listed | None]) -> dict[GpuUuid, _Listed]:
        """By UUID; one that bears another's UUID or minor number cannot be told from it."""
        listed: dict[GpuUuid, _Listed] = {}
        for gpu in found:
            if gpu is None:
                continue
            if gpu.uuid in listed or gpu.gpu.minor in {known.gpu.minor for known in listed.values()}:
                message = f"GPU {gpu.gpu.index} has the UUID or the minor number of another; left out"
                self._problems.append(Problem(Stage.NVML, gpu.uuid, message))
            else:
                listed[gpu.uuid] = gpu
        return listed

    def _identify(self, index: int) -> _Listed:
        device = self._nvml.device(index)
        try:
            gpu = device.identity()
        except ParseError as error:
            raise NvmlQueryFailed(str(error)) from error
        if not gpu.uuid:
            raise NvmlQueryFailed("NVML gives no UUID")
        return _Listed(gpu, gpu.uuid, device)

    def _read_gpu(self, listed: _Listed) -> GpuReading:
        reading = None if listed.silent else self._asked(listed.uuid, partial(self._ask_gpu, listed))
        return GpuReading() if reading is None else reading

    def _ask_gpu(self, listed: _Listed) -> GpuReading:
        """All values of one GPU; raises NvmlDeviceLost when it answers nothing any more."""
        memory = self._memory(listed)
        duty_cycle, busy = self._duty_cycles(listed)
        if duty_cycle is None or busy is None:
            rate = self._supported(listed, "rate", listed.device.utilization_rate)
            credible = None if rate is None or not 0 <= rate <= MAX_PERCENT else float(rate)
            duty_cycle, busy = (credible if value is None else value for value in (duty_cycle, busy))
        processes, covered = self._processes(listed, memory.total)
        return GpuReading(
            memory.total, memory.used, duty_cycle, None if busy is None else busy / 100, processes, covered
        )

    def _memory(self, listed: _Listed) -> Memory:
        """Total and used; a driver that says more is used than there is says nothing."""
        memory = self._supported(listed, "memory", listed.device.memory) or _NO_MEMORY
        if memory.total is not None and memory.used is not None and memory.used > memory.total:
            message = f"memory: {memory.used} bytes used of {memory.total} cannot be"
            self._problems.append(Problem(Stage.NVML, listed.uuid, message))
            return _NO_MEMORY
        return memory

    def _duty_cycles(self, listed: _Listed) -> tuple[float | None, float | None]:
        """Percent busy in the last 10 s, and since the previous pass; None where no sample is that young."""
        samples = self._supported(listed, "samples", listed.device.utilization_samples) or ()
        ages, now = sample_ages(samples, self._clock.instant()), self._clock.monotonic()
        since = WINDOW if listed.read_at is None else max(now - listed.read_at, LONGEST_SAMPLE)
        listed.read_at, listed.ages, listed.newest = now, ages, max((it.stamp for it in samples), default=0)
        return mean_percent(ages, WINDOW), mean_percent(ages, since)

    def _processes(
        self, listed: _Listed, memory_total: int | None
    ) -> tuple[tuple[GpuProcess, ...] | None, float | None]:
        """Every process and its use of the time since the previous pass, and of how much of it that is the mean."""
        listing = self._supported(listed, "processes", listed.device.processes)
        since = listed.use.ask_from(listed.newest, self._clock.instant())
        samples = self._supported(listed, "process samples", partial(listed.device.process_samples, since))
        return listed.use.join(listing, samples, listed.ages, self._clock.instant(), memory_total)

    def _supported(self, listed: _Listed, what: str, query: Callable[[], T]) -> T | None:
        """The answer; None when the GPU has no such thing (it is asked once) or failed (a Problem)."""
        if what in listed.unsupported:
            return None
        try:
            return query()
        except NvmlDeviceLost:
            raise
        except NvmlUnsupported:
            listed.unsupported.add(what)
        except NvmlQueryFailed as error:
            self._problems.append(Problem(Stage.NVML, listed.uuid, str(error)))
        return None

    def _asked(self, subject: str, query: Callable[[], T]) -> T | None:
        """The answer, or None and a Problem; that NVML as a whole is down is for the caller."""
        try:
            return query()
        except NvmlQueryFailed as error:
            self._problems.append(Problem(Stage.NVML, subject, str(error)))
            return None
