# SPDX-License-Identifier: Apache-2.0
"""A GPU, and the MIG instances that it may be cut into, through NVIDIA's own binding."""

from __future__ import annotations

import math
import re
from typing import Any, Final

import pynvml

from otel_gpu_cgroup.model import Gpu, GpuUuid, MigInstance
from otel_gpu_cgroup.nvidia.devices.nodes import parse_pci_address
from otel_gpu_cgroup.nvidia.nvml.asking import ask, failure, if_told
from otel_gpu_cgroup.nvidia.nvml.device import PyNvmlDevice
from otel_gpu_cgroup.nvidia.nvml.gpm import Counters, GpmMeter
from otel_gpu_cgroup.printable import printable

_MOST_SLOTS: Final = 64
"""GPUs have up to 7; it is only that a wrong number cannot keep a pass busy."""
_PROFILE: Final = re.compile(r".* MIG ((?:[0-9]{1,2}c\.)?[0-9]{1,2}g\.[0-9]{1,4}gb[-+.a-z]{0,16})")
_MIB_PER_GIB: Final = 1024


class PyNvmlGpu(PyNvmlDevice):
    """One physical GPU."""

    def __init__(self, index: int, handle: Any) -> None:
        super().__init__(handle)
        self._index = index
        self._counters = Counters(handle)

    def identity(self) -> Gpu:
        """Raises when the minor number or the UUID is not told: nothing can be joined without."""
        handle = self._handle
        return Gpu(
            minor=ask("minor number", lambda: pynvml.nvmlDeviceGetMinorNumber(handle)),
            uuid=GpuUuid(printable(ask("UUID", lambda: pynvml.nvmlDeviceGetUUID(handle)))),
            model=if_told("name", lambda: printable(pynvml.nvmlDeviceGetName(handle))),
            address=if_told("PCI address", lambda: parse_pci_address(pynvml.nvmlDeviceGetPciInfo(handle).busId)),
            index=self._index,
        )

    def is_partitioned(self) -> bool:
        """By the current mode; a pending one means nothing until the GPU is reset."""
        current, _ = ask("MIG mode", lambda: pynvml.nvmlDeviceGetMigMode(self._handle))
        return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)

    def slots(self) -> int:
        """NVML has no name for the number of compute slices; a MIG device takes one at least, and may take one."""
        told = ask("MIG device count", lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(self._handle))
        return min(int(told), _MOST_SLOTS)

    def instance(self, slot: int) -> PyNvmlInstance | None:
        """By a handle that was asked for anew."""
        try:
            return PyNvmlInstance(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(self._handle, slot))
        except pynvml.NVMLError_NotFound:
            return None
        except pynvml.NVMLError as error:
            raise failure("MIG device handle", error) from error

    def meter(self, gpu_instance: int) -> GpmMeter:
        """Of Hopper's counters."""
        return GpmMeter(self._counters, gpu_instance)


class PyNvmlInstance(PyNvmlDevice):
    """One MIG instance."""

    def uuid(self) -> GpuUuid:
        """As NVML spells it: `MIG-UUID`, of old drivers `MIG-GPU-UUID/GI/CI`."""
        return GpuUuid(printable(ask("UUID", lambda: pynvml.nvmlDeviceGetUUID(self._handle))))

    def describe(self, parent: GpuUuid, slices: int) -> MigInstance:
        """Raises when its two ids are not told: without them nobody can say who may open it."""
        handle = self._handle
        name = if_told("name", lambda: str(pynvml.nvmlDeviceGetName(handle)))
        attributes = if_told("attributes", lambda: pynvml.nvmlDeviceGetAttributes_v2(handle))
        return MigInstance(
            parent=parent,
            gpu_instance=int(ask("GPU instance id", lambda: pynvml.nvmlDeviceGetGpuInstanceId(handle))),
            compute_instance=int(ask("compute instance id", lambda: pynvml.nvmlDeviceGetComputeInstanceId(handle))),
            profile=parse_profile(name or "") or (None if attributes is None else profile_of(attributes)),
            fraction=None if attributes is None else fraction_of(attributes, slices),
        )


def parse_profile(name: str) -> str | None:
    """The profile at the end of an instance's name, such as `1g.10gb`, `1c.3g.40gb` or `1g.10gb+me`."""
    match = _PROFILE.fullmatch(name)
    return None if match is None else match[1]


def profile_of(attributes: Any) -> str | None:
    """The same from NVML's attributes, by their slices; memory is a little less than what a profile is called by."""
    of_gpu, of_instance = int(attributes.gpuInstanceSliceCount), int(attributes.computeInstanceSliceCount)
    memory = math.ceil(attributes.memorySizeMB / _MIB_PER_GIB)
    if not 0 < of_instance <= of_gpu:
        return None
    part = "" if of_instance == of_gpu else f"{of_instance}c."
    return f"{part}{of_gpu}g.{memory}gb"


def fraction_of(attributes: Any, slices: int) -> float | None:
    """The part of the GPU's compute slices, 0..1; None where the numbers cannot be."""
    own = int(attributes.computeInstanceSliceCount)
    return own / slices if 0 < own <= slices else None
