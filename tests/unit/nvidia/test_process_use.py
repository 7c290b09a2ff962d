# SPDX-License-Identifier: Apache-2.0
"""Lists and samples of processes, as every kind of driver tells them, and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from otel_gpu_cgroup.model import GpuProcess
from otel_gpu_cgroup.nvidia.nvml import ListedProcess, ProcessSample
from otel_gpu_cgroup.nvidia.readings.duty_cycle import Instant
from otel_gpu_cgroup.nvidia.readings.process_use import ProcessUse

if TYPE_CHECKING:
    from collections.abc import Sequence

GIB = 1024**3
DAY = 86400.0
WALL, BOOT = 20_000 * DAY, 7 * DAY
CLOCKS = pytest.mark.parametrize("driver", [WALL, BOOT], ids=["wall clock", "boottime"])


class Pass(NamedTuple):
    """What one pass gets to hear; times are seconds since the first pass."""

    at: float
    listed: tuple[ListedProcess, ...] | None = (ListedProcess(7, GIB),)
    samples: tuple[tuple[int, float, float], ...] | None = ()
    """Pid, when, percent."""
    ticks: tuple[float, ...] = ()
    """When the device's own samples were taken."""
    total: int | None = 80 * GIB


class Told(NamedTuple):
    """What one pass made of it."""

    processes: tuple[GpuProcess, ...] | None
    covered: float | None
    asked_from: float
    """Seconds since the first pass, on the driver's clock."""

    @property
    def utilization(self) -> dict[int, float | None]:
        assert self.processes is not None
        return {process.pid: process.utilization for process in self.processes}


def run(passes: Sequence[Pass], driver: float = WALL) -> list[Told]:
    """What each of some passes over one device makes of what it hears of a driver with this clock."""
    use, told = ProcessUse(), []
    for it in passes:
        now = Instant(WALL + it.at, BOOT + it.at)
        newest = max((round((driver + tick) * 1e6) for tick in it.ticks), default=0)
        since = use.ask_from(newest, now)
        samples = None
        if it.samples is not None:
            samples = [ProcessSample(pid, round((driver + when) * 1e6), percent) for pid, when, percent in it.samples]
        ages = [(it.at - tick, 50.0) for tick in it.ticks]
        told.append(Told(*use.join(it.listed, samples, ages, now, it.total), since / 1e6 - driver))
    return told


def last(*passes: Pass, driver: float = WALL) -> Told:
    return run(passes, driver)[-1]


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ((), {}),
        ((ListedProcess(9, 1), ListedProcess(7, 2)), {7: 2, 9: 1}),
        ((ListedProcess(7, 5), ListedProcess(7, 8), ListedProcess(7, 6)), {7: 8}),
        ((ListedProcess(7, None),), {7: None}),
        ((ListedProcess(7, None), ListedProcess(7, 3)), {7: 3}),
        ((ListedProcess(7, 3), ListedProcess(7, None)), {7: 3}),
        ((ListedProcess(0, 3), ListedProcess(4294967295, 3), ListedProcess(2**31, 3), ListedProcess(7, 3)), {7: 3}),
        ((ListedProcess(2**31 - 1, 3),), {2**31 - 1: 3}),
        ((ListedProcess(7, 100), ListedProcess(8, 101)), {7: 100, 8: None}),
        ((ListedProcess(7, 101), ListedProcess(7, 99)), {7: 99}),
        ((ListedProcess(7, 0),), {7: 0}),
    ],
    ids=[
        "nobody",
        "in the order of pids",
        "in three lists",
        "not available",
        "not available in the first list",
        "not available in the second list",
        "pids that cannot be",
        "the last pid",
        "more than there is",
        "more than there is in one list",
        "none",
    ],
)
def test_every_process_is_there_once(listed: tuple[ListedProcess, ...], expected: dict[int, int | None]) -> None:
    told = last(Pass(0, listed, total=100)).processes
    assert told is not None
    assert [(process.pid, process.memory) for process in told] == list(expected.items())


def test_memory_of_a_device_of_unknown_size_is_as_told() -> None:
    told = last(Pass(0, (ListedProcess(7, GIB),), total=None)).processes
    assert told == (GpuProcess(7, GIB, 0.0),)


def test_lists_that_could_not_be_read_are_not_empty() -> None:
    told = last(Pass(0), Pass(15, listed=None, samples=((7, 14, 50),)))
    assert (told.processes, told.covered) == (None, None)


@CLOCKS
def test_a_sample_is_a_part_of_one_and_when_it_was_taken(driver: float) -> None:
    told = last(Pass(0), Pass(15, samples=((7, 13.5, 40),), ticks=(-1.5, 14.9)), driver=driver)
    assert told.processes is not None
    [process] = told.processes
    assert process.utilization == 0.4
    assert process.sampled_at == pytest.approx(BOOT + 13.5, abs=1e-5)
    assert told.covered == 15


@CLOCKS
def test_several_samples_of_a_process_are_their_mean_and_the_oldest_says_when(driver: float) -> None:
    told = last(Pass(0), Pass(15, samples=((7, 14, 10), (7, 3, 30), (7, 8, 50))), driver=driver)
    assert told.processes is not None
    [process] = told.processes
    assert process.utilization == pytest.approx(0.3)
    assert process.sampled_at == pytest.approx(BOOT + 3, abs=1e-5)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ((), 0.0),
        (((8, 14, 90),), 0.0),
        (((0, 14, 90),), 0.0),
        (((7, 14, 0),), 0.0),
        (((7, 14, 100),), 1.0),
        (((7, 14, 101),), None),
        (((7, 14, -1),), None),
        (((7, 14, 4294967295), (7, 12, 40)), 0.4),
        (((7, 15.9, 40),), 0.4),
        (((7, 16.5, 40),), None),
        (((7, 1e9, 40), (8, 14, 40)), None),
        (((7, -0.5, 40),), 0.4),
        (((7, -2, 40),), 0.0),
        (((7, -DAY, 40),), 0.0),
    ],
    ids=[
        "nobody was active",
        "another was active",
        "no process",
        "active to no percent",
        "always active",
        "above 100",
        "below 0",
        "above 100, and one that can be",
        "of the future within the slack",
        "of the future",
        "garbage",
        "late by less than a sample",
        "older than the previous pass",
        "stale",
    ],
)
def test_use_since_the_previous_pass(samples: tuple[tuple[int, float, float], ...], expected: float | None) -> None:
    assert last(Pass(0), Pass(15, samples=samples)).utilization == {7: expected}


def test_a_process_that_is_in_no_list_is_no_process() -> None:
    assert last(Pass(0), Pass(15, samples=((99, 14, 80), (7, 14, 20)))).utilization == {7: 0.2}


def test_samples_that_were_seen_are_not_seen_again() -> None:
    seen = Pass(0, samples=((7, -1, 60), (8, -0.2, 10)))
    told = last(seen, Pass(15, samples=((7, -0.2, 60),)))
    assert told.utilization == {7: 0.0}
    assert told.asked_from == pytest.approx(-0.2, abs=1e-5)


@CLOCKS
def test_the_first_pass_looks_back_ten_seconds_and_covers_none_of_a_cycle(driver: float) -> None:
    both = (ListedProcess(7, GIB), ListedProcess(8, GIB))
    told = last(Pass(0, both, ((7, -9, 30), (8, -11, 70)), (-16.0, -0.5)), driver=driver)
    assert told.utilization == {7: 0.3, 8: 0.0}
    assert told.covered is None
    assert told.asked_from == pytest.approx(-10.5, abs=1e-5)


def test_a_first_pass_without_any_sample_of_the_device_asks_for_all() -> None:
    assert last(Pass(0)).asked_from == -WALL


@CLOCKS
def test_after_an_idle_time_the_mean_is_of_the_time_since_the_previous_pass(driver: float) -> None:
    """The driver is asked for a second more, as samples may come late, of which it is known that it was idle."""
    begun = Pass(30, samples=((7, 29.9, 45),), ticks=(13.5, 14.9, 29.9))
    told = run([Pass(0, samples=((7, -1, 60),), ticks=(-0.1,)), Pass(15, ticks=(14.9,)), begun], driver)
    assert [it.asked_from for it in told[1:]] == pytest.approx([-1, 13.9], abs=1e-5)
    assert told[2].utilization == {7: pytest.approx(0.45 * 16 / 15)}
    assert told[2].covered == 15


@pytest.mark.parametrize(
    ("percent", "ticks", "expected"),
    [(97, (13.0, 29.9), 1.0), (45, (20.0, 29.9), 0.45), (45, (14.5, 29.9), 0.45 * 15.5 / 15)],
    ids=["never above 1", "that second is no longer kept", "half of that second is"],
)
def test_the_second_more_after_an_idle_time(percent: float, ticks: tuple[float, ...], expected: float) -> None:
    passes = [Pass(0, ticks=(-0.1,)), Pass(15, ticks=(14.9,)), Pass(30, samples=((7, 29.9, percent),), ticks=ticks)]
    assert last(*passes).utilization == {7: pytest.approx(expected)}


def test_a_driver_whose_buffer_ran_dry_is_asked_from_the_last_process_on() -> None:
    told = run([Pass(0, samples=((7, -1, 60),)), Pass(15), Pass(30, samples=((7, 29, 40),), ticks=(28.0, 29.9))])
    assert [it.asked_from for it in told[1:]] == pytest.approx([-1, -1], abs=1e-5)
    assert told[2].utilization == {7: 0.4}
    assert told[2].covered == pytest.approx(2)


def test_a_clock_that_was_set_back_is_asked_for_all() -> None:
    ahead = Pass(0, samples=((7, 0.5, 60),), ticks=(0.5,))
    use = ProcessUse()
    assert use.ask_from(0, Instant(WALL, BOOT)) == 0
    use.join(ahead.listed, [ProcessSample(7, round(WALL * 1e6), 60)], (), Instant(WALL, BOOT), None)
    back = Instant(WALL - 3600, BOOT + 15)
    assert use.ask_from(round((WALL - 3600) * 1e6), back) == 0
    samples = [ProcessSample(7, round((WALL - 3601) * 1e6), 25)]
    processes, _ = use.join(ahead.listed, samples, (), back, None)
    assert processes is not None
    assert processes[0].utilization == 0.25


def test_a_stamp_of_garbage_hides_no_later_sample() -> None:
    told = run([Pass(0, samples=((7, 1e9, 5),)), Pass(15, samples=((7, 14, 50), (8, 1e9, 5))), Pass(30)])
    assert told[1].utilization == {7: 0.5}
    assert [it.asked_from for it in told[1:]] == pytest.approx([-WALL, 14], abs=1e-5)


@pytest.mark.parametrize("samples", [(), ((7, 14.0, 50.0),)], ids=["idle", "busy"])
@pytest.mark.parametrize(
    ("ticks", "expected"),
    [((), 15), ((-1.0, 14.0), 15), ((3.0, 14.0), 12), ((14.0, 3.0), 12), ((15.5,), 0)],
    ids=["dry", "all of it", "a part", "in any order", "of the future"],
)
def test_covered_is_what_the_driver_still_keeps_of_the_time_since_the_previous_pass(
    samples: tuple[tuple[int, float, float], ...], ticks: tuple[float, ...], expected: float
) -> None:
    assert last(Pass(0), Pass(15, samples=samples, ticks=ticks)).covered == pytest.approx(expected)


def test_an_empty_list_is_covered_too() -> None:
    told = last(Pass(0, ()), Pass(15, ()))
    assert (told.processes, told.covered) == ((), 15)


def test_a_driver_that_does_not_tell_of_use_leaves_the_memory() -> None:
    told = last(Pass(0, samples=None), Pass(15, samples=None, ticks=(3.0, 14.0)))
    assert told.processes == (GpuProcess(7, GIB),)
    assert told.covered is None


def test_a_pass_whose_samples_failed_is_not_covered_by_the_next() -> None:
    told = run([Pass(0), Pass(15, samples=None), Pass(30, samples=((7, 29, 50),))])
    assert [it.covered for it in told] == [None, None, 15]
    assert told[2].utilization == {7: 0.5}


def test_a_pass_whose_lists_failed_is_not_covered_by_the_next() -> None:
    assert [it.covered for it in run([Pass(0), Pass(15, None), Pass(30)])] == [None, None, 15]


@pytest.mark.parametrize(
    ("at", "ticks", "expected", "covered"),
    [
        (0.1, (-3.0, -0.4), None, None),
        (0.1, (-30.0, -20.0), 0.0, 0.1),
        (0.1, (), 0.0, 0.1),
        (0.5, (-3.0, 0.3), 0.0, 0.5),
        (15, (-3.0, -0.5), 0.0, 15),
    ],
    ids=["not sampled yet", "idle for long", "dry", "sampled", "no sample for longer than one can take"],
)
def test_a_driver_that_has_not_sampled_since_the_previous_pass_says_nothing_of_an_idle_process(
    at: float, ticks: tuple[float, ...], expected: float | None, covered: float | None
) -> None:
    told = last(Pass(0), Pass(at, ticks=ticks))
    assert told.utilization == {7: expected}
    assert told.covered == (None if covered is None else pytest.approx(covered))


def test_nobody_can_tell_of_an_mps_client_without_a_sample() -> None:
    """Its time is in what the driver tells of the server, which is in the list of compute processes alone."""
    lists = (
        *(ListedProcess(pid, GIB) for pid in (5, 7, 8)),
        *(ListedProcess(pid, GIB, is_mps=True) for pid in (7, 8)),
    )
    told = last(Pass(0), Pass(15, lists, ((8, 14, 30),)))
    assert told.utilization == {5: 0.0, 7: None, 8: 0.3}
    assert told.covered == 15


@pytest.mark.parametrize("reverse", [False, True])
def test_a_client_is_one_in_whichever_order_the_lists_are_read(reverse: bool) -> None:  # noqa: FBT001
    lists = [ListedProcess(7, 1), ListedProcess(7, 2, is_mps=True)]
    told = last(Pass(0), Pass(15, tuple(reversed(lists) if reverse else lists)))
    assert told.processes == (GpuProcess(7, 2, None),)
