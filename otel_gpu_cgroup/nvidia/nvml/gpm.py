# SPDX-License-Identifier: Apache-2.0
"""How busy a GPU instance is, by the performance counters that GPUs have from Hopper on (NVML's GPM functions).

The counters are cumulative: a metric is what two samples differ by. The previous one is kept from pass to pass, so
that nobody has to wait between two.
"""

from __future__ import annotations

from typing import Any, Final

import pynvml

from otel_gpu_cgroup.errors import NvmlQueryFailed, NvmlUnsupported
from otel_gpu_cgroup.nvidia.nvml.asking import ask, failure
from otel_gpu_cgroup.nvidia.readings.duty_cycle import MAX_PERCENT

_WHAT: Final = "performance counters"
_SHORTEST: Final = 0.1
"""Seconds between two samples; the counters are refreshed no more often, says nvml.h."""
_LONGEST: Final = 600.0
"""Seconds after which a mean tells nothing of now."""
_EXCESS: Final = 1.0
"""Percent above 100 that the counters' own clock may make of an instance that is always busy."""


class Counters:
    """The performance counters of one GPU; whether it has any is asked once."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._exist: bool | None = None

    def must_exist(self) -> None:
        """Raises NvmlUnsupported where the GPU has none."""
        if self._exist is None:
            self._exist = self._are_there()
        if not self._exist:
            raise NvmlUnsupported(f"{_WHAT}: the GPU or its driver has none")

    def sample(self, gpu_instance: int, buffer: Any) -> None:
        """Read the counters of one GPU instance into a buffer."""
        ask(_WHAT, lambda: pynvml.nvmlGpmMigSampleGet(self._handle, gpu_instance, buffer))

    def _are_there(self) -> bool:
        try:
            return bool(ask(_WHAT, lambda: pynvml.nvmlGpmQueryDeviceSupport(self._handle)).isSupportedDevice)
        except NvmlUnsupported:
            return False


class GpmMeter:
    """How busy one GPU instance is; holds two of the driver's buffers, the older one for the next sample."""

    def __init__(self, counters: Counters, gpu_instance: int) -> None:
        self._counters = counters
        self._gpu_instance = gpu_instance
        self._newest: Any = None
        self._older: Any = None
        self._sampled_at: float | None = None

    def percent(self, now: float) -> float | None:
        """After less than 100 ms the older sample is kept, and nothing is told."""
        self._counters.must_exist()
        elapsed = None if self._sampled_at is None else now - self._sampled_at
        if elapsed is not None and elapsed < _SHORTEST:
            return None
        self._sample(now)
        return None if elapsed is None or elapsed > _LONGEST else _busy(self._older, self._newest)

    def release(self) -> None:
        """Free both buffers."""
        for buffer in (self._newest, self._older):
            if buffer is not None:
                _free(buffer)
        self._newest = self._older = self._sampled_at = None

    def _sample(self, now: float) -> None:
        if self._older is None:
            self._older = ask(_WHAT, pynvml.nvmlGpmSampleAlloc)
        try:
            self._counters.sample(self._gpu_instance, self._older)
        except NvmlQueryFailed:
            self._sampled_at = None  # the next one may be of another instance with the same id
            raise
        self._newest, self._older = self._older, self._newest
        self._sampled_at = now


def _busy(first: Any, second: Any) -> float | None:
    """0..100: the part of the time between two samples; None for what cannot be."""
    wanted = pynvml.c_nvmlGpmMetricsGet_t()
    wanted.version, wanted.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, 1
    wanted.sample1, wanted.sample2 = first, second
    metric = wanted.metrics[0]
    metric.metricId = pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL
    ask(_WHAT, lambda: pynvml.nvmlGpmMetricsGet(wanted))
    if metric.nvmlReturn != pynvml.NVML_SUCCESS:
        raise failure(_WHAT, pynvml.NVMLError(metric.nvmlReturn))
    percent = float(metric.value)
    return min(percent, float(MAX_PERCENT)) if 0 <= percent <= MAX_PERCENT + _EXCESS else None


def _free(buffer: Any) -> None:
    try:
        pynvml.nvmlGpmSampleFree(buffer)
    except pynvml.NVMLError:
        return  # the driver has gone, and the buffer with it
