# SPDX-License-Identifier: Apache-2.0
"""What the ledger writes down, cycle by cycle; expected seconds are counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from otel_gpu_cgroup.ledger import Ledger
from otel_gpu_cgroup.model import (
    AcceleratorStats,
    AccessClass,
    Account,
    CgroupPath,
    Container,
    ContainerReport,
    GpuReading,
    GpuUuid,
    HeldTime,
    OwnShare,
    Pod,
    PolicySource,
    RowKey,
    Runtime,
    SlurmStep,
)

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
NOBODY = Account(None, None, "H100")
WEB = Container(CgroupPath("/docker/web"), Runtime.DOCKER, "web", inode=7)
ROW = RowKey("web", A)
COVERED = GpuReading(80, 70, processes=(), covered=8.0)


def row(utilization: float | None = 0.0, device: GpuUuid = A, *, lost: bool = False) -> AcceleratorStats:
    own = OwnShare(0, utilization, 0)
    return AcceleratorStats("nvidia", "H100", device, 80, 70, 12.5, own=None if lost else own, lost=lost)


def report(container: Container, *rows: AcceleratorStats) -> ContainerReport:
    return ContainerReport(container, AccessClass.EXPLICIT, PolicySource.DEVICES_LIST, rows)


def test_a_row_begins_with_nothing() -> None:
    ledger = Ledger()
    ledger.credit(100.0, [report(WEB, row(0.5))], {A: COVERED})
    assert ledger.held == {ROW: HeldTime(0, 0, 0)}
    assert ledger.usage == {NOBODY: HeldTime(0, 0, 0)}


def test_time_is_active_and_idle_as_far_as_samples_cover_it_and_unknown_beyond() -> None:
    ledger = Ledger()
    for now in (100.0, 110.0):
        ledger.credit(now, [report(WEB, row(0.25))], {A: COVERED})
    assert ledger.held == {ROW: HeldTime(active=2, idle=6, unknown=2)}
    ledger.credit(120.0, [report(WEB, row(1.0))], {A: COVERED})
    assert ledger.held == {ROW: HeldTime(active=10, idle=6, unknown=4)}
    assert ledger.usage == {NOBODY: HeldTime(active=10, idle=6, unknown=4)}


def test_samples_cover_no_more_than_the_time_since_the_previous_cycle() -> None:
    ledger = Ledger()
    for now in (100.0, 104.0):
        ledger.credit(now, [report(WEB, row(0.5))], {A: COVERED})
    assert ledger.held == {ROW: HeldTime(active=2, idle=2, unknown=0)}


def test_more_than_all_of_a_device_is_all_of_it() -> None:
    ledger = Ledger()
    for now in (100.0, 110.0):
        ledger.credit(now, [report(WEB, row(1.5))], {A: COVERED})
    assert ledger.held == {ROW: HeldTime(active=8, idle=0, unknown=2)}


def test_two_cycles_at_one_instant_are_no_time() -> None:
    ledger = Ledger()
    for _ in range(2):
        ledger.credit(100.0, [report(WEB, row(1.0))], {A: COVERED})
    assert ledger.held == {ROW: HeldTime(0, 0, 0)}


@pytest.mark.parametrize(
    ("stats", "readings"),
    [
        (row(None), {A: COVERED}),
        (replace(row(), own=None), {A: COVERED}),
        (row(0.5), {A: GpuReading(80, 70, processes=())}),
        (row(0.5), {B: COVERED}),
        (row(0.5), {}),
    ],
    ids=["no utilization", "no share", "nothing covered", "another device's reading", "no reading"],
)
def test_what_nobody_can_tell_is_unknown(stats: AcceleratorStats, readings: dict[GpuUuid, GpuReading]) -> None:
    ledger = Ledger()
    for now in (100.0, 110.0):
        ledger.credit(now, [report(WEB, stats)], readings)
    assert ledger.held == {ROW: HeldTime(0, 0, unknown=10)}


def test_after_a_cycle_without_readings_samples_cover_no_time_twice() -> None:
    ledger, reports = Ledger(), [report(WEB, row(1.0))]
    ledger.credit(100.0, reports, {A: COVERED})
    ledger.credit(110.0, reports, {})
    ledger.credit(120.0, reports, {A: replace(COVERED, covered=20.0)})
    assert ledger.held == {ROW: HeldTime(active=10, idle=0, unknown=10)}


def test_a_row_that_ended_is_credited_with_half_of_the_time_and_told_once_more() -> None:
    ledger = Ledger()
    for now in (100.0, 110.0):
        ledger.credit(now, [report(WEB, row(1.0))], {A: COVERED})
    ledger.credit(120.0, [], {A: COVERED})
    assert ledger.held == {ROW: HeldTime(active=8, idle=0, unknown=2 + 5)}
    assert ledger.usage == {NOBODY: HeldTime(active=8, idle=0, unknown=2 + 5)}
    ledger.credit(130.0, [], {A: COVERED})
    assert ledger.held == {}
    assert ledger.usage == {NOBODY: HeldTime(active=8, idle=0, unknown=2 + 5)}


@pytest.mark.parametrize("without", [(row(lost=True),), ()], ids=["lost", "no row"])
def test_a_row_that_comes_back_goes_on_where_it_was(without: tuple[AcceleratorStats, ...]) -> None:
    ledger = Ledger()
    for now in (100.0, 110.0):
        ledger.credit(now, [report(WEB, row(1.0))], {A: COVERED})
    ledger.credit(120.0, [report(WEB, *without)], {A: COVERED})
    assert ledger.held == {ROW: HeldTime(8, 0, 7)}
    ledger.credit(130.0, [report(WEB, *without)], {A: COVERED})
    assert ledger.held == {}
    ledger.credit(140.0, [report(WEB, row(1.0))], {A: COVERED})
    assert ledger.held == {ROW: HeldTime(8, 0, 7)}
    ledger.credit(150.0, [report(WEB, row(1.0))], {A: COVERED})
    assert ledger.held == {ROW: HeldTime(16, 0, 9)}
    assert ledger.usage == {NOBODY: HeldTime(16, 0, 9)}


def test_a_row_that_was_lost_from_the_start_is_not_held() -> None:
    ledger = Ledger()
    for now in (100.0, 110.0):
        ledger.credit(now, [report(WEB, row(lost=True))], {A: COVERED})
    assert ledger.held == {}
    assert ledger.usage == {}


def test_a_container_that_ends_while_its_row_is_lost_gets_nothing_more() -> None:
    ledger = Ledger()
    ledger.credit(100.0, [report(WEB, row())], {})
    ledger.credit(110.0, [report(WEB, row(lost=True))], {})
    ledger.credit(120.0, [], {})
    assert ledger.held == {}
    assert ledger.usage == {NOBODY: HeldTime(unknown=5)}


def test_a_cgroup_that_was_made_again_is_another_life() -> None:
    ledger = Ledger()
    for now in (100.0, 110.0):
        ledger.credit(now, [report(WEB, row(1.0))], {A: COVERED})
    ledger.credit(120.0, [report(replace(WEB, inode=8), row(1.0))], {A: COVERED})
    assert ledger.held == {ROW: HeldTime(0, 0, 0)}
    assert ledger.usage == {NOBODY: HeldTime(8, 0, 2 + 5)}
    ledger.credit(130.0, [report(replace(WEB, inode=8), row(0.0))], {A: COVERED})
    assert ledger.held == {ROW: HeldTime(0, 8, 2)}


def test_an_inode_that_is_not_told_begins_no_other_life() -> None:
    ledger = Ledger()
    for now, inode in ((100.0, 7), (110.0, None), (120.0, 7)):
        ledger.credit(now, [report(replace(WEB, inode=inode), row(1.0))], {A: COVERED})
    assert ledger.held == {ROW: HeldTime(16, 0, 4)}


POD = replace(WEB, pod=Pod("uid", "trainer-0", "research", "main"))
NAMELESS = replace(WEB, pod=Pod("uid"), is_named=False)


def test_usage_waits_for_the_name() -> None:
    ledger = Ledger()
    for now in (100.0, 110.0):
        ledger.credit(now, [report(NAMELESS, row(1.0))], {A: COVERED})
    assert ledger.held == {ROW: HeldTime(8, 0, 2)}
    assert ledger.usage == {}
    ledger.credit(120.0, [report(POD, row(1.0))], {A: COVERED})
    assert ledger.usage == {Account("research", None, "H100"): HeldTime(16, 0, 4)}


def test_usage_of_a_container_that_ended_without_a_name_is_credited_at_its_end() -> None:
    ledger = Ledger()
    for now in (100.0, 110.0):
        ledger.credit(now, [report(NAMELESS, row(1.0))], {A: COVERED})
    ledger.credit(120.0, [], {A: COVERED})
    assert ledger.usage == {NOBODY: HeldTime(8, 0, 7)}


def test_what_was_held_before_a_loss_waits_for_the_name_too() -> None:
    ledger = Ledger()
    ledger.credit(100.0, [report(NAMELESS, row())], {})
    ledger.credit(110.0, [report(NAMELESS, row(lost=True))], {})
    ledger.credit(120.0, [report(POD, row(lost=True))], {})
    assert ledger.usage == {Account("research", None, "H100"): HeldTime(unknown=5)}


@pytest.mark.parametrize(
    ("container", "account"),
    [
        (POD, Account("research", None, "H100")),
        (replace(WEB, slurm=SlurmStep("0", "42", 1000)), Account(None, 1000, "H100")),
        (replace(POD, slurm=SlurmStep("0", "42", 1000)), Account("research", None, "H100")),
        (replace(WEB, slurm=SlurmStep("0", "42")), NOBODY),
        (replace(WEB, pod=Pod("uid")), NOBODY),
        (WEB, NOBODY),
    ],
    ids=["namespace", "owner", "both", "owner unknown", "namespace unknown", "neither"],
)
def test_on_whose_account_it_goes(container: Container, account: Account) -> None:
    ledger = Ledger()
    for now in (100.0, 110.0):
        ledger.credit(now, [report(container, row())], {})
    assert ledger.usage == {account: HeldTime(unknown=10)}


def test_an_account_is_of_one_model() -> None:
    ledger = Ledger()
    rows = (row(), replace(row(device=B), model=None))
    for now in (100.0, 110.0):
        ledger.credit(now, [report(WEB, *rows)], {A: COVERED})
    assert ledger.held == {ROW: HeldTime(0, 8, 2), RowKey("web", B): HeldTime(0, 0, 10)}
    assert ledger.usage == {NOBODY: HeldTime(0, 8, 2), Account(None, None, None): HeldTime(0, 0, 10)}


def test_what_was_told_of_one_cycle_does_not_change_with_the_next() -> None:
    ledger = Ledger()
    ledger.credit(100.0, [report(WEB, row())], {A: COVERED})
    held, usage = ledger.held, ledger.usage
    ledger.credit(110.0, [report(WEB, row())], {A: COVERED})
    assert held == {ROW: HeldTime(0, 0, 0)}
    assert usage == {NOBODY: HeldTime(0, 0, 0)}


def test_a_container_that_is_excluded_once_it_has_its_name_is_on_nobodys_account() -> None:
    """Its name is awaited for up to two cycles, in which nobody can say whether it is to be left out."""
    ledger, waiting = Ledger(), replace(WEB, is_named=False)
    for now in (100.0, 110.0):
        ledger.credit(now, [report(waiting, row(1.0))], {A: COVERED})
    excluded = ContainerReport(replace(WEB, name="web"), AccessClass.EXCLUDED, PolicySource.NOBODY)
    for now in (120.0, 130.0):
        ledger.credit(now, [excluded], {A: COVERED})
        assert (ledger.held, ledger.usage) == ({}, {})
