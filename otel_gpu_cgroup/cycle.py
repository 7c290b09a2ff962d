# SPDX-License-Identifier: Apache-2.0
"""One cycle: find the containers, read the GPUs, ask what each container may open, join, seal.

The one place where a failure becomes a Problem; whatever fails costs its own container, device or stage alone.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

from otel_gpu_cgroup.errors import Gone, GpuCgroupError
from otel_gpu_cgroup.model import (
    AccessClass,
    Container,
    ContainerReport,
    ContainerStats,
    DeviceInventory,
    GpuReading,
    GpuReport,
    NodeStats,
    Problem,
    Stage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_gpu_cgroup.accelerator import AcceleratorManager
    from otel_gpu_cgroup.model import CgroupLayout

_log: Final = logging.getLogger(__name__)
_NO_READING: Final = GpuReading()


class Discovery(Protocol):
    """Finds the containers that are looked at."""

    @property
    def layout(self) -> CgroupLayout:
        """Where the cgroup hierarchies were when it last did."""
        ...

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What it could not look into then: containers may be missing."""
        ...

    @property
    def sees_all(self) -> bool:
        """Whether it looks for every container of the host."""
        ...

    def discover(self) -> list[Container]:
        """Those that are there now; raises GpuCgroupError when nobody can say."""
        ...


class Cycle:
    """Collects what is true on this host now."""

    def __init__(
        self,
        discovery: Discovery,
        accelerators: AcceleratorManager,
        is_excluded: Callable[[Container], bool],
        accelerator_timeout: float,
    ) -> None:
        """Wait at most `accelerator_timeout` seconds for the driver in each cycle."""
        self._discovery = discovery
        self._accelerators = accelerators
        self._is_excluded = is_excluded
        self._timeout = accelerator_timeout

    def hurry(self) -> None:
        """Let no cycle wait for a hanging driver any more: the process is about to end."""
        self._accelerators.hurry()

    def collect(self) -> NodeStats:
        """One sealed cycle; never raises."""
        taken_at, began = time.time(), time.monotonic()
        problems: list[Problem] = []
        inventory = self._read_inventory(problems)
        containers, discovered = self._discover(problems)
        stats = [report for container in containers if (report := self._collect(container, problems)) is not None]
        sealed_at = time.monotonic()
        return NodeStats(
            taken_at=taken_at,
            duration=sealed_at - began,
            sealed_at=sealed_at,
            cgroup_mode=self._discovery.layout.mode,
            inventory=inventory,
            gpus=_gpu_reports(inventory, stats, discovered=discovered and self._discovery.sees_all),
            containers=tuple(stats),
            problems=tuple(dict.fromkeys(problems)),
            up=_stages_up(inventory, stats, discovered=discovered),
        )

    def _read_inventory(self, problems: list[Problem]) -> DeviceInventory:
        try:
            inventory = self._accelerators.refresh(self._timeout)
        except Exception as error:
            problems.append(_defect("accelerators", error))
            return DeviceInventory()
        problems += inventory.problems
        return inventory

    def _discover(self, problems: list[Problem]) -> tuple[list[Container], bool]:
        """The containers, and whether all of them could be looked for."""
        try:
            found = self._discovery.discover()
            problems += self._discovery.problems
            return _distinct(found, problems), not self._discovery.problems
        except GpuCgroupError as error:
            problems.append(Problem(Stage.DISCOVERY, "cgroups", str(error)))
        except Exception as error:
            problems.append(_defect("cgroups", error))
        return [], False

    def _collect(self, container: Container, problems: list[Problem]) -> ContainerReport | None:
        """What is true of one container; None when it has ended meanwhile."""
        stats = ContainerStats(container)
        if self._is_excluded(container):
            stats.access = AccessClass.EXCLUDED
            return stats.sealed()
        try:
            self._accelerators.get_collector(container).update_stats(stats)
        except Gone as error:
            _log.debug("container ended during the cycle cgroup=%a error=%s", container.cgroup, error)
            return None
        except Exception as error:
            stats.problems.append(_defect(container.cgroup, error))
        problems += stats.problems
        return stats.sealed()


def _distinct(containers: Sequence[Container], problems: list[Problem]) -> list[Container]:
    """The containers without those that bear another one's id: two series would be one."""
    distinct: dict[str, Container] = {}
    for container in containers:
        first = distinct.setdefault(container.key, container)
        if first is not container:
            message = f"has the same id as {first.cgroup!a}; left out"
            problems.append(Problem(Stage.DISCOVERY, container.cgroup, message))
    return list(distinct.values())


def _gpu_reports(
    inventory: DeviceInventory, containers: Sequence[ContainerReport], *, discovered: bool
) -> tuple[GpuReport, ...]:
    complete = discovered and all(_is_certain(report) for report in containers)
    holders: dict[str, list[str]] = {}
    for report in containers:
        for accelerator in report.accelerators:
            if not accelerator.lost:
                holders.setdefault(accelerator.id, []).append(report.container.key)
    return tuple(
        GpuReport(
            gpu,
            _NO_READING if gpu.uuid is None else inventory.readings.get(gpu.uuid, _NO_READING),
            tuple(holders.get(gpu.uuid or "", ())),
            complete=complete,
        )
        for gpu in inventory.gpus
    )


def _is_certain(report: ContainerReport) -> bool:
    """Whether the kernel told what the container may open, or nobody wants to know."""
    return report.access is AccessClass.EXCLUDED or report.source.is_kernel


def _stages_up(
    inventory: DeviceInventory, containers: Sequence[ContainerReport], *, discovered: bool
) -> dict[Stage, bool]:
    """Which stages work; policy needs a container that is judged, NVML a GPU that the kernel or the driver names."""
    up = {Stage.DISCOVERY: discovered}
    judged = [report.access for report in containers if report.access is not AccessClass.EXCLUDED]
    if judged:
        up[Stage.POLICY] = any(access is not AccessClass.UNKNOWN for access in judged)
    if inventory.nvml_gpus is not None or inventory.pci_gpus or inventory.gpus:
        up[Stage.NVML] = inventory.nvml_gpus is not None
    return up


def _defect(subject: str, error: Exception) -> Problem:
    """A failure that nobody foresaw: its traceback goes to the debug log, its name into the Problem."""
    _log.debug("unforeseen failure subject=%a", subject, exc_info=error)
    return Problem(Stage.CYCLE, subject, f"unforeseen {type(error).__name__}: {error}; please report it")
