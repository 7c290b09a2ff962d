# SPDX-License-Identifier: Apache-2.0
"""One suite for whatever answers as NVML: the simulated host, the C fake through real pynvml, and hardware."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.errors import NvmlQueryFailed, NvmlUnavailable
from otel_gpu_cgroup.nvidia.duty_cycle import sample_ages
from otel_gpu_cgroup.nvidia.nvml import Nvml, NvmlDevice, PyNvml
from otel_gpu_cgroup.nvidia.snapshot import SystemClock
from otel_gpu_cgroup.simulate.nvml import SimulatedNvml
from tests.fakes.fake_nvml import GIB, FakeGpu, FakeMemory, Steady, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import LoadedDriver

WORLD = World(
    gpus=(
        FakeGpu(uuid="GPU-a", minor=1, memory=FakeMemory(used=GIB, reserved=GIB), samples=Steady((20, 40))),
        FakeGpu(uuid="GPU-b", minor=0, clock="boottime", samples=Steady((0,))),
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
def devices(nvml: Nvml) -> list[NvmlDevice]:
    found = [nvml.device(index) for index in range(nvml.device_count())]
    assert found
    return found


def test_driver_version_is_numbers_with_points(nvml: Nvml) -> None:
    assert all(part.isdigit() for part in nvml.driver_version().split("."))


def test_each_gpu_has_its_own_identity(devices: list[NvmlDevice]) -> None:
    gpus = [device.identity() for device in devices]
    assert [gpu.index for gpu in gpus] == list(range(len(gpus)))
    for told in ({gpu.uuid for gpu in gpus}, {gpu.minor for gpu in gpus}, {gpu.address for gpu in gpus}):
        assert len(told) == len(gpus)
        assert None not in told
    assert all(gpu.uuid is not None and gpu.uuid.startswith("GPU-") and gpu.model for gpu in gpus)


def test_used_memory_is_part_of_the_total(devices: list[NvmlDevice]) -> None:
    for device in devices:
        memory = device.memory()
        assert memory.total is not None
        assert memory.used is not None
        assert 0 <= memory.used <= memory.total


def test_samples_are_young_percents(devices: list[NvmlDevice]) -> None:
    for device in devices:
        samples = device.utilization_samples()
        ages = sample_ages(samples, SystemClock().instant())
        assert len(ages) == len(samples)
        assert all(0 <= percent <= 100 for _, percent in ages)
        assert all(age < 3600 for age, _ in ages)


def test_utilization_rate_is_a_percent(devices: list[NvmlDevice]) -> None:
    assert all(0 <= device.utilization_rate() <= 100 for device in devices)


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
