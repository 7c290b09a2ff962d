# SPDX-License-Identifier: Apache-2.0
"""Who the devices are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.fakes.fake_nvml import FakeGpu

if TYPE_CHECKING:
    from tests.fakes.pynvml_process import FakeDriver

GPU = FakeGpu(uuid="GPU-a", minor=0)


def test_index_minor_uuid_and_bus_are_independent(driver: FakeDriver) -> None:
    second = FakeGpu(uuid="GPU-b", minor=0, name="NVIDIA A100", serial="165", bus="0000000A:3B:00.0")
    ask = driver.start(replace(GPU, minor=4), second, driver_version="535.1", cuda_version=12020)
    assert ask("nvmlSystemGetDriverVersion(), nvmlSystemGetCudaDriverVersion()") == ["535.1", 12020]
    for handle in (
        "nvmlDeviceGetHandleByIndex(1)",
        "nvmlDeviceGetHandleByUUID('GPU-b')",
        "nvmlDeviceGetHandleByPciBusId('a:3b:0.0')",
    ):
        ask(f"(b := {handle}) and None")
        assert ask("[f(b) for f in (nvmlDeviceGetIndex, nvmlDeviceGetMinorNumber, nvmlDeviceGetName)]") == [
            1,
            0,
            "NVIDIA A100",
        ]
    assert ask("nvmlDeviceGetMinorNumber(h), nvmlDeviceGetSerial(b)") == [4, "165"]
    assert ask("nvmlDeviceGetPciInfo(b).busId, nvmlDeviceGetPciInfo(b).domain") == ["0000000A:3B:00.0", 10]


def test_devices_that_are_not_there(driver: FakeDriver) -> None:
    ask = driver.start(GPU)
    assert ask.error("nvmlDeviceGetHandleByIndex(1)").code == 2
    assert ask.error("nvmlDeviceGetHandleByUUID('GPU-z')").code == 6
    assert ask.error("nvmlDeviceGetHandleByPciBusId('0:99:0.0')").code == 6
    assert ask.error("nvmlDeviceGetSerial(h)").code == 3


def test_a_name_that_is_no_text(driver: FakeDriver) -> None:
    assert driver.start(replace(GPU, name=b"bad \xff\n")).error("nvmlDeviceGetName(h)").error == ("UnicodeDecodeError")


def test_a_buffer_too_short_for_a_name(driver: FakeDriver) -> None:
    ask = driver.start(GPU)
    ask("(f := _nvmlGetFunctionPointer('nvmlDeviceGetUUID')) and None")
    assert ask("[f(h, create_string_buffer(9), c_uint(size)) for size in (5, 6)]") == [7, 0]
