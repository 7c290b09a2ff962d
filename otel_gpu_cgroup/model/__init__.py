# SPDX-License-Identifier: Apache-2.0
"""The values that travel through the package, from a cgroup path to a sealed cycle.

Everything here is frozen, but for `ContainerStats`, which lives inside one cycle alone. What the kernel or the
driver does not tell is `None`, never 0.
"""

from __future__ import annotations

from otel_gpu_cgroup.model.containers import (
    CgroupLayout,
    CgroupMode,
    CgroupPath,
    Container,
    Pod,
    Runtime,
    SlurmStep,
)
from otel_gpu_cgroup.model.devices import (
    MOST_GPUS,
    NVIDIA_MAJOR,
    READ_WRITE,
    AccessClass,
    DeviceNode,
    DeviceType,
    Permission,
    PolicySource,
    Verdict,
    gpu_node,
)
from otel_gpu_cgroup.model.gpus import (
    DeviceInventory,
    DeviceKind,
    Gpu,
    GpuProcess,
    GpuReading,
    GpuSnapshot,
    GpuUuid,
    MigInstance,
    PciAddress,
)
from otel_gpu_cgroup.model.problems import (
    Problem,
    Stage,
)
from otel_gpu_cgroup.model.stats import (
    AcceleratorStats,
    Account,
    ContainerReport,
    ContainerStats,
    GpuReport,
    HeldTime,
    NodeStats,
    Ownership,
    OwnShare,
    ProcessOwner,
    RowKey,
    TimeState,
)

__all__ = [
    "MOST_GPUS",
    "NVIDIA_MAJOR",
    "READ_WRITE",
    "AcceleratorStats",
    "AccessClass",
    "Account",
    "CgroupLayout",
    "CgroupMode",
    "CgroupPath",
    "Container",
    "ContainerReport",
    "ContainerStats",
    "DeviceInventory",
    "DeviceKind",
    "DeviceNode",
    "DeviceType",
    "Gpu",
    "GpuProcess",
    "GpuReading",
    "GpuReport",
    "GpuSnapshot",
    "GpuUuid",
    "HeldTime",
    "MigInstance",
    "NodeStats",
    "OwnShare",
    "Ownership",
    "PciAddress",
    "Permission",
    "Pod",
    "PolicySource",
    "Problem",
    "ProcessOwner",
    "RowKey",
    "Runtime",
    "SlurmStep",
    "Stage",
    "TimeState",
    "Verdict",
    "gpu_node",
]
