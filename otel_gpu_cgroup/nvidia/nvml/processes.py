# SPDX-License-Identifier: Apache-2.0
"""Who runs on one device, and how much each process uses of it, through NVIDIA's own binding."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pynvml

from otel_gpu_cgroup.errors import NvmlUnsupported
from otel_gpu_cgroup.nvidia.nvml.asking import ask
from otel_gpu_cgroup.nvidia.nvml.interface import ListedProcess, ProcessSample

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_COMPUTE: Final = "Compute"
_MPS: Final = "MPSCompute"
_KINDS: Final = {_COMPUTE: "compute processes", "Graphics": "graphics processes", _MPS: "MPS clients"}
"""What the names of functions have of each list, and what a person is told of it."""
_RETRIES: Final = 2
"""Times that a query is repeated whose answer has grown between the binding's two calls, for the size and for it."""


class ProcessLists:
    """The driver's lists of the processes on one device; one that the device does not have is asked for once."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._versions = dict.fromkeys(_KINDS, _credible_versions())

    def read(self) -> tuple[ListedProcess, ...]:
        """The entries of all lists; raises NvmlUnsupported without that of compute processes, which everybody has."""
        return tuple(process for kind in _KINDS for process in self._list(kind))

    def _list(self, kind: str) -> list[ListedProcess]:
        while self._versions[kind]:
            try:
                return self._ask(kind, self._versions[kind][0])
            except NvmlUnsupported:
                self._versions[kind] = self._versions[kind][1:]
        if kind == _COMPUTE:
            raise NvmlUnsupported("processes: the device has no list of them")
        return []

    def _ask(self, kind: str, version: str) -> list[ListedProcess]:
        query = getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses{version}", None)
        if query is None:
            raise NvmlUnsupported(f"{_KINDS[kind]}: the binding is too old")
        found = ask(_KINDS[kind], lambda: _complete(lambda: query(self._handle)))
        return [ListedProcess(entry.pid, entry.usedGpuMemory, kind == _MPS) for entry in found]


def read_process_samples(handle: Any, since: int) -> tuple[ProcessSample, ...]:
    """What processes did after the driver's stamp `since`."""
    return ask("process utilization", lambda: _complete(lambda: _samples(handle, since)))


def _samples(handle: Any, since: int) -> tuple[ProcessSample, ...]:
    try:
        found = pynvml.nvmlDeviceGetProcessUtilization(handle, since)
    except pynvml.NVMLError as error:
        if error.value in (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND):  # the binding raises success, too
            return ()
        raise
    return tuple(ProcessSample(entry.pid, entry.timeStamp, entry.smUtil) for entry in found)


def _complete(query: Callable[[], T]) -> T:
    for _ in range(_RETRIES):
        with suppress(pynvml.NVMLError_InsufficientSize):
            return query()
    return query()


def _credible_versions() -> tuple[str, ...]:
    """Versions of the lists, the best first.

    Drivers 535.54 to 535.86 give longer structures by version 3 than before and after; they alone have the first of
    these functions without the second.
    """
    has_longer = hasattr(pynvml.nvmlLib, "nvmlDeviceGetConfComputeMemSizeInfo")
    is_mended = hasattr(pynvml.nvmlLib, "nvmlDeviceGetRunningProcessDetailList")
    return ("_v2",) if has_longer and not is_mended else ("_v3", "_v2")
