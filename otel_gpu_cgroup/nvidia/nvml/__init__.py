# SPDX-License-Identifier: Apache-2.0
"""NVML, and the one place that knows pynvml.

Every error of the binding becomes one of ours here. Only getters are called; calls may block for ever, so they
belong on a thread that nobody has to wait for.
"""

from __future__ import annotations

from otel_gpu_cgroup.nvidia.nvml.interface import (
    ListedProcess,
    Memory,
    Nvml,
    NvmlDevice,
    NvmlGpu,
    NvmlInstance,
    NvmlMeter,
    ProcessSample,
)
from otel_gpu_cgroup.nvidia.nvml.library import PyNvml

__all__ = [
    "ListedProcess",
    "Memory",
    "Nvml",
    "NvmlDevice",
    "NvmlGpu",
    "NvmlInstance",
    "NvmlMeter",
    "ProcessSample",
    "PyNvml",
]
