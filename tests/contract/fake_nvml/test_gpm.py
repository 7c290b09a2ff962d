# SPDX-License-Identifier: Apache-2.0
"""Hopper's performance counters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.fakes.fake_nvml import FakeGpu, FakeInstance

if TYPE_CHECKING:
    from tests.fakes.pynvml_process import FakeDriver, PynvmlProcess

HALVES = FakeGpu(
    uuid="GPU-h",
    minor=0,
    utilization=20,
    instances=(
        FakeInstance(slot=0, uuid="MIG-x", gi=1, slices=3, compute_slices=3, busy=62.5),
        FakeInstance(slot=1, uuid="MIG-y", gi=2, ci=0, slices=4, compute_slices=1, busy=100),
        FakeInstance(slot=2, uuid="MIG-z", gi=2, ci=1, slices=4, compute_slices=2, busy=10),
    ),
)


def metric(ask: PynvmlProcess, get: str, number: int = 1) -> tuple[int, float]:
    """NVML's answer and the value for one metric of two samples that were taken so."""
    ask("(s := [nvmlGpmSampleAlloc(), nvmlGpmSampleAlloc()]) and None")
    for place in (0, 1):
        ask(f"{get.format(sample=f's[{place}]')} and None")
    ask("(m := c_nvmlGpmMetricsGet_t(version=1, numMetrics=1, sample1=s[0], sample2=s[1])) and None")
    ask(f"setattr(m.metrics[0], 'metricId', {number})")
    ask("nvmlGpmMetricsGet(m) and None")
    code, value = ask("m.metrics[0].nvmlReturn, m.metrics[0].value")
    ask("[nvmlGpmSampleFree(sample) for sample in s] and None")
    return code, value


@pytest.mark.parametrize(
    ("get", "value"),
    [
        ("nvmlGpmMigSampleGet(h, 1, {sample})", 62.5),
        ("nvmlGpmMigSampleGet(h, 2, {sample})", 100 * 1 / 4 + 10 * 2 / 4),
        ("nvmlGpmSampleGet(nvmlDeviceGetMigDeviceHandleByIndex(h, 1), {sample})", 100),
        ("nvmlGpmSampleGet(h, {sample})", 20),
    ],
)
def test_two_samples_give_the_part_of_the_time(driver: FakeDriver, get: str, value: float) -> None:
    assert metric(driver.start(HALVES), get) == (0, value)


def test_each_metric_has_an_answer_of_its_own(driver: FakeDriver) -> None:
    assert metric(driver.start(HALVES), "nvmlGpmMigSampleGet(h, 1, {sample})", number=2)[0] == 3


def test_buffers_are_counted_until_they_are_freed(driver: FakeDriver) -> None:
    ask = driver.start(HALVES)
    ask("(s := nvmlGpmSampleAlloc()) and None")
    assert driver.counts()["gpm_samples"] == 1
    ask("nvmlGpmSampleFree(s)")
    assert driver.counts()["gpm_samples"] == 0
    assert ask.error("nvmlGpmSampleFree(s)").code == 2
    assert ask.error("nvmlGpmMigSampleGet(h, 1, s)").code == 2


def test_an_empty_buffer_is_no_sample(driver: FakeDriver) -> None:
    ask = driver.start(HALVES)
    ask("(m := c_nvmlGpmMetricsGet_t(version=1, numMetrics=1)) and None")
    ask("[setattr(m, name, nvmlGpmSampleAlloc()) for name in ('sample1', 'sample2')] and None")
    assert ask.error("nvmlGpmMetricsGet(m)").code == 2


def test_older_gpus_have_no_such_counters(driver: FakeDriver) -> None:
    ask = driver.start(replace(HALVES, capability=(8, 0)))
    assert ask("nvmlGpmQueryDeviceSupport(h).isSupportedDevice") == 0
    assert ask.error("nvmlGpmMigSampleGet(h, 1, nvmlGpmSampleAlloc())").code == 3
    driver.show(HALVES)
    assert ask("nvmlGpmQueryDeviceSupport(h).isSupportedDevice") == 1


def test_no_gpu_instance_no_sample(driver: FakeDriver) -> None:
    assert driver.start(HALVES).error("nvmlGpmMigSampleGet(h, 9, nvmlGpmSampleAlloc())").code == 2
