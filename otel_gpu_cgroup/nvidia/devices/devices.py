# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA devices of this host: what NVML, the driver's files and the PCI bus tell, put together once a cycle.

Every NVML call is made on one worker thread, and the driver's files are read on another; this class waits for them no
longer than it is told, and lets go of NVML only while no call is in flight: a shutdown under a running call crashes
the process.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_gpu_cgroup.model import DeviceInventory, DeviceNode, Gpu, GpuSnapshot, GpuUuid, PciAddress, Problem, Stage
from otel_gpu_cgroup.nvidia.devices.capabilities import CapabilityFiles
from otel_gpu_cgroup.nvidia.devices.files import GpuFiles, PciBus
from otel_gpu_cgroup.nvidia.devices.nodes import join_gpus, remember_uuids
from otel_gpu_cgroup.nvidia.readings.nvml_pass import NvmlPass
from otel_gpu_cgroup.nvidia.readings.snapshot import Clock, SystemClock
from otel_gpu_cgroup.worker import Worker

if TYPE_CHECKING:
    from otel_gpu_cgroup.host import HostPaths
    from otel_gpu_cgroup.nvidia.nvml import Nvml

_LET_GO_SECONDS: Final = 1.0
_HURRIED: Final = 0.6
"""Seconds; a pass over eight GPUs takes at most a tenth of it, and the process has promised to end within one."""
_SILENT: Final = Problem(
    Stage.NVML, "NVML", "has not answered in time; device values are absent until it does (a hung driver?)"
)
_FILE_SECONDS: Final = 0.5
_SILENT_FILES: Final = Problem(
    Stage.DISCOVERY, "/proc/driver/nvidia/gpus", "has not answered in time; GPUs are who they were (a hung driver?)"
)


class _Files(NamedTuple):
    """What the driver's files say."""

    named: tuple[Gpu, ...]
    """The GPUs that they name."""
    gpus: tuple[Gpu, ...]
    """Those, joined with what NVML lists, with the capability nodes of instances."""
    problems: tuple[Problem, ...]


class Devices:
    """Knows which devices there are, and what they say."""

    def __init__(self, host: HostPaths, nvml: Nvml, clock: Clock | None = None) -> None:
        self._pci = PciBus(host)
        self._files = GpuFiles(host)
        self._pass = NvmlPass(nvml, PciBus(host), clock or SystemClock())
        self._worker: Worker[GpuSnapshot] = Worker("gpu-cgroup-nvml")
        self._capabilities = CapabilityFiles(host)
        self._file_worker: Worker[_Files] = Worker("gpu-cgroup-files")
        self._named: tuple[Gpu, ...] = ()
        self._nodes: dict[GpuUuid | None, tuple[DeviceNode, ...] | None] = {}
        """The capability nodes of each instance."""
        self._listed: tuple[Gpu, ...] = ()
        self._counted = 0
        """GPUs that the last pass which ended counted: a hang does not make fewer of them."""
        self._patience = math.inf
        self._uuids: dict[PciAddress, GpuUuid] = {}
        self.inventory = DeviceInventory()
        """What the last refresh found."""

    def setup(self) -> None:
        """Begin the first pass, whose start of NVML can take seconds for each GPU; waits for nothing."""
        self._worker.submit(self._pass.read)

    def refresh(self, timeout: float) -> DeviceInventory:
        """One NVML pass, or the end of the one that `setup` began, and what the kernel and the driver's files name."""
        # nothing that goes wrong from here on may leave the readings of an earlier cycle behind
        self.inventory = replace(self.inventory, readings={}, nvml_gpus=None)
        snapshot = self._worker.ask(self._pass.read, min(timeout, self._patience))
        problems = list((_SILENT,) if snapshot is None else snapshot.problems)
        if snapshot is not None:
            self._listed, self._counted = snapshot.gpus, snapshot.count or 0
        self._uuids, gpus = remember_uuids(self._uuids, self._read_files(problems))
        self.inventory = DeviceInventory(
            gpus=gpus,
            readings=snapshot.readings if snapshot is not None else {},
            driver_version=snapshot.driver_version if snapshot is not None else None,
            pci_gpus=len(self._pci.read()),
            nvml_gpus=None if snapshot is None else snapshot.count,
            nvml_finished_at=self._pass.finished_at,
            problems=tuple(problems),
            are_all=sum(gpu.instance is None for gpu in gpus) >= self._counted,
            booted_at=0.0 if snapshot is None else snapshot.booted_at,
        )
        return self.inventory

    def hurry(self) -> None:
        """End a refresh that waits; those to come wait for no longer than a driver takes that does not hang."""
        self._patience = _HURRIED
        self._worker.abandon()

    def destroy(self) -> None:
        """Shut NVML down on its own thread; while a call hangs nothing is done, the process's end does it."""
        if not self._worker.busy:
            self._worker.submit(self._let_go).wait(_LET_GO_SECONDS)

    def _let_go(self) -> GpuSnapshot:
        self._pass.stop()
        return GpuSnapshot(0.0)

    def _read_files(self, problems: list[Problem]) -> tuple[Gpu, ...]:
        """The devices by the driver's files and NVML; while the files do not answer, by what they said before."""
        read = self._file_worker.ask(self._look, _FILE_SECONDS)
        if read is None:
            problems.append(_SILENT_FILES)
            return tuple(self._with_known_nodes(gpu) for gpu in join_gpus(self._named, self._listed))
        problems += read.problems
        self._named = read.named
        self._nodes = {gpu.uuid: gpu.instance.nodes for gpu in read.gpus if gpu.instance is not None}
        return read.gpus

    def _look(self) -> _Files:
        named, problems = self._files.read()
        gpus, more = self._capabilities.read(join_gpus(named, self._listed))
        return _Files(named, gpus, (*problems, *more))

    def _with_known_nodes(self, gpu: Gpu) -> Gpu:
        if gpu.instance is None:
            return gpu
        return replace(gpu, instance=replace(gpu.instance, nodes=self._nodes.get(gpu.uuid)))
