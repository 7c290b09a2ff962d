# SPDX-License-Identifier: Apache-2.0
"""The NVML half of a cycle: the library's start and end, and one pass over all GPUs in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_gpu_cgroup.errors import NvmlUnavailable
from otel_gpu_cgroup.model import GpuSnapshot, PciAddress, Problem, Stage
from otel_gpu_cgroup.nvidia.readings.snapshot import Clock, SnapshotReader

if TYPE_CHECKING:
    from otel_gpu_cgroup.nvidia.devices.files import PciBus
    from otel_gpu_cgroup.nvidia.nvml import Nvml


class NvmlPass:
    """The NVML half: starts the library when it has to, and reads all GPUs. For one worker thread alone."""

    def __init__(self, nvml: Nvml, pci: PciBus, clock: Clock) -> None:
        self._nvml = nvml
        self._pci = pci
        self._clock = clock
        self._reader = SnapshotReader(nvml, clock)
        self._started_with: tuple[PciAddress, ...] | None = None
        self.finished_at = clock.monotonic()
        """Monotonic seconds at which a pass last ended; before the first end, those at which this began to be."""

    def read(self) -> GpuSnapshot:
        """One pass; a library that cannot be used is a snapshot with a Problem and no GPUs."""
        taken_at = self._clock.monotonic()
        try:
            self._start()
            return self._reader.read()
        except NvmlUnavailable as error:
            self.stop()
            return GpuSnapshot(taken_at, problems=(Problem(Stage.NVML, "NVML", str(error)),))
        finally:
            self.finished_at = self._clock.monotonic()

    def stop(self) -> None:
        """Let go of NVML if it was started."""
        if self._started_with is not None:
            self._reader.release()
            self._nvml.stop()
            self._started_with = None

    def _start(self) -> None:
        """Start NVML unless it runs with the GPUs that are on the bus now: it lists none that came later."""
        addresses = self._pci.read()
        if self._started_with == addresses:
            return
        self.stop()
        self._nvml.start()
        self._started_with = addresses
        self._reader.forget()
