# SPDX-License-Identifier: Apache-2.0
"""One query of the binding: its answer, or an error of ours in place of whatever it raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import pynvml

from otel_gpu_cgroup.errors import (
    NvmlDeviceLost,
    NvmlQueryFailed,
    NvmlRefused,
    NvmlUnavailable,
    NvmlUnsupported,
    ParseError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

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
_CURE: Final = "run as root, for a GPU in MIG mode in a container with NVIDIA_MIG_MONITOR_DEVICES=all"
_ALL_ONES: Final = 0xFFFFFFFFFFFFFFFF
"""NVML_VALUE_NOT_AVAILABLE as an unsigned 64-bit number."""


def ask(what: str, query: Callable[[], T]) -> T:
    """The answer; raises NvmlQueryFailed, or NvmlUnavailable when NVML is down."""
    try:
        return query()
    except (pynvml.NVMLError, UnicodeDecodeError) as error:
        raise failure(what, error) from error


def if_told(what: str, query: Callable[[], T]) -> T | None:
    """The answer; None when this one query fails, which a GPU can be reported without."""
    try:
        return ask(what, query)
    except (NvmlQueryFailed, ParseError):
        return None


def failure(what: str, error: Exception) -> NvmlQueryFailed | NvmlUnavailable:
    """What an exception of the binding means; `what` names the query to a person."""
    code = getattr(error, "value", None)
    if code in _DOWN:
        return NvmlUnavailable(reason(error))
    if code in _UNSUPPORTED:
        return NvmlUnsupported(f"{what}: {reason(error)}")
    if code in _LOST:
        return NvmlDeviceLost(reason(error))  # whatever was asked
    if code == pynvml.NVML_ERROR_NO_PERMISSION:
        return NvmlRefused(f"{what}: {reason(error)}; {_CURE}")
    return NvmlQueryFailed(f"{what}: {reason(error)}")


def reason(error: BaseException) -> str:
    """One line of what a driver, a stub library or the loader said; the loader's reason is in the context."""
    cause = error.__cause__ or error.__context__
    said = str(cause) if isinstance(cause, OSError) else str(error)
    return " ".join(said.split())[:200] or type(error).__name__


def available(value: int) -> int | None:
    """The number; None where the driver marks it as not available."""
    return None if value == _ALL_ONES else int(value)
