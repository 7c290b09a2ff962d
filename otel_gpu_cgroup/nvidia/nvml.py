# SPDX-License-Identifier: Apache-2.0
"""NVML as this package uses it, and the one file that knows pynvml.

Every error of the binding becomes one of ours here. Only getters are called; calls may block for ever, so they
belong on a thread that nobody has to wait for.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pynvml

from otel_gpu_cgroup.errors import NvmlDeviceLost, NvmlQueryFailed, NvmlUnavailable, NvmlUnsupported, ParseError
from otel_gpu_cgroup.model import Gpu, GpuUuid
from otel_gpu_cgroup.nvidia.duty_cycle import Sample
from otel_gpu_cgroup.nvidia.nodes import parse_pci_address
from otel_gpu_cgroup.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

T = TypeVar("T")

_UNSUPPORTED: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    }
)
"""What a driver answers that is too old, or a device that has no such thing."""
_DOWN: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
"""What no query can be answered after; NVML has to be started anew."""
_LOST: Final = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
_ALL_ONES: Final = 0xFFFFFFFFFFFFFFFF
"""NVML_VALUE_NOT_AVAILABLE as an unsigned 64-bit number."""
_SAMPLE_FIELDS: Final = {
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
}


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of one device in bytes; None for what the driver marks as not available."""

    total: int | None
    used: int | None


class NvmlDevice(Protocol):
    """One GPU as NVML lists it; every method raises NvmlQueryFailed, or NvmlUnavailable when NVML is down."""

    def identity(self) -> Gpu:
        """Minor number, UUID, model and PCI address."""
        ...

    def memory(self) -> Memory:
        """Total and used; used without the driver's reserve where the driver tells it apart."""
        ...

    def utilization_samples(self) -> tuple[Sample, ...]:
        """The utilization samples that the driver still keeps; empty after a time without work."""
        ...

    def utilization_rate(self) -> int:
        """Percent of the driver's last sample period (1/6 s to 1 s) in which a kernel ran."""
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

    def device(self, index: int) -> NvmlDevice:
        """The GPU with this index."""
        ...


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
                reasons.append(_reason(error))
            except (pynvml.NVMLError, OSError) as error:
                raise NvmlUnavailable(_reason(error)) from error
            else:
                return
        reason = "; ".join(dict.fromkeys(reasons))
        raise NvmlUnavailable(f"{reason}; install the NVIDIA driver, or name its library with --nvml-library")

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
        return str(_ask("driver version", pynvml.nvmlSystemGetDriverVersion))

    def device_count(self) -> int:
        """Counts GPUs that the caller may not open, too."""
        return int(_ask("device count", pynvml.nvmlDeviceGetCount))

    def device(self, index: int) -> NvmlDevice:
        """Raises when the GPU with this index does not answer."""
        return PyNvmlDevice(index, _ask("device handle", lambda: pynvml.nvmlDeviceGetHandleByIndex(index)))


class PyNvmlDevice:
    """One GPU through the binding; its handle is dead once NVML was stopped."""

    def __init__(self, index: int, handle: Any) -> None:
        self._index = index
        self._handle = handle
        self._memory_version: int | None = pynvml.nvmlMemory_v2

    def identity(self) -> Gpu:
        """Raises when the minor number or the UUID is not told: nothing can be joined without."""
        handle = self._handle
        return Gpu(
            minor=_ask("minor number", lambda: pynvml.nvmlDeviceGetMinorNumber(handle)),
            uuid=GpuUuid(printable(_ask("UUID", lambda: pynvml.nvmlDeviceGetUUID(handle)))),
            model=_if_told("name", lambda: printable(pynvml.nvmlDeviceGetName(handle))),
            address=_if_told("PCI address", lambda: parse_pci_address(pynvml.nvmlDeviceGetPciInfo(handle).busId)),
            index=self._index,
        )

    def memory(self) -> Memory:
        """Asks for version 2 (driver 510 on), and for version 1, whose `used` holds the reserve, where it is not."""
        if self._memory_version is not None:
            try:
                return self._read_memory(self._memory_version)
            except NvmlUnsupported:
                self._memory_version = None
        return self._read_memory(None)

    def _read_memory(self, version: int | None) -> Memory:
        info = _ask("memory", lambda: pynvml.nvmlDeviceGetMemoryInfo(self._handle, version))
        return Memory(_available(info.total), _available(info.used))

    def utilization_samples(self) -> tuple[Sample, ...]:
        """Asks for all of them: a stamp to start from would have to be in the driver's own clock."""
        try:
            value_type, samples = pynvml.nvmlDeviceGetSamples(self._handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
        except pynvml.NVMLError_NotFound:
            return ()
        except pynvml.NVMLError as error:
            raise _failure("utilization samples", error) from error
        field = _SAMPLE_FIELDS.get(value_type)
        if field is None:
            raise NvmlUnsupported(f"utilization samples: value type {value_type} is not known")
        return tuple(Sample(item.timeStamp, getattr(item.sampleValue, field)) for item in samples)

    def utilization_rate(self) -> int:
        """The `gpu` part of the utilization rates."""
        return int(_ask("utilization rates", lambda: pynvml.nvmlDeviceGetUtilizationRates(self._handle)).gpu)


def _load(path: Path) -> None:
    """Map the library; the loader then gives it to whoever asks for its SONAME, as the binding does."""
    try:
        ctypes.CDLL(os.fspath(path))
    except OSError as error:
        raise pynvml.NVMLError_LibraryNotFound from error


def _ask(what: str, query: Callable[[], T]) -> T:
    try:
        return query()
    except (pynvml.NVMLError, UnicodeDecodeError) as error:
        raise _failure(what, error) from error


def _if_told(what: str, query: Callable[[], T]) -> T | None:
    """The answer; None when this one query fails, which a GPU can be reported without."""
    try:
        return _ask(what, query)
    except (NvmlQueryFailed, ParseError):
        return None


def _failure(what: str, error: Exception) -> NvmlQueryFailed | NvmlUnavailable:
    code = getattr(error, "value", None)
    if code in _DOWN:
        return NvmlUnavailable(_reason(error))
    if code in _UNSUPPORTED:
        return NvmlUnsupported(f"{what}: {_reason(error)}")
    if code in _LOST:
        return NvmlDeviceLost(_reason(error))  # whatever was asked
    return NvmlQueryFailed(f"{what}: {_reason(error)}")


def _reason(error: BaseException) -> str:
    """One line of what a driver, a stub library or the loader said; the loader's reason is in the context."""
    cause = error.__cause__ or error.__context__
    said = str(cause) if isinstance(cause, OSError) else str(error)
    return " ".join(said.split())[:200] or type(error).__name__


def _available(value: int) -> int | None:
    return None if value == _ALL_ONES else int(value)
