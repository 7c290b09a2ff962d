# SPDX-License-Identifier: Apache-2.0
"""What the fake grants to processes under a clock that the test sets: its samples, and its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from tests.fakes.fake_nvml import FakeGpu, World, environment
from tests.fakes.grants import TICK, Granted, read_grants
from tests.fakes.nvml_world import FakeGrant
from tests.fakes.pynvml_process import PynvmlProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WALL = 1_790_000_000_000_000
"""Microseconds since 1970 when this machine was booted."""
FIRST = FakeGrant(pid=5, sm=50, start=1000 * TICK, end=1010 * TICK)
SECOND = FakeGrant(pid=6, sm=20, start=1002 * TICK + 5, end=1007 * TICK - 5)


class GrantingDriver:
    """One GPU that grants what the two processes above get, at a tick that the test sets."""

    def __init__(self, library_dir: Path, folder: Path) -> None:
        self.world, self.log = folder / "world", folder / "grants"
        self.set(1000)
        self.ask = PynvmlProcess(environment(library_dir, self.world) | {"FAKE_NVML_GRANTS": str(self.log)})
        self.ask("nvmlInit()")
        self.ask("(h := nvmlDeviceGetHandleByIndex(0)) and None")

    def set(self, tick: int, *, lag: int = 0, clock: Literal["epoch", "boottime"] = "epoch") -> None:
        gpu = FakeGpu(uuid="GPU-a", minor=0, grants=(FIRST, SECOND), lag=lag * TICK, clock=clock)
        World(now=(WALL + tick * TICK, tick * TICK), gpus=(gpu,)).write(self.world)

    def samples(self, seen: int) -> list[tuple[int, int, int]]:
        """Pid, percent and the tick of the stamp, of samples with stamps after this tick."""
        found = self.ask(f"nvmlDeviceGetProcessUtilization(h, {WALL + seen * TICK})")
        return [(row["pid"], row["smUtil"], (row["timeStamp"] - WALL) // TICK) for row in found]


@pytest.fixture
def granting(library_dir: Path, tmp_path: Path) -> Iterator[GrantingDriver]:
    driver = GrantingDriver(library_dir, tmp_path)
    with driver.ask:
        yield driver


def test_a_sample_is_the_mean_over_the_ticks_since_last_seen_and_has_the_stamp_of_the_last_one(
    granting: GrantingDriver,
) -> None:
    granting.set(1005)
    assert granting.samples(1000) == [(5, 50, 1005), (6, 12, 1005)]  # 3 of 5 ticks at 20 %
    granting.set(1010)
    assert granting.samples(1005) == [(5, 50, 1010), (6, 4, 1006)]  # 1 of 5 ticks
    granting.set(1020)
    assert granting.samples(1005) == [(5, 17, 1010), (6, 1, 1006)]  # 50 % in 5 of 15 ticks
    assert granting.samples(1006) == [(5, 14, 1010)]


def test_nothing_granted_since_last_seen_is_not_found(granting: GrantingDriver) -> None:
    granting.set(1020)
    assert granting.ask.error(f"nvmlDeviceGetProcessUtilization(h, {WALL + 1010 * TICK})").code == 6


def test_the_driver_keeps_a_hundred_ticks(granting: GrantingDriver) -> None:
    granting.set(1105)
    assert granting.samples(900) == [(5, 3, 1010), (6, 0, 1006)]  # 5 and 1 of 100 ticks
    granting.set(1110)
    assert granting.ask.error("nvmlDeviceGetProcessUtilization(h, 0)").code == 6


def test_late_samples_are_not_there_yet(granting: GrantingDriver) -> None:
    granting.set(1010, lag=5)
    assert granting.samples(1000) == [(5, 50, 1005), (6, 12, 1005)]


def test_stamps_of_the_other_clock(granting: GrantingDriver) -> None:
    granting.set(1005, clock="boottime")
    assert granting.ask("[s.timeStamp for s in nvmlDeviceGetProcessUtilization(h, 0)]") == [1005 * TICK] * 2


def test_the_log_tells_what_was_granted_whether_anybody_asked_or_not(granting: GrantingDriver) -> None:
    for tick in (1005, 1020):
        granting.set(tick)
        granting.ask("nvmlDeviceGetCount()")
    log = read_grants(granting.log)
    assert log == [
        Granted(1001 * TICK, 1005 * TICK, "GPU-a", 5, 50),
        Granted(1003 * TICK, 1005 * TICK, "GPU-a", 6, 20),
        Granted(1006 * TICK, 1010 * TICK, "GPU-a", 5, 50),
        Granted(1006 * TICK, 1006 * TICK, "GPU-a", 6, 20),
    ]
    assert log[0].seconds(1003 * TICK, 2000 * TICK) == pytest.approx(2 * TICK * 0.5 / 1e6)
    assert log[0].seconds(1005 * TICK, 2000 * TICK) == 0
