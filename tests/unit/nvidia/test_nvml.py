# SPDX-License-Identifier: Apache-2.0
"""What pynvml's answers become, driven through the C fake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.errors import NvmlDeviceLost, NvmlQueryFailed, NvmlUnavailable, NvmlUnsupported
from otel_gpu_cgroup.nvidia.nvml import Memory, NvmlDevice, PyNvml
from tests.fakes.fake_nvml import GIB, FakeGpu, FakeMemory, Recorded, World

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import LoadedDriver

USED = FakeMemory(total=80 * GIB, used=5 * GIB, reserved=GIB)


def device(driver: LoadedDriver, gpu: FakeGpu) -> NvmlDevice:
    driver.set(World(gpus=(gpu,)))
    nvml = PyNvml(driver.library)
    nvml.start()
    return nvml.device(0)


def test_used_memory_is_without_the_reserve(driver: LoadedDriver) -> None:
    assert device(driver, FakeGpu(uuid="GPU-a", minor=0, memory=USED)).memory() == Memory(80 * GIB, 5 * GIB)


@pytest.mark.parametrize("code", [3, 13, 25], ids=["not supported", "no such function", "version mismatch"])
def test_an_old_driver_is_asked_for_memory_version_1_from_then_on(driver: LoadedDriver, code: int) -> None:
    old = device(driver, FakeGpu(uuid="GPU-a", minor=0, memory=USED, errors={"nvmlDeviceGetMemoryInfo_v2": code}))
    before = driver.counts()["nvmlDeviceGetMemoryInfo_v2"]
    assert old.memory() == old.memory() == Memory(80 * GIB, 6 * GIB)
    assert driver.counts()["nvmlDeviceGetMemoryInfo_v2"] == before + 1


def test_memory_that_is_marked_as_not_available_is_unknown(driver: LoadedDriver) -> None:
    marked = FakeMemory(total=80 * GIB, used=2**64 - 1)
    assert device(driver, FakeGpu(uuid="GPU-a", minor=0, memory=marked)).memory() == Memory(80 * GIB, None)


def test_a_buffer_that_ran_dry_is_empty_and_no_failure(driver: LoadedDriver) -> None:
    assert device(driver, FakeGpu(uuid="GPU-a", minor=0, samples=Recorded())).utilization_samples() == ()


@pytest.mark.parametrize("value_type", [1, 2, 3, 0], ids=["uint", "ulong", "ulonglong", "double"])
def test_samples_of_every_value_type(driver: LoadedDriver, value_type: int) -> None:
    gpu = FakeGpu(uuid="GPU-a", minor=0, samples=Recorded(((1000, 42),)), value_type=value_type)
    assert [sample.percent for sample in device(driver, gpu).utilization_samples()] == [42]


def test_samples_of_an_unknown_value_type_are_unsupported(driver: LoadedDriver) -> None:
    gpu = FakeGpu(uuid="GPU-a", minor=0, samples=Recorded(((1000, 42),)), value_type=99)
    with pytest.raises(NvmlUnsupported):
        device(driver, gpu).utilization_samples()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (15, NvmlDeviceLost),
        (16, NvmlDeviceLost),
        (4, NvmlQueryFailed),
        (999, NvmlQueryFailed),
        (3, NvmlUnsupported),
        (9, NvmlUnavailable),
        (18, NvmlUnavailable),
    ],
)
def test_error_codes(driver: LoadedDriver, code: int, error: type[Exception]) -> None:
    failing = device(driver, FakeGpu(uuid="GPU-a", minor=0, errors={"nvmlDeviceGetUtilizationRates": code}))
    with pytest.raises(error) as raised:
        failing.utilization_rate()
    assert type(raised.value) is error


@pytest.mark.parametrize("code", [9, 18, 999, 4])
def test_a_driver_that_cannot_be_initialised_can_be_later(driver: LoadedDriver, code: int) -> None:
    nvml = PyNvml(driver.library)
    driver.set(World(errors={"nvmlInitWithFlags": code}))
    with pytest.raises(NvmlUnavailable):
        nvml.start()
    driver.set(World())
    nvml.start()
    assert nvml.device_count() == 0


def test_a_file_that_is_no_library_is_named_with_the_reason(tmp_path: Path) -> None:
    bogus = tmp_path / "libnvidia-ml.so.1"
    bogus.write_text("not a library")
    with pytest.raises(NvmlUnavailable) as raised:
        PyNvml(bogus).start()
    assert str(bogus) in str(raised.value)
    assert "\n" not in str(raised.value)
