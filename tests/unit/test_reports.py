# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.model import (
    AcceleratorStats,
    AccessClass,
    CgroupPath,
    Container,
    ContainerReport,
    DeviceInventory,
    Gpu,
    GpuProcess,
    GpuReading,
    GpuReport,
    GpuUuid,
    MigInstance,
    Ownership,
    OwnShare,
    PolicySource,
    Problem,
    ProcessOwner,
    Runtime,
    Stage,
)
from otel_gpu_cgroup.reports import gpu_reports, is_reported, stages_up

if TYPE_CHECKING:
    from collections.abc import Mapping

CARD, PART, OTHER = GpuUuid("GPU-a"), GpuUuid("MIG-a"), GpuUuid("MIG-b")
NOBODY: tuple[GpuProcess, ...] = ()


def row(
    uuid: GpuUuid, memory: int | None = 0, *, parent: GpuUuid | None = None, lost: bool = False
) -> AcceleratorStats:
    return AcceleratorStats("nvidia", "H100", uuid, 100, 50, None, parent, OwnShare(memory, None, 1), lost)


def report(name: str, *rows: AcceleratorStats, runtime: Runtime = Runtime.DOCKER) -> ContainerReport:
    container = Container(CgroupPath(f"/x/{name}"), runtime, name)
    access = AccessClass.EXPLICIT if rows else AccessClass.NONE
    return ContainerReport(container, access, PolicySource.BPF, rows)


def seal(
    inventory: DeviceInventory,
    *reports: ContainerReport,
    told: bool = True,
    discovered: bool = True,
    owners: Mapping[int, ProcessOwner] | None = None,
) -> tuple[tuple[GpuReport, ...], tuple[Problem, ...]]:
    return gpu_reports(inventory, reports, Ownership(owners or {}, told), discovered=discovered, complete=True)


def whole(used: int | None = 50, processes: tuple[GpuProcess, ...] | None = NOBODY) -> DeviceInventory:
    return DeviceInventory((Gpu(0, CARD),), {CARD: GpuReading(100, used, processes=processes)})


def test_what_no_row_holds_is_nobodys() -> None:
    ((device,), problems) = seal(whole(), report("one", row(CARD, 30)), report("two", row(CARD, 5)))
    assert (device.unattributed, device.containers, problems) == (15, ("one", "two"), ())


def test_without_a_row_all_of_it_is_nobodys() -> None:
    assert seal(whole())[0][0].unattributed == 50


@pytest.mark.parametrize(
    ("inventory", "told", "discovered"),
    [
        (whole(None), True, True),
        (whole(processes=None), True, True),
        (whole(), False, True),
        (whole(), True, False),
    ],
    ids=["use not told", "processes not told", "pids mean nothing", "containers not found"],
)
def test_what_is_nobodys_is_not_told_where_something_else_is_not(
    inventory: DeviceInventory, *, told: bool, discovered: bool
) -> None:
    assert seal(inventory, report("one", row(CARD, 0)), told=told, discovered=discovered)[0][0].unattributed is None


def test_a_share_that_is_not_told_leaves_the_rest_untold() -> None:
    assert seal(whole(), report("one", row(CARD, None)))[0][0].unattributed is None


def test_shares_above_the_use_are_a_problem_and_no_rest() -> None:
    ((device,), (problem,)) = seal(whole(), report("one", row(CARD, 51)))
    assert (device.unattributed, problem.stage, problem.subject) == (None, Stage.SHARE, CARD)


def test_a_lost_row_holds_nothing_but_its_processes_count() -> None:
    ((device,), _) = seal(whole(), report("one", row(CARD, 30, lost=True)))
    assert (device.containers, device.unattributed) == ((), 20)


def test_holders_of_instances_are_the_partitioned_gpus_once_each() -> None:
    parts = tuple(Gpu(0, uuid, instance=MigInstance(CARD, number, 0)) for number, uuid in enumerate((PART, OTHER)))
    readings = {uuid: GpuReading(50, 20, processes=()) for uuid in (PART, OTHER)}
    inventory = DeviceInventory(
        (Gpu(0, CARD, is_partitioned=True), *parts), {**readings, CARD: GpuReading(100, 45, processes=None)}
    )
    devices, _ = seal(
        inventory,
        report("both", row(PART, 10, parent=CARD), row(OTHER, 20, parent=CARD)),
        report("one", row(OTHER, 0, parent=CARD)),
    )
    assert [device.containers for device in devices] == [("both", "one"), ("both",), ("both", "one")]
    assert [device.unattributed for device in devices] == [15, 10, 0]


def test_what_a_container_without_a_row_uses_is_not_nobodys() -> None:
    """One that is excluded, that may open everything, or of which nobody knows what it may open."""
    processes = (GpuProcess(1, 20), GpuProcess(2, 4), GpuProcess(3, 6))
    owners = {1: ProcessOwner("hidden", 0.0), 2: ProcessOwner("with row", 0.0), 3: ProcessOwner(None, 0.0)}
    reports = report("hidden"), report("with row", row(CARD, 4))
    ((device,), problems) = seal(whole(50, processes), *reports, owners=owners)
    assert (device.unattributed, device.containers, problems) == (50 - 20 - 4, ("with row",), ())


def test_what_a_unit_that_is_no_container_uses_is_nobodys() -> None:
    owners = {1: ProcessOwner("/system.slice/x.service", 0.0)}
    assert seal(whole(50, (GpuProcess(1, 20),)), owners=owners)[0][0].unattributed == 50


def test_without_a_row_it_must_be_told_too() -> None:
    owners = {1: ProcessOwner("hidden", 0.0)}
    ((device,), _) = seal(whole(50, (GpuProcess(1, None),)), report("hidden"), owners=owners)
    assert device.unattributed is None


def test_what_is_used_of_instances_without_a_row_is_counted_once() -> None:
    """A partitioned GPU lists the processes of its instances once more."""
    parts = (Gpu(0, PART, instance=MigInstance(CARD, 1, 0)), Gpu(0, OTHER, instance=MigInstance(CARD, 2, 0)))
    processes = (GpuProcess(1, 10),)
    readings = {
        CARD: GpuReading(100, 45, processes=processes),
        PART: GpuReading(50, 20, processes=processes),
        OTHER: GpuReading(50, 20, processes=()),
    }
    inventory = DeviceInventory((Gpu(0, CARD, is_partitioned=True), *parts), readings)
    devices, _ = seal(inventory, report("hidden"), owners={1: ProcessOwner("hidden", 0.0)})
    assert [device.unattributed for device in devices] == [35, 10, 20]


@pytest.mark.parametrize(
    ("rows", "access", "reported"),
    [
        ((), AccessClass.NONE, False),
        ((), AccessClass.UNRESTRICTED, False),
        ((), AccessClass.UNKNOWN, False),
        ((), AccessClass.EXCLUDED, False),
        ((), AccessClass.EXPLICIT, True),
        ((row(CARD),), AccessClass.UNRESTRICTED, True),
        ((row(CARD, lost=True),), AccessClass.NONE, True),
    ],
)
def test_a_unit_is_a_container_where_it_has_to_do_with_gpus(
    rows: tuple[AcceleratorStats, ...], access: AccessClass, *, reported: bool
) -> None:
    unit = Container(CgroupPath("/system.slice/a.service"), Runtime.SYSTEMD)
    assert is_reported(ContainerReport(unit, access, PolicySource.BPF, rows)) is reported
    assert is_reported(report("one"))


def test_shares_work_where_a_list_of_processes_and_its_pids_are_told() -> None:
    def share(inventory: DeviceInventory, *, told: bool = True) -> bool | None:
        up = stages_up(inventory, (), Ownership(is_told=told), discovered=True, names=None)
        return up.get(Stage.SHARE)

    assert share(whole()) is True
    assert share(whole(processes=None)) is False
    assert share(whole(), told=False) is False
    assert share(DeviceInventory((Gpu(0, CARD),))) is None
