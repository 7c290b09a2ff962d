# SPDX-License-Identifier: Apache-2.0
"""One pass over the GPUs, driven through real pynvml by the C fake."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.errors import NvmlUnavailable
from otel_gpu_cgroup.model import GpuReading, GpuUuid
from otel_gpu_cgroup.nvidia.nvml import PyNvml
from otel_gpu_cgroup.nvidia.readings.snapshot import SnapshotReader, SystemClock
from tests.fakes.fake_nvml import GIB, FakeGpu, FakeMemory, Recorded, Steady, World, uniform_gpus

if TYPE_CHECKING:
    from tests.conftest import LoadedDriver

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
MEMORY = FakeMemory(total=80 * GIB, used=5 * GIB)
SECOND = 1_000_000


def reader(driver: LoadedDriver, *gpus: FakeGpu) -> SnapshotReader:
    driver.set(World(gpus=gpus))
    nvml = PyNvml(driver.library)
    nvml.start()
    return SnapshotReader(nvml, SystemClock())


def calls(driver: LoadedDriver) -> int:
    return sum(count for name, count in driver.counts().items() if name.startswith("nvml"))


def test_a_snapshot_has_every_gpu_and_its_values(driver: LoadedDriver) -> None:
    recorded = Recorded(((15 * SECOND, 100), (6 * SECOND, 20), (SECOND, 45)))
    snapshot = reader(
        driver,
        FakeGpu(uuid=A, minor=1, name="L4", memory=MEMORY, samples=recorded),
        FakeGpu(uuid=B, minor=0, samples=Steady((0,))),
    ).read()
    assert [(gpu.uuid, gpu.minor, gpu.index, gpu.model) for gpu in snapshot.gpus] == [
        (A, 1, 0, "L4"),
        (B, 0, 1, "NVIDIA H100 80GB HBM3"),
    ]
    # 100 is older than 10 s; (20 + 45) / 2 is no whole number, and cAdvisor would have said 32
    assert snapshot.readings[A] == GpuReading(80 * GIB, 5 * GIB, 32.5, 0.325, ())
    assert snapshot.readings[B].duty_cycle == 0
    assert snapshot.count == 2
    assert not snapshot.problems


@pytest.mark.parametrize("clock", ["epoch", "boottime"])
def test_both_sample_clocks(driver: LoadedDriver, clock: str) -> None:
    gpu = FakeGpu(uuid=A, minor=0, samples=Steady((40, 60)), clock="epoch" if clock == "epoch" else "boottime")
    reading = reader(driver, gpu).read().readings[A]
    assert reading.duty_cycle == pytest.approx(50, abs=1)


def test_utilization_is_of_the_time_since_the_previous_pass(driver: LoadedDriver) -> None:
    snapshots = reader(driver, FakeGpu(uuid=A, minor=0, samples=Recorded(((5 * SECOND, 80),))))
    assert snapshots.read().readings[A].utilization == 0.8
    driver.set(World(gpus=(FakeGpu(uuid=A, minor=0, samples=Recorded(((5 * SECOND, 80), (0, 20)))),)))
    second = snapshots.read().readings[A]
    assert second.utilization == 0.2
    assert second.duty_cycle == 50.0


@pytest.mark.parametrize("samples", [Recorded(), Recorded(((20 * SECOND, 99),))], ids=["none", "none young"])
def test_an_idle_gpu_whose_samples_ran_dry_falls_back_to_the_rate(driver: LoadedDriver, samples: Recorded) -> None:
    reading = reader(driver, FakeGpu(uuid=A, minor=0, samples=samples, utilization=3)).read().readings[A]
    assert (reading.duty_cycle, reading.utilization) == (3.0, 0.03)


def test_a_rate_above_100_is_no_value(driver: LoadedDriver) -> None:
    gpu = FakeGpu(uuid=A, minor=0, samples=Recorded(), utilization=250)
    assert reader(driver, gpu).read().readings[A].duty_cycle is None


def test_what_one_gpu_does_not_support_costs_that_value_alone_and_is_asked_once(driver: LoadedDriver) -> None:
    unsupported = ("nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates")
    snapshots = reader(driver, FakeGpu(uuid=A, minor=0, memory=MEMORY, unsupported=unsupported))
    before = driver.counts()
    first, second = snapshots.read(), snapshots.read()
    for snapshot in (first, second):
        assert replace(snapshot.readings[A], covered=None) == GpuReading(80 * GIB, 5 * GIB, processes=())
    assert not first.problems
    asked = {name: driver.counts()[name] - before.get(name, 0) for name in unsupported}
    assert asked == {"nvmlDeviceGetSamples": 1, "nvmlDeviceGetUtilizationRates": 1}


@pytest.mark.parametrize("code", [15, 16], ids=["lost", "needs a reset"])
def test_a_lost_gpu_is_one_problem_and_the_others_go_on(driver: LoadedDriver, code: int) -> None:
    snapshots = reader(
        driver,
        FakeGpu(uuid=A, minor=0, memory=MEMORY, errors={"nvmlDeviceGetMemoryInfo*": code}),
        FakeGpu(uuid=B, minor=1, memory=MEMORY),
    )
    snapshot = snapshots.read()
    assert [problem.subject for problem in snapshot.problems] == [A]
    assert snapshot.readings[A] == GpuReading()
    assert snapshot.readings[B].memory_used == 5 * GIB
    driver.set(World(gpus=(FakeGpu(uuid=A, minor=0, memory=MEMORY), FakeGpu(uuid=B, minor=1, memory=MEMORY))))
    assert snapshots.read().readings[A].memory_used == 5 * GIB


def test_a_gpu_that_is_lost_is_still_who_it_was_until_the_number_of_gpus_changes(driver: LoadedDriver) -> None:
    well = (FakeGpu(uuid=A, minor=0), FakeGpu(uuid=B, minor=1, memory=MEMORY))
    snapshots = reader(driver, *well)
    snapshots.read()
    driver.set(World(gpus=(FakeGpu(uuid=A, minor=0, errors={"*": 15}), well[1])))
    for _ in range(3):
        snapshot = snapshots.read()
        assert {(gpu.uuid, gpu.minor) for gpu in snapshot.gpus} == {(A, 0), (B, 1)}
        assert {(problem.subject, problem.message) for problem in snapshot.problems} == {(A, "GPU is lost")}
        assert snapshot.readings[A] == GpuReading()
        assert snapshot.readings[B].memory_used == 5 * GIB
    driver.set(World(gpus=(well[1],)))
    assert [gpu.uuid for gpu in snapshots.read().gpus] == [B]


def test_a_gpu_that_does_not_say_who_it_is_costs_no_other_gpu_and_is_asked_again(driver: LoadedDriver) -> None:
    nameless = FakeGpu(uuid=A, minor=0, errors={"nvmlDeviceGetMinorNumber": 999})
    snapshots = reader(driver, nameless, FakeGpu(uuid=B, minor=1))
    snapshot = snapshots.read()
    assert [gpu.uuid for gpu in snapshot.gpus] == [B]
    assert [problem.subject for problem in snapshot.problems] == ["GPU 0"]
    driver.set(World(gpus=(FakeGpu(uuid=A, minor=0), FakeGpu(uuid=B, minor=1))))
    assert [gpu.uuid for gpu in snapshots.read().gpus] == [A, B]


def test_gpus_are_listed_anew_when_their_number_changes(driver: LoadedDriver) -> None:
    snapshots = reader(driver, FakeGpu(uuid=A, minor=0))
    snapshots.read()
    driver.set(World(gpus=(FakeGpu(uuid=A, minor=0), FakeGpu(uuid=B, minor=1))))
    assert [gpu.uuid for gpu in snapshots.read().gpus] == [A, B]
    driver.set(World(gpus=(FakeGpu(uuid=B, minor=1),)))
    assert [gpu.uuid for gpu in snapshots.read().gpus] == [B]


def test_a_pass_over_known_gpus_asks_each_for_its_values_alone(driver: LoadedDriver) -> None:
    snapshots = reader(driver, *uniform_gpus(8))
    snapshots.read()
    before = calls(driver)
    snapshots.read()
    # driver version and count; for each GPU its MIG mode, its memory, three lists of processes; its samples and those
    # of its processes by one call for the size and one for them
    assert calls(driver) - before == 2 + 8 * (1 + 1 + 3 + 2 + 2)


@pytest.mark.parametrize("code", [1, 9, 18])
def test_a_driver_that_went_away_is_no_snapshot(driver: LoadedDriver, code: int) -> None:
    snapshots = reader(driver, FakeGpu(uuid=A, minor=0))
    driver.set(World(errors={"nvmlDeviceGetCount*": code}))
    with pytest.raises(NvmlUnavailable):
        snapshots.read()


@pytest.mark.parametrize("query", ["nvmlDeviceGetName", "nvmlDeviceGetPciInfo_v3"])
def test_a_gpu_without_a_name_or_an_address_keeps_its_values(driver: LoadedDriver, query: str) -> None:
    snapshot = reader(driver, FakeGpu(uuid=A, minor=0, memory=MEMORY, errors={query: 999})).read()
    [gpu] = snapshot.gpus
    assert (gpu.model is None, gpu.address is None) == (query == "nvmlDeviceGetName", query != "nvmlDeviceGetName")
    assert snapshot.readings[A].memory_used == 5 * GIB
    assert not snapshot.problems


def test_a_name_that_is_no_text_is_no_name(driver: LoadedDriver) -> None:
    [gpu] = reader(driver, FakeGpu(uuid=A, minor=0, name=b"\xff\xfe")).read().gpus
    assert (gpu.uuid, gpu.model) == (A, None)


@pytest.mark.parametrize("code", [2, 4, 6, 8, 10, 12, 17, 19, 27, 999, 12345])
def test_gpus_that_cannot_be_counted_are_who_they_were_and_have_no_readings(driver: LoadedDriver, code: int) -> None:
    snapshots = reader(driver, FakeGpu(uuid=A, minor=0, memory=MEMORY))
    snapshots.read()
    driver.set(World(gpus=(FakeGpu(uuid=A, minor=0, memory=MEMORY),), errors={"nvmlDeviceGetCount*": code}))
    snapshot = snapshots.read()
    assert ([gpu.uuid for gpu in snapshot.gpus], snapshot.readings, snapshot.count) == ([A], {}, None)
    assert [problem.subject for problem in snapshot.problems] == ["NVML"]
    driver.set(World(gpus=(FakeGpu(uuid=A, minor=0, memory=MEMORY),)))
    assert snapshots.read().readings[A].memory_used == 5 * GIB


def test_more_memory_in_use_than_there_is_is_none(driver: LoadedDriver) -> None:
    lie = FakeMemory(total=GIB, used=5 * GIB)
    snapshot = reader(driver, FakeGpu(uuid=A, minor=0, memory=lie)).read()
    assert (snapshot.readings[A].memory_total, snapshot.readings[A].memory_used) == (None, None)
    assert [problem.subject for problem in snapshot.problems] == [A]


def test_a_gpu_with_an_empty_uuid_is_a_problem(driver: LoadedDriver) -> None:
    snapshot = reader(driver, FakeGpu(uuid="", minor=0), FakeGpu(uuid=B, minor=1)).read()
    assert [gpu.uuid for gpu in snapshot.gpus] == [B]
    assert [problem.subject for problem in snapshot.problems] == ["GPU 0"]
