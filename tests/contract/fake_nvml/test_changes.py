# SPDX-License-Identifier: Apache-2.0
"""Worlds that change, fail, hang and count."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.fakes.fake_nvml import FakeError, FakeGpu, FakeInstance, FakeMemory, uniform_gpus
from tests.fakes.pynvml_process import wait_until

if TYPE_CHECKING:
    from tests.fakes.pynvml_process import FakeDriver

GPU = FakeGpu(uuid="GPU-a", minor=0)


def test_a_replaced_world_is_seen_by_the_next_call(driver: FakeDriver) -> None:
    ask = driver.start(GPU)
    for used in range(50):
        driver.show(replace(GPU, memory=FakeMemory(total=100, used=used)))
        assert ask("nvmlDeviceGetMemoryInfo(h, version=nvmlMemory_v2).used") == used


def test_a_gpu_that_left_is_lost_and_a_destroyed_instance_invalid(driver: FakeDriver) -> None:
    cut = FakeGpu(uuid="GPU-m", minor=1, instances=(FakeInstance(slot=0, uuid="MIG-x", gi=7),))
    ask = driver.start(GPU, cut)
    ask("(i := nvmlDeviceGetHandleByUUID('MIG-x')) and None")
    driver.show(replace(cut, instances=()))
    assert ask.error("nvmlDeviceGetName(h)").error == "NVMLError_GpuIsLost"
    assert ask.error("nvmlDeviceGetName(i)").code == 2


def test_errors_of_one_gpu_leave_the_other_alone(driver: FakeDriver) -> None:
    lost = FakeGpu(uuid="GPU-b", minor=1, errors={"*": 15})
    ask = driver.start(replace(GPU, unsupported=("nvmlDeviceGetMemoryInfo*",)), lost)
    assert ask.error("nvmlDeviceGetHandleByIndex(1)").code == 15
    assert ask.error("nvmlDeviceGetMemoryInfo(h)").code == 3
    assert ask("nvmlDeviceGetUUID(h)") == "GPU-a"


def test_an_error_after_so_many_calls(driver: FakeDriver) -> None:
    ask = driver.start(GPU, errors={"nvmlDeviceGetCount*": FakeError(15, after=2)})
    assert [ask("nvmlDeviceGetCount()") for _ in range(2)] == [1, 1]
    assert [ask.error("nvmlDeviceGetCount()").code for _ in range(2)] == [15, 15]


def test_latencies_of_world_and_gpu_add_up(driver: FakeDriver) -> None:
    ask = driver.start(replace(GPU, latency={"nvmlDeviceGetUUID": 20_000}), latency={"nvmlDevice*": 10_000})
    assert ask("-time.monotonic() + (nvmlDeviceGetUUID(h) and time.monotonic())") >= 0.03


def test_a_hanging_call_ends_with_a_world_that_no_longer_says_so(driver: FakeDriver) -> None:
    ask = driver.start(GPU)
    driver.show(GPU, hangs=("nvmlDeviceGetUtilizationRates",))
    ask.ask("nvmlDeviceGetUtilizationRates(h)")
    wait_until(lambda: driver.counts()["in_flight"] == 1)
    assert not ask.is_answered()
    driver.show(replace(GPU, utilization=5))
    assert ask.answer() == {"gpu": 5, "memory": 0}
    assert driver.counts()["in_flight"] == 0


def test_initialisation_can_hang(driver: FakeDriver) -> None:
    driver.show(GPU, hangs=("nvmlInitWithFlags",)).ask("nvmlInit()")
    wait_until(lambda: driver.counts()["in_flight"] == 1)
    driver.show(GPU)
    assert driver.ask.answer() is None


IN_THREAD = """[t := threading.Thread(target=lambda: late.append(nvmlDeviceGetUtilizationRates(h).gpu)), t.start()]
and None"""


def test_a_hang_of_one_gpu_holds_no_lock(driver: FakeDriver) -> None:
    other = FakeGpu(uuid="GPU-b", minor=1)
    ask = driver.start(replace(GPU, utilization=77), other)
    driver.show(replace(GPU, hangs=("*",)), other)
    ask("(late := []) or " + IN_THREAD)
    wait_until(lambda: driver.counts()["in_flight"] == 1)
    assert ask("nvmlDeviceGetUUID(nvmlDeviceGetHandleByIndex(1))") == "GPU-b"
    driver.show(replace(GPU, utilization=77), other)
    assert ask("t.join() or late") == [77]


def test_a_slow_gpu_holds_no_lock(driver: FakeDriver) -> None:
    an_hour = 3600 * 10**6
    slow = replace(GPU, latency={"nvmlDeviceGetUtilizationRates": an_hour})
    ask = driver.start(slow, FakeGpu(uuid="GPU-b", minor=1))
    ask("(late := []) or " + IN_THREAD)
    wait_until(lambda: driver.counts()["in_flight"] == 1)
    assert ask("nvmlDeviceGetUUID(nvmlDeviceGetHandleByIndex(1))") == "GPU-b"


def test_a_shutdown_during_a_call_is_recorded(driver: FakeDriver) -> None:
    ask = driver.start(GPU)
    ask("nvmlInit()"), ask("nvmlShutdown()")
    driver.show(GPU, hangs=("nvmlDeviceGetUtilizationRates",))
    ask("(late := []) or " + IN_THREAD)
    wait_until(lambda: driver.counts()["in_flight"] == 1)
    assert driver.counts()["shutdown_while_in_flight"] == 0
    ask("nvmlShutdown()")
    assert driver.counts()["shutdown_while_in_flight"] == 1
    assert ask("t.join() or late") == []


def test_calls_are_counted_by_function(driver: FakeDriver) -> None:
    ask = driver.start(GPU)
    before = driver.counts()
    ask("[nvmlDeviceGetUUID(h) for _ in range(3)] and nvmlDeviceGetSamples(h, 1, 0) and None")
    after = driver.counts()
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == {
        "nvmlDeviceGetUUID": 3,
        "nvmlDeviceGetSamples": 2,
    }


def test_counts_of_many_threads_add_up(driver: FakeDriver) -> None:
    ask = driver.start(*uniform_gpus(1, processes_each=2))
    ask("(work := lambda: [nvmlDeviceGetComputeRunningProcesses(h) for _ in range(500)]) and None")
    ask("(ts := [threading.Thread(target=work) for _ in range(8)]) and [t.start() for t in ts] and None")
    ask("[t.join() for t in ts] and None")
    assert driver.counts()["nvmlDeviceGetComputeRunningProcesses_v3"] == 8 * 500 * 2
    assert driver.counts()["in_flight"] == 0
