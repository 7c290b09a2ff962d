# SPDX-License-Identifier: Apache-2.0
"""GPUs cut into instances."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.fakes.fake_nvml import GIB, FakeGpu, FakeInstance, FakeMemory, FakeProcess

if TYPE_CHECKING:
    from tests.fakes.pynvml_process import FakeDriver

GPU = FakeGpu(uuid="GPU-a", minor=0)


CUT = FakeGpu(
    uuid="GPU-m",
    minor=3,
    name="NVIDIA A100",
    memory=FakeMemory(total=40 * GIB, used=GIB),
    instances=(
        FakeInstance(slot=0, uuid="MIG-x", gi=7, ci=0, profile="1g.5gb"),
        FakeInstance(
            slot=3,
            uuid="MIG-y",
            gi=2,
            ci=1,
            slices=3,
            compute_slices=2,
            profile="2c.3g.20gb",
            memory=FakeMemory(total=20 * GIB, used=4 * GIB, reserved=1),
        ),
    ),
    processes=(
        FakeProcess(pid=21, memory=1, gi=7, ci=0),
        FakeProcess(pid=22, memory=2, gi=2, ci=1),
        FakeProcess(pid=23, memory=3, gi=2, ci=0),
    ),
)


def test_mig_slots_have_holes(driver: FakeDriver) -> None:
    ask = driver.start(CUT)
    assert ask("nvmlDeviceGetMigMode(h), nvmlDeviceGetMaxMigDeviceCount(h)") == [[1, 1], 7]
    slot = "nvmlDeviceGetUUID(nvmlDeviceGetMigDeviceHandleByIndex(h, {}))"
    assert [ask(slot.format(index)) for index in (0, 3)] == ["MIG-x", "MIG-y"]
    assert [ask.error(slot.format(index)).code for index in (1, 6, 7)] == [6, 6, 2]


def test_an_instance_tells_about_itself(driver: FakeDriver) -> None:
    ask = driver.start(CUT)
    ask("(i := nvmlDeviceGetMigDeviceHandleByIndex(h, 3)) and None")
    assert ask("[nvmlDeviceIsMigDeviceHandle(handle).value for handle in (i, h)]") == [1, 0]
    assert ask("nvmlDeviceGetName(i), nvmlDeviceGetIndex(i)") == ["NVIDIA A100 MIG 2c.3g.20gb", 3]
    assert ask.error("nvmlDeviceGetMinorNumber(i)").code == 3
    assert ask("nvmlDeviceGetGpuInstanceId(i), nvmlDeviceGetComputeInstanceId(i)") == [2, 1]
    assert ask("nvmlDeviceGetUUID(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(i))") == "GPU-m"
    assert ask("nvmlDeviceGetMemoryInfo(i, version=nvmlMemory_v2).used") == 4 * GIB
    attributes = ask("nvmlDeviceGetAttributes_v2(i)")
    assert attributes["gpuInstanceSliceCount"] == 3
    assert attributes["computeInstanceSliceCount"] == 2
    assert attributes["memorySizeMB"] == 20 * 1024


def test_processes_of_a_cut_gpu(driver: FakeDriver) -> None:
    ask = driver.start(CUT)
    ask("(i := nvmlDeviceGetHandleByUUID('MIG-y')) and None")
    assert ask("[p.pid for p in nvmlDeviceGetComputeRunningProcesses(h)]") == [21, 22, 23]
    assert ask("nvmlDeviceGetComputeRunningProcesses(i)") == [
        {"pid": 22, "usedGpuMemory": 2, "gpuInstanceId": 2, "computeInstanceId": 1}
    ]


@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceGetUtilizationRates({})",
        "nvmlDeviceGetSamples({}, 1, 0)",
        "nvmlDeviceGetProcessUtilization({}, 0)",
    ],
)
def test_a_cut_gpu_gives_no_utilization(driver: FakeDriver, call: str) -> None:
    ask = driver.start(CUT)
    ask("(i := nvmlDeviceGetMigDeviceHandleByIndex(h, 0)) and None")
    assert [ask.error(call.format(handle)).code for handle in "hi"] == [3, 3]


def test_mig_off_and_mig_unknown(driver: FakeDriver) -> None:
    ask = driver.start(replace(GPU, mig_off=True))
    assert ask("nvmlDeviceGetMigMode(h), nvmlDeviceGetMaxMigDeviceCount(h)") == [[0, 0], 0]
    driver.show(replace(GPU, mig_off=True, mig_change=True))
    assert ask("nvmlDeviceGetMigMode(h)") == [0, 1]
    driver.show(GPU)
    assert ask.error("nvmlDeviceGetMigMode(h)").code == 3


def test_an_instance_made_anew_needs_another_handle_though_its_uuid_is_the_same(driver: FakeDriver) -> None:
    first = FakeInstance(slot=0, uuid="MIG-x", gi=1, slices=3, compute_slices=3, profile="3g.40gb")
    ask = driver.start(replace(GPU, instances=(first,)))
    ask("(i := nvmlDeviceGetMigDeviceHandleByIndex(h, 0)) and None")
    driver.show(replace(GPU, instances=(replace(first, slices=4, profile="4g.40gb", made=1),)))
    assert ask.error("nvmlDeviceGetUUID(i)").code == 2
    assert ask("nvmlDeviceGetName(nvmlDeviceGetMigDeviceHandleByIndex(h, 0))").endswith("MIG 4g.40gb")


def test_the_handle_of_a_slot_is_used_again(driver: FakeDriver) -> None:
    first, second = FakeInstance(slot=0, uuid="MIG-x", gi=7), FakeInstance(slot=1, uuid="MIG-y", gi=8)
    ask = driver.start(replace(GPU, instances=(first, second)))
    ask("(i := nvmlDeviceGetMigDeviceHandleByIndex(h, 1)) and None")
    driver.show(replace(GPU, instances=(replace(second, slot=0), FakeInstance(slot=1, uuid="MIG-z", gi=9))))
    assert ask("nvmlDeviceGetUUID(i)") == "MIG-y"
    assert ask("nvmlDeviceGetUUID(nvmlDeviceGetMigDeviceHandleByIndex(h, 1))") == "MIG-z"
    assert ask("nvmlDeviceGetUUID(i)") == "MIG-z"


def test_errors_of_one_instance_and_of_the_gpu_itself(driver: FakeDriver) -> None:
    failing = FakeInstance(slot=0, uuid="MIG-x", gi=7, errors={"nvmlDeviceGetMigDeviceHandleByIndex": 999})
    well = FakeInstance(slot=1, uuid="MIG-y", gi=8, memory=FakeMemory(total=10, used=4))
    ask = driver.start(replace(GPU, instances=(failing, well), own_errors={"nvmlDeviceGetMemoryInfo*": 4}))
    assert ask.error("nvmlDeviceGetMigDeviceHandleByIndex(h, 0)").code == 999
    assert ask.error("nvmlDeviceGetMemoryInfo(h)").code == 4
    assert ask("nvmlDeviceGetMemoryInfo(nvmlDeviceGetMigDeviceHandleByIndex(h, 1)).used") == 4
