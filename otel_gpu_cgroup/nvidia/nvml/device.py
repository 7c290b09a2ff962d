# SPDX-License-Identifier: Apache-2.0
"""What a GPU and a MIG instance answer alike, through NVIDIA's own binding."""

from __future__ import annotations

from typing import Any, Final

import pynvml

from otel_gpu_cgroup.errors import NvmlUnsupported
from otel_gpu_cgroup.nvidia.nvml.asking import ask, available, failure
from otel_gpu_cgroup.nvidia.nvml.interface import ListedProcess, Memory, ProcessSample
from otel_gpu_cgroup.nvidia.nvml.processes import ProcessLists, read_process_samples
from otel_gpu_cgroup.nvidia.readings.duty_cycle import Sample

_SAMPLE_FIELDS: Final = {
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
}


class PyNvmlDevice:
    """One device through the binding; its handle is dead once NVML was stopped."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._memory_version: int | None = pynvml.nvmlMemory_v2
        self._lists = ProcessLists(handle)

    def memory(self) -> Memory:
        """Asks for version 2 (driver 510 on), and for version 1, whose `used` holds the reserve, where it is not."""
        if self._memory_version is not None:
            try:
                return self._read_memory(self._memory_version)
            except NvmlUnsupported:
                self._memory_version = None
        return self._read_memory(None)

    def _read_memory(self, version: int | None) -> Memory:
        info = ask("memory", lambda: pynvml.nvmlDeviceGetMemoryInfo(self._handle, version))
        return Memory(available(info.total), available(info.used))

    def utilization_samples(self) -> tuple[Sample, ...]:
        """Asks for all of them: a stamp to start from would have to be in the driver's own clock."""
        try:
            value_type, samples = pynvml.nvmlDeviceGetSamples(self._handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
        except pynvml.NVMLError_NotFound:
            return ()
        except pynvml.NVMLError as error:
            raise failure("utilization samples", error) from error
        field = _SAMPLE_FIELDS.get(value_type)
        if field is None:
            raise NvmlUnsupported(f"utilization samples: value type {value_type} is not known")
        return tuple(Sample(item.timeStamp, getattr(item.sampleValue, field)) for item in samples)

    def utilization_rate(self) -> int:
        """The `gpu` part of the utilization rates."""
        return int(ask("utilization rates", lambda: pynvml.nvmlDeviceGetUtilizationRates(self._handle)).gpu)

    def processes(self) -> tuple[ListedProcess, ...]:
        """A list that this device does not have is asked for once; without that of compute processes there is none."""
        return self._lists.read()

    def process_samples(self, since: int) -> tuple[ProcessSample, ...]:
        """One a process, as a rule: the mean over what the driver keeps from `since` on."""
        return read_process_samples(self._handle, since)
