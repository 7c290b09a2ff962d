# SPDX-License-Identifier: Apache-2.0
"""Process lists and process utilization."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pynvml
import pytest

from tests.fakes.fake_nvml import GIB, FakeGpu, FakeProcess, FakeShare

if TYPE_CHECKING:
    from tests.fakes.pynvml_process import FakeDriver

GPU = FakeGpu(uuid="GPU-a", minor=0)


def test_an_empty_process_list_succeeds(driver: FakeDriver) -> None:
    ask = driver.start(GPU)
    assert ask("nvmlDeviceGetComputeRunningProcesses(h)") == []
    ask("(f := _nvmlGetFunctionPointer('nvmlDeviceGetComputeRunningProcesses_v3')) and (n := c_uint(9)) and None")
    assert ask("f(h, byref(n), None), n.value") == [0, 0]


def test_processes_by_kind(driver: FakeDriver) -> None:
    processes = (
        FakeProcess(pid=11, memory=GIB),
        FakeProcess(pid=12, memory=None),
        FakeProcess(pid=13, memory=5, kind="graphics"),
        FakeProcess(pid=14, memory=6, kind="mps"),
    )
    ask = driver.start(replace(GPU, processes=processes), FakeGpu(uuid="GPU-b", minor=1))
    whole = {"gpuInstanceId": 0xFFFFFFFF, "computeInstanceId": 0xFFFFFFFF}
    assert ask("nvmlDeviceGetComputeRunningProcesses(h)") == [
        {"pid": 11, "usedGpuMemory": GIB, **whole},
        {"pid": 12, "usedGpuMemory": None, **whole},
    ]
    assert ask("[p.pid for p in nvmlDeviceGetGraphicsRunningProcesses(h)]") == [13]
    assert ask("[p.pid for p in nvmlDeviceGetMPSComputeRunningProcesses(h)]") == [14]


def test_a_process_list_tells_the_size_that_it_needs(driver: FakeDriver) -> None:
    ask = driver.start(replace(GPU, processes=tuple(FakeProcess(pid=pid) for pid in (1, 2, 3))))
    ask("(f := _nvmlGetFunctionPointer('nvmlDeviceGetComputeRunningProcesses_v3')) and None")
    ask("(room := (c_nvmlProcessInfo_v2_t * 3)()) and (n := c_uint(0)) and None")
    assert ask("f(h, byref(n), None), n.value") == [7, 3]
    assert ask("setattr(n, 'value', 2) or f(h, byref(n), room), n.value") == [7, 3]
    assert ask("f(h, byref(n), room), n.value") == [0, 3]


def test_process_utilization_answers_a_probe_with_a_hundred(driver: FakeDriver) -> None:
    ask = driver.start(replace(GPU, shares=(FakeShare(pid=1, sm=50),)))
    ask("(f := _nvmlGetFunctionPointer('nvmlDeviceGetProcessUtilization')) and (n := c_uint(0)) and None")
    assert ask("f(h, None, byref(n), c_ulonglong(0)), n.value") == [7, 100]


SHARES = "[(s.pid, s.smUtil, s.memUtil, s.encUtil, s.decUtil) for s in nvmlDeviceGetProcessUtilization(h, {since})]"


def test_process_utilization_gives_what_is_newer_than_last_seen(driver: FakeDriver) -> None:
    fresh = FakeShare(pid=1, sm=50, memory=4, encoder=3, decoder=2)
    stale = FakeShare(pid=2, sm=9, age_us=60_000_000)
    ask = driver.start(replace(GPU, shares=(fresh, stale)))
    recent = time.time_ns() // 1000 - 30_000_000
    assert ask(SHARES.format(since=0)) == [[1, 50, 4, 3, 2], [2, 9, 0, 0, 0]]
    assert ask(SHARES.format(since=recent)) == [[1, 50, 4, 3, 2]]
    assert ask.error(SHARES.format(since=recent + 10**9)).code == 6


def test_process_utilization_of_an_idle_gpu_is_not_found(driver: FakeDriver) -> None:
    assert driver.start(GPU).error("nvmlDeviceGetProcessUtilization(h, 0)").code == 6


def test_processes_that_come_between_the_two_calls_do_not_fit(driver: FakeDriver) -> None:
    shares = tuple(FakeShare(pid=pid, sm=1) for pid in range(1, 151))
    ask = driver.start(replace(GPU, shares=shares))
    ask("(f := _nvmlGetFunctionPointer('nvmlDeviceGetProcessUtilization')) and (n := c_uint(100)) and None")
    ask("(room := (c_nvmlProcessUtilizationSample_t * 100)()) and None")
    assert ask("f(h, room, byref(n), c_ulonglong(0)), n.value") == [7, 150]
    assert len(ask("nvmlDeviceGetProcessUtilization(h, 0)")) == 150


@pytest.mark.skipif(not hasattr(pynvml, "nvmlDeviceGetProcessesUtilizationInfo"), reason="the binding is older")
def test_the_newer_process_utilization_tells_the_same(driver: FakeDriver) -> None:
    ask = driver.start(replace(GPU, shares=(FakeShare(pid=5, sm=50, memory=4, encoder=3, decoder=2),)))
    (row,) = ask("nvmlDeviceGetProcessesUtilizationInfo(h, 0)")
    del row["timeStamp"]
    engines = {"smUtil": 50, "memUtil": 4, "encUtil": 3, "decUtil": 2, "jpgUtil": 0, "ofaUtil": 0}
    assert row == {"pid": 5, **engines}
    assert ask.error("nvmlDeviceGetProcessesUtilizationInfo(h, time.time_ns())").code == 6
