# SPDX-License-Identifier: Apache-2.0
"""One suite for whatever answers as NVML: the simulated host, the C fake through real pynvml, and hardware."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.errors import NvmlQueryFailed, NvmlUnavailable, NvmlUnsupported
from otel_gpu_cgroup.nvidia.nvml import Nvml, NvmlGpu, PyNvml
from otel_gpu_cgroup.nvidia.readings.duty_cycle import age_of, sample_ages
from otel_gpu_cgroup.nvidia.readings.snapshot import SystemClock
from otel_gpu_cgroup.simulate.nvml import SimulatedNvml
from tests.fakes.fake_nvml import GIB, FakeGpu, FakeInstance, FakeMemory, FakeProcess, FakeShare, Steady, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import LoadedDriver

WORLD = World(
    gpus=(
        FakeGpu(
            uuid="GPU-a",
            minor=1,
            memory=FakeMemory(used=GIB, reserved=GIB),
            samples=Steady((20, 40)),
            processes=(FakeProcess(pid=11, memory=GIB), FakeProcess(pid=12, memory=None, kind="mps")),
            shares=(FakeShare(pid=11, sm=40), FakeShare(pid=12, sm=10, age_us=5_000_000)),
        ),
        FakeGpu(uuid="GPU-b", minor=0, clock="boottime", samples=Steady((0,)), shares=(FakeShare(pid=11, sm=1),)),
        FakeGpu(
            uuid="GPU-c",
            minor=2,
            instances=(
                FakeInstance(slot=0, uuid="MIG-c1", gi=9),
                FakeInstance(slot=3, uuid="MIG-c2", gi=2, slices=3, compute_slices=3, profile="3g.40gb"),
            ),
        ),
    )
)


@pytest.fixture(params=["simulated", "C fake", pytest.param("hardware", marks=pytest.mark.gpu)])
def nvml(request: pytest.FixtureRequest) -> Iterator[Nvml]:
    library = _library(request)
    library.start()
    yield library
    library.stop()


def _library(request: pytest.FixtureRequest) -> Nvml:
    if request.param == "simulated":
        return SimulatedNvml(time.time)
    if request.param == "hardware":
        return PyNvml()
    fake: LoadedDriver = request.getfixturevalue("driver")
    fake.set(WORLD)
    return PyNvml(fake.library)


@pytest.fixture
def devices(nvml: Nvml) -> list[NvmlGpu]:
    found = [nvml.device(index) for index in range(nvml.device_count())]
    assert found
    return found


@pytest.fixture
def whole(devices: list[NvmlGpu]) -> list[NvmlGpu]:
    return [device for device in devices if not is_partitioned(device)]


def is_partitioned(device: NvmlGpu) -> bool:
    try:
        return device.is_partitioned()
    except NvmlUnsupported:
        return False


def test_driver_version_is_numbers_with_points(nvml: Nvml) -> None:
    assert all(part.isdigit() for part in nvml.driver_version().split("."))


def test_each_gpu_has_its_own_identity(devices: list[NvmlGpu]) -> None:
    gpus = [device.identity() for device in devices]
    assert [gpu.index for gpu in gpus] == list(range(len(gpus)))
    for told in ({gpu.uuid for gpu in gpus}, {gpu.minor for gpu in gpus}, {gpu.address for gpu in gpus}):
        assert len(told) == len(gpus)
        assert None not in told
    assert all(gpu.uuid is not None and gpu.uuid.startswith("GPU-") and gpu.model for gpu in gpus)


def test_used_memory_is_part_of_the_total(devices: list[NvmlGpu]) -> None:
    for device in devices:
        memory = device.memory()
        assert memory.total is not None
        assert memory.used is not None
        assert 0 <= memory.used <= memory.total


def test_samples_are_young_percents(whole: list[NvmlGpu]) -> None:
    for device in whole:
        samples = device.utilization_samples()
        ages = sample_ages(samples, SystemClock().instant())
        assert len(ages) == len(samples)
        assert all(0 <= percent <= 100 for _, percent in ages)
        assert all(age < 3600 for age, _ in ages)


def test_every_instance_says_who_it_is_and_has_memory_of_its_gpus(devices: list[NvmlGpu]) -> None:
    for device in devices:
        if not is_partitioned(device):
            continue
        gpu, slots = device.identity(), device.slots()
        assert gpu.uuid is not None
        found = [instance for slot in range(slots) if (instance := device.instance(slot)) is not None]
        described = [instance.describe(gpu.uuid, slots) for instance in found]
        assert all(instance.uuid().startswith("MIG-") for instance in found)
        assert len({instance.uuid() for instance in found}) == len(found)
        assert len({(it.gpu_instance, it.compute_instance) for it in described}) == len(found)
        assert all(it.profile and it.fraction and 0 < it.fraction <= 1 for it in described)
        total = device.memory().total or 0
        assert all(0 < (instance.memory().total or 0) <= total for instance in found)


def test_utilization_rate_is_a_percent(whole: list[NvmlGpu]) -> None:
    assert all(0 <= device.utilization_rate() <= 100 for device in whole)


def test_processes_have_a_pid_and_no_more_memory_than_there_is(devices: list[NvmlGpu]) -> None:
    for device in devices:
        total = device.memory().total or 0
        for process in device.processes():
            assert 0 < process.pid < 2**31
            assert process.memory is None or 0 <= process.memory <= total


def test_samples_of_processes_are_young_percents(whole: list[NvmlGpu]) -> None:
    for device in whole:
        for sample in device.process_samples(0):
            assert 0 <= sample.percent <= 100
            assert -1 <= age_of(sample.stamp, SystemClock().instant()) < 3600


def test_samples_that_were_seen_are_not_told_again(whole: list[NvmlGpu]) -> None:
    for device in whole:
        seen = max((sample.stamp for sample in device.process_samples(0)), default=0)
        assert all(sample.stamp > seen for sample in device.process_samples(seen))


def test_a_stamp_of_the_future_is_followed_by_none(whole: list[NvmlGpu]) -> None:
    future = round((time.time() + 3600) * 1e6)
    assert all(device.process_samples(future) == () for device in whole)


def test_an_index_that_nobody_has_fails_alone(nvml: Nvml) -> None:
    with pytest.raises(NvmlQueryFailed):
        nvml.device(nvml.device_count())
    assert nvml.device_count() > 0


def test_after_the_stop_nothing_is_answered_until_the_next_start(nvml: Nvml) -> None:
    nvml.stop()
    with pytest.raises(NvmlUnavailable):
        nvml.device_count()
    nvml.stop()  # once more: it has nothing to undo
    nvml.start()
    assert nvml.device_count() > 0
