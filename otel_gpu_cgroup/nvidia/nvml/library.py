# SPDX-License-Identifier: Apache-2.0
"""The driver's library through NVIDIA's own binding: which one is loaded, its start and its end."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

import pynvml

from otel_gpu_cgroup.errors import NvmlUnavailable
from otel_gpu_cgroup.nvidia.nvml.asking import ask, reason
from otel_gpu_cgroup.nvidia.nvml.mig import PyNvmlGpu

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from otel_gpu_cgroup.nvidia.nvml.interface import NvmlGpu


class PyNvml:
    """The library through NVIDIA's own binding."""

    def __init__(self, library: Path | None = None, places: tuple[Path, ...] = ()) -> None:
        """Take the library from this path; else from the loader, else from the first place that has it."""
        self._library = library
        self._places = places

    def start(self) -> None:
        """Initialise the first library that can be loaded; raises NvmlUnavailable with what each one answered."""
        reasons: list[str] = []
        for path in self._candidates():
            try:
                if path is not None:
                    _load(path)
                pynvml.nvmlInit()
            except pynvml.NVMLError_LibraryNotFound as error:
                reasons.append(reason(error))
            except (pynvml.NVMLError, OSError) as error:
                raise NvmlUnavailable(reason(error)) from error
            else:
                return
        why = "; ".join(dict.fromkeys(reasons))
        raise NvmlUnavailable(f"{why}; install the NVIDIA driver, or name its library with --nvml-library")

    def _candidates(self) -> Iterator[Path | None]:
        """Paths to try, None for what the loader finds; a driver may be installed while we run."""
        yield self._library
        if self._library is None:
            yield from (place for place in self._places if os.path.exists(place))  # which raises nothing

    def stop(self) -> None:
        """Undo one start; a library that was not started has nothing to undo."""
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return

    def driver_version(self) -> str:
        """As the driver spells it."""
        return str(ask("driver version", pynvml.nvmlSystemGetDriverVersion))

    def device_count(self) -> int:
        """Counts GPUs that the caller may not open, too."""
        return int(ask("device count", pynvml.nvmlDeviceGetCount))

    def device(self, index: int) -> NvmlGpu:
        """Raises when the GPU with this index does not answer."""
        return PyNvmlGpu(index, ask("device handle", lambda: pynvml.nvmlDeviceGetHandleByIndex(index)))


def _load(path: Path) -> None:
    """Map the library; the loader then gives it to whoever asks for its SONAME, as the binding does."""
    try:
        ctypes.CDLL(os.fspath(path))
    except OSError as error:
        raise pynvml.NVMLError_LibraryNotFound from error
