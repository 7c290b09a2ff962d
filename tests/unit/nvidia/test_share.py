# SPDX-License-Identifier: Apache-2.0
"""Whose the processes on a device are, and what is nobody's."""

from __future__ import annotations

import pytest

from otel_gpu_cgroup.model import GpuProcess, GpuReading, GpuUuid, Ownership, OwnShare, ProcessOwner
from otel_gpu_cgroup.nvidia.share import own_shares, unattributed

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
OWNERS = {
    1: ProcessOwner("web", 100.0),
    2: ProcessOwner("web", 100.0),
    3: ProcessOwner("train", 100.0),
    4: ProcessOwner(None, 100.0),
}


def reading(*processes: GpuProcess, covered: float | None = 15.0) -> GpuReading:
    return GpuReading(80, 70, processes=processes, covered=covered)


def test_a_share_is_the_sum_over_the_containers_own_processes() -> None:
    shares = own_shares(
        {A: reading(GpuProcess(1, 10, 0.5), GpuProcess(2, 5, 0.25), GpuProcess(3, 40, 0.1)), B: reading()},
        Ownership(OWNERS),
    )
    assert shares.of("web", A) == OwnShare(15, 0.75, 2)
    assert shares.of("train", A) == OwnShare(40, 0.1, 1)


def test_none_of_its_processes_is_a_known_zero() -> None:
    shares = own_shares({A: reading(GpuProcess(3, 40, 0.1)), B: reading()}, Ownership(OWNERS))
    assert shares.of("web", A) == shares.of("web", B) == shares.of("train", B) == OwnShare(0, 0.0, 0)


def test_processes_that_could_not_be_read_are_no_share_of_that_device_alone() -> None:
    shares = own_shares({A: GpuReading(80, 70, covered=15.0), B: reading(GpuProcess(1, 10, 0.5))}, Ownership(OWNERS))
    assert shares.of("web", A) is None
    assert shares.of("web", GpuUuid("GPU-c")) is None
    assert shares.of("web", B) == OwnShare(10, 0.5, 1)


def test_pids_that_mean_nothing_here_are_no_share_at_all() -> None:
    shares = own_shares({A: reading(GpuProcess(1, 10, 0.5)), B: reading()}, Ownership(OWNERS, is_told=False))
    assert shares.of("web", A) is None
    assert shares.of("web", B) is None
    assert shares.devices("web") == frozenset()


@pytest.mark.parametrize("pid", [4, 5], ids=["outside of all containers", "ended, or of another namespace"])
def test_a_process_of_no_container_is_in_nobodys_share(pid: int) -> None:
    shares = own_shares({A: reading(GpuProcess(1, 10, 0.5), GpuProcess(pid, 40, 0.5))}, Ownership(OWNERS))
    assert shares.of("web", A) == OwnShare(10, 0.5, 1)
    assert shares.of("train", A) == OwnShare(0, 0.0, 0)


def test_memory_that_the_driver_does_not_tell_of_one_process_is_not_told_of_its_container() -> None:
    processes = (GpuProcess(1, 10, 0.5), GpuProcess(2, None, 0.5), GpuProcess(3, 40, 0.1))
    shares = own_shares({A: reading(*processes)}, Ownership(OWNERS))
    assert shares.of("web", A) == OwnShare(None, 1.0, 2)
    assert shares.of("train", A) == OwnShare(40, 0.1, 1)


def test_utilization_that_nobody_tells_of_one_process_is_not_told_of_its_container() -> None:
    shares = own_shares({A: reading(GpuProcess(1, 10, 0.5), GpuProcess(2, 5))}, Ownership(OWNERS))
    assert shares.of("web", A) == OwnShare(15, None, 2)
    assert shares.of("train", A) == OwnShare(0, 0.0, 0)


@pytest.mark.parametrize(
    ("covered", "are_samples_told"), [(None, True), (15.0, False)], ids=["no samples", "pids not translated"]
)
def test_utilization_that_the_driver_does_not_tell_is_nobodys_zero_either(
    covered: float | None, *, are_samples_told: bool
) -> None:
    ownership = Ownership(OWNERS, are_samples_told=are_samples_told)
    shares = own_shares({A: reading(GpuProcess(1, 10, 0.5), covered=covered)}, ownership)
    assert shares.of("web", A) == OwnShare(10, None, 1)
    assert shares.of("train", A) == OwnShare(0, None, 0)


def test_utilization_is_at_most_one() -> None:
    assert own_shares({A: reading(GpuProcess(1, 1, 0.7), GpuProcess(2, 1, 0.6))}, Ownership(OWNERS)).of(
        "web", A
    ) == OwnShare(2, 1.0, 2)


@pytest.mark.parametrize(
    ("sampled_at", "expected"),
    [(99.0, 0.0), (99.98, 0.0), (99.99, 0.5), (99.995, 0.5), (100.0, 0.5), (107.0, 0.5), (None, 0.5)],
)
def test_a_sample_from_before_the_process_began_is_of_an_earlier_one_with_its_pid(
    sampled_at: float | None, expected: float
) -> None:
    shares = own_shares({A: reading(GpuProcess(1, 10, 0.5, sampled_at))}, Ownership(OWNERS))
    assert shares.of("web", A) == OwnShare(10, expected, 1)


def test_the_devices_that_a_container_has_a_process_on() -> None:
    readings = {A: reading(GpuProcess(1), GpuProcess(2)), B: reading(GpuProcess(2), GpuProcess(4))}
    shares = own_shares(readings, Ownership(OWNERS))
    assert shares.devices("web") == {A, B}
    assert shares.devices("train") == frozenset()


def test_who_has_nothing_shares_one_value() -> None:
    shares = own_shares({A: reading(), B: reading()}, Ownership(OWNERS))
    assert shares.of("web", A) is shares.of("train", B)


@pytest.mark.parametrize(
    ("used", "memories", "rest"),
    [
        (100, [30, 50], 20),
        (100, [100], 0),
        (100, [], 100),
        (0, [0, 0], 0),
        (100, [60, 41], None),
        (100, [60, None], None),
        (None, [60], None),
        (None, [], None),
    ],
)
def test_what_no_share_holds(used: int | None, memories: list[int | None], rest: int | None) -> None:
    assert unattributed(used, [OwnShare(memory, 0.0, 1) for memory in memories]) == rest


def test_beside_a_share_that_nobody_can_tell_nothing_can_be_called_unattributed() -> None:
    assert unattributed(100, [OwnShare(10, 0.0, 1), None]) is None
