# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA GPUs of this host: one NVML pass a cycle, and the collector of each container.

Every NVML call is made on one worker thread; this class waits for it no longer than it is told, and lets go of
NVML only while no call is in flight: a shutdown under a running call crashes the process.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.errors import Gone, HostUnreadable, PolicyUnreadable
from otel_gpu_cgroup.model import (
    AccessClass,
    Container,
    DeviceInventory,
    Gpu,
    GpuSnapshot,
    GpuUuid,
    PciAddress,
    Problem,
    Stage,
)
from otel_gpu_cgroup.nvidia.collector import NvidiaCollector
from otel_gpu_cgroup.nvidia.inventory import GpuFiles, PciBus
from otel_gpu_cgroup.nvidia.judgement import Judgement, judge
from otel_gpu_cgroup.nvidia.nodes import join_gpus, remember_uuids
from otel_gpu_cgroup.nvidia.nvml_pass import NvmlPass
from otel_gpu_cgroup.nvidia.snapshot import Clock, SystemClock
from otel_gpu_cgroup.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_gpu_cgroup.cgroup.policy import DevicePolicy, PolicyReading
    from otel_gpu_cgroup.host import HostPaths
    from otel_gpu_cgroup.nvidia.nvml import Nvml

_REMEMBERED: Final = 4096
"""Judgements that are kept: one for each different policy of a node."""
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


class NvidiaManager:
    """Knows the GPUs of this host and what they say."""

    def __init__(
        self,
        host: HostPaths,
        nvml: Nvml,
        policies: PolicyReading,
        *,
        report_unrestricted: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """Containers that may open everything get rows only where `report_unrestricted` says so."""
        self._pci = PciBus(host)
        self._files = GpuFiles(host)
        self._pass = NvmlPass(nvml, PciBus(host), clock or SystemClock())
        self._worker: Worker[GpuSnapshot] = Worker("gpu-cgroup-nvml")
        self._file_worker: Worker[tuple[tuple[Gpu, ...], tuple[Problem, ...]]] = Worker("gpu-cgroup-files")
        self._named: tuple[Gpu, ...] = ()
        self._policies = policies
        self._report_unrestricted = report_unrestricted
        self._judge = _judging((), are_all=False)
        self._judged: tuple[tuple[Gpu, ...], bool] = ((), False)
        """What the judge is of."""
        self._listed: tuple[Gpu, ...] = ()
        self._counted = 0
        """GPUs that the last pass which ended counted: a hang does not make fewer of them."""
        self._patience = math.inf
        self._uuids: dict[PciAddress, GpuUuid] = {}
        self._inventory = DeviceInventory()

    def setup(self) -> None:
        """Begin the first pass, whose start of NVML can take seconds for each GPU; waits for nothing."""
        self._worker.submit(self._pass.read)

    def refresh(self, timeout: float) -> DeviceInventory:
        """One NVML pass, or the end of the one that `setup` began, and what the kernel and the driver's files name."""
        self._policies.begin_cycle()
        # nothing that goes wrong from here on may leave the readings of an earlier cycle behind
        self._inventory = replace(self._inventory, readings={}, nvml_gpus=None)
        snapshot = self._worker.ask(self._pass.read, min(timeout, self._patience))
        problems = list((_SILENT,) if snapshot is None else snapshot.problems)
        if snapshot is not None:
            self._listed, self._counted = snapshot.gpus, snapshot.count or 0
        self._read_files(problems)
        gpus = join_gpus(self._named, self._listed)
        self._uuids, gpus = remember_uuids(self._uuids, gpus)
        are_all = len(gpus) >= self._counted
        if (gpus, are_all) != self._judged:
            self._judge, self._judged = _judging(gpus, are_all=are_all), (gpus, are_all)
        self._inventory = DeviceInventory(
            gpus=gpus,
            readings=snapshot.readings if snapshot is not None else {},
            driver_version=snapshot.driver_version if snapshot is not None else None,
            pci_gpus=len(self._pci.read()),
            nvml_gpus=None if snapshot is None else snapshot.count,
            nvml_finished_at=self._pass.finished_at,
            problems=tuple(problems),
            are_all=are_all,
        )
        return self._inventory

    def get_collector(self, container: Container) -> NvidiaCollector:
        """What the container's policy says now of the GPUs that the last refresh found; raises Gone."""
        try:
            policy = self._policies.read(container)
        except Gone:
            raise
        except PolicyUnreadable as error:
            return self._collector(Judgement(AccessClass.UNKNOWN, trouble=error))
        except HostUnreadable as error:
            return self._collector(Judgement(AccessClass.UNKNOWN, trouble=PolicyUnreadable(str(error))))
        judgement = self._judge(policy)
        if judgement.access is AccessClass.UNKNOWN:
            stand_in = self._policies.read_stand_in(container, policy)
            judgement = judgement if stand_in is None else self._judge(stand_in)
        return self._collector(judgement)

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

    def _read_files(self, problems: list[Problem]) -> None:
        """What the driver's files name; while they do not answer, what they named before."""
        read = self._file_worker.ask(self._files.read, _FILE_SECONDS)
        if read is None:
            problems.append(_SILENT_FILES)
            return
        self._named, found = read
        problems += found

    def _collector(self, judgement: Judgement) -> NvidiaCollector:
        unrestricted = judgement.access is AccessClass.UNRESTRICTED
        silent = unrestricted and not self._report_unrestricted
        return NvidiaCollector(judgement, self._inventory, silent=silent)


def _judging(gpus: tuple[Gpu, ...], *, are_all: bool) -> Callable[[DevicePolicy], Judgement]:
    """A judge for these GPUs who remembers what was judged: containers with equal rules share a policy."""

    @functools.lru_cache(maxsize=_REMEMBERED)
    def judged(policy: DevicePolicy) -> Judgement:
        return judge(policy, gpus, are_all=are_all)

    return judged
