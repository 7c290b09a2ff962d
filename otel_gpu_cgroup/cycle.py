# SPDX-License-Identifier: Apache-2.0
"""One cycle: read the GPUs, find the containers, ask what each may open and what it uses, join, seal.

The one place where a failure becomes a Problem; whatever fails costs its own container, device or stage alone.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

from otel_gpu_cgroup.containers.identity.nesting import find_enclosing
from otel_gpu_cgroup.errors import Gone, GpuCgroupError
from otel_gpu_cgroup.ledger import Ledger
from otel_gpu_cgroup.model import (
    AccessClass,
    Container,
    ContainerReport,
    ContainerStats,
    DeviceInventory,
    NodeStats,
    Ownership,
    PolicySource,
    Problem,
    Stage,
)
from otel_gpu_cgroup.reports import gpu_reports, is_certain, is_reported, stages_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_gpu_cgroup.accelerator import AcceleratorManager
    from otel_gpu_cgroup.model import CgroupLayout

_log: Final = logging.getLogger(__name__)
_NOBODY: Final = Ownership(is_told=False, are_samples_told=False)


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

    def relocate(self, container: Container) -> Container | None:
        """The container where its processes are by now, after what spoke for it has gone; None where it has ended."""
        ...

    def discover(self) -> list[Container]:
        """Those that are there now; raises GpuCgroupError when nobody can say."""
        ...


class Names(Protocol):
    """Finds out what people call containers."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What it could not read when it last named containers."""
        ...

    @property
    def is_up(self) -> bool | None:
        """Whether each container that should have a name has got one in time; None where none should."""
        ...

    def name(self, containers: Sequence[Container]) -> list[Container]:
        """The containers with what is known of their names, without those that only hold a pod's place."""
        ...


class Processes(Protocol):
    """Tells which container a process is in."""

    def attribute(self, inventory: DeviceInventory, containers: Sequence[Container]) -> Ownership:
        """Whose the processes are that the inventory's readings list."""
        ...


class Cycle:
    """Collects what is true on this host now."""

    def __init__(
        self,
        discovery: Discovery,
        names: Names,
        processes: Processes,
        accelerators: AcceleratorManager,
        is_excluded: Callable[[Container], bool],
        accelerator_timeout: float,
    ) -> None:
        """Wait at most `accelerator_timeout` seconds for the driver in each cycle."""
        self._discovery = discovery
        self._names = names
        self._processes = processes
        self._accelerators = accelerators
        self._is_excluded = is_excluded
        self._timeout = accelerator_timeout
        self._ledger = Ledger()

    def hurry(self) -> None:
        """Let no cycle wait for a hanging driver any more: the process is about to end."""
        self._accelerators.hurry()

    def collect(self) -> NodeStats:
        """One sealed cycle; never raises."""
        taken_at, began = time.time(), time.monotonic()
        problems: list[Problem] = []
        inventory = self._read_inventory(problems)
        containers, discovered = self._discover(problems)
        ownership = self._attribute(inventory, containers, problems)
        judged = [report for container in containers if (report := self._collect(container, problems)) is not None]
        are_all = discovered and self._discovery.sees_all
        complete = are_all and all(is_certain(report) for report in judged)
        reports = tuple(report for report in judged if is_reported(report))
        gpus, excesses = gpu_reports(inventory, reports, ownership, discovered=are_all, complete=complete)
        is_blind = not (reports or discovered)
        if not is_blind:  # the next credit is then of a longer time, as no row has ended
            self._ledger.credit(began, reports, inventory.readings)
        sealed_at = time.monotonic()
        return NodeStats(
            taken_at=taken_at,
            duration=sealed_at - began,
            sealed_at=sealed_at,
            cgroup_mode=self._discovery.layout.mode,
            inventory=inventory,
            gpus=gpus,
            containers=reports,
            problems=tuple(dict.fromkeys((*problems, *excesses))),
            up=stages_up(inventory, reports, ownership, discovered=discovered, names=self._names.is_up),
            held={} if is_blind else self._ledger.held,
            usage=self._ledger.usage,
            is_provisional=self._accelerators.is_suspecting or not all(it.is_named for it in containers),
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
            return self._named(_distinct(found, problems), problems), not self._discovery.problems
        except GpuCgroupError as error:
            problems.append(Problem(Stage.DISCOVERY, "cgroups", str(error)))
        except Exception as error:
            problems.append(_defect("cgroups", error))
        return [], False

    def _named(self, containers: list[Container], problems: list[Problem]) -> list[Container]:
        try:
            named = self._names.name(containers)
        except Exception as error:
            problems.append(_defect("names", error))
            return containers
        problems += self._names.problems
        return named

    def _attribute(
        self, inventory: DeviceInventory, containers: Sequence[Container], problems: list[Problem]
    ) -> Ownership:
        """Whose the processes on the GPUs are, which the accelerators are told, too."""
        try:
            ownership = self._processes.attribute(inventory, containers)
        except Exception as error:
            problems.append(_defect("processes", error))
            ownership = _NOBODY
        problems += ownership.problems
        try:
            self._accelerators.attribute(ownership)
        except Exception as error:
            problems.append(_defect("accelerators", error))
        return ownership

    def _collect(self, container: Container, problems: list[Problem], moves: int = 1) -> ContainerReport | None:
        """What is true of one container, which may move so many times; None when it has ended meanwhile."""
        if self._is_excluded(container):
            return ContainerReport(container, AccessClass.EXCLUDED, PolicySource.NOBODY)
        stats = ContainerStats(container)
        try:
            self._accelerators.get_collector(container).update_stats(stats)
        except Gone as error:
            _log.debug("container not where it was cgroup=%a error=%s", container.cgroup, error)
            moved = self._discovery.relocate(container) if moves else None
            return None if moved is None else self._collect(moved, problems, moves - 1)
        except Exception as error:
            stats.problems.append(_defect(container.cgroup, error))
        report = stats.sealed()
        # what concerns one unit alone is no Problem while the unit is no container
        if stats.problems:
            problems += (it for it in stats.problems if is_reported(report) or it.subject != container.cgroup)
        return report


def _distinct(containers: Sequence[Container], problems: list[Problem]) -> list[Container]:
    """The containers without those that bear another one's id: two series would be one."""
    distinct = {container.key: container for container in reversed(containers)}
    if len(distinct) == len(containers):
        return list(containers)
    by_path: dict[str, Container] = {container.cgroup: container for container in containers}
    # whoever is in a container may make a cgroup there that bears the id of another of the host's
    hosts = {it.key: it for it in reversed(containers) if find_enclosing(it, by_path) is None}
    distinct |= hosts
    for container in containers:
        first = distinct[container.key]
        if first is not container:
            message = f"has the same id as {first.cgroup!a}; left out"
            problems.append(Problem(Stage.DISCOVERY, container.cgroup, message))
    return [container for container in containers if distinct[container.key] is container]


def _defect(subject: str, error: Exception) -> Problem:
    """A failure that nobody foresaw: its traceback goes to the debug log, its name into the Problem."""
    _log.debug("unforeseen failure subject=%a", subject, exc_info=error)
    return Problem(Stage.CYCLE, subject, f"unforeseen {type(error).__name__}: {error}; please report it")
