# SPDX-License-Identifier: Apache-2.0
"""Memory, utilization and its samples."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.fake_nvml import FakeGpu, FakeMemory, Recorded, Steady

if TYPE_CHECKING:
    from tests.fakes.pynvml_process import FakeDriver

GPU = FakeGpu(uuid="GPU-a", minor=0)


def test_used_memory_includes_the_reserve_only_in_version_1(driver: FakeDriver) -> None:
    ask = driver.start(replace(GPU, memory=FakeMemory(total=100, used=30, reserved=5)))
    assert ask("nvmlDeviceGetMemoryInfo(h)") == {"total": 100, "free": 65, "used": 35}
    second = ask("nvmlDeviceGetMemoryInfo(h, version=nvmlMemory_v2)")
    assert second == {"version": 0x02000028, "total": 100, "reserved": 5, "free": 65, "used": 30}


def test_a_wrong_version_word_is_refused(driver: FakeDriver) -> None:
    assert driver.start(GPU).error("nvmlDeviceGetMemoryInfo(h, version=0x01000028)").code == 25


@pytest.mark.parametrize(
    ("function", "words", "version"),
    [("nvmlDeviceGetPciInfoExt", 16, 0x01000040), ("nvmlDeviceGetTemperatureV", 3, 0x0100000C)],
)
def test_version_words_of_structures(driver: FakeDriver, function: str, words: int, version: int) -> None:
    ask = driver.start(GPU)
    ask(f"(f := _nvmlGetFunctionPointer('{function}')) and None")
    assert ask(f"[f(h, (c_uint * {words})(word)) for word in ({version}, {version} + 1, 0)]") == [0, 25, 25]


def test_utilization(driver: FakeDriver) -> None:
    ask = driver.start(replace(GPU, utilization=61, memory_utilization=12, encoder=7, decoder=8))
    assert ask("nvmlDeviceGetUtilizationRates(h)") == {"gpu": 61, "memory": 12}
    assert ask("nvmlDeviceGetEncoderUtilization(h)[0], nvmlDeviceGetDecoderUtilization(h)[0]") == [7, 8]


SAMPLES = "[(s.timeStamp, s.sampleValue.uiVal) for s in nvmlDeviceGetSamples(h, 1, {since})[1]]"


def test_the_sample_buffer_holds_a_hundred_six_a_second(driver: FakeDriver) -> None:
    ask = driver.start(replace(GPU, samples=Steady((10, 20))))
    samples = ask(SAMPLES.format(since=0))
    assert len(samples) == 100
    assert {later - earlier for (earlier, _), (later, _) in pairwise(samples)} == {166_667}
    assert sorted(value for _, value in samples) == [10] * 50 + [20] * 50


def test_the_size_probe_of_samples_succeeds(driver: FakeDriver) -> None:
    ask = driver.start(replace(GPU, samples=Recorded()))
    ask("(f := _nvmlGetFunctionPointer('nvmlDeviceGetSamples')) and (n := c_uint(0)) and None")
    probe = "f(h, c_uint(1), c_ulonglong(0), byref(c_uint()), byref(n), None), n.value"
    assert ask(probe) == [0, 100]


def test_no_samples_are_not_found(driver: FakeDriver) -> None:
    assert driver.start(replace(GPU, samples=Recorded())).error("nvmlDeviceGetSamples(h, 1, 0)").code == 6


@pytest.mark.parametrize(("clock", "now"), [("epoch", time.CLOCK_REALTIME), ("boottime", time.CLOCK_BOOTTIME)])
def test_samples_are_stamped_by_either_clock(driver: FakeDriver, clock: Any, now: int) -> None:
    ask = driver.start(replace(GPU, clock=clock))
    before = time.clock_gettime_ns(now) // 1000
    newest = ask(SAMPLES.format(since=0))[-1][0]
    assert before - 166_667 <= newest <= time.clock_gettime_ns(now) // 1000


@pytest.mark.parametrize(("clock", "now"), [("epoch", time.CLOCK_REALTIME), ("boottime", time.CLOCK_BOOTTIME)])
def test_recorded_samples_stay_where_they_were_taken(driver: FakeDriver, clock: Any, now: int) -> None:
    before = time.clock_gettime_ns(now) // 1000
    ask = driver.start(replace(GPU, clock=clock, samples=Recorded(((5_000_000, 80), (2_000_000, 30)))))
    after = time.clock_gettime_ns(now) // 1000
    samples = ask(SAMPLES.format(since=0))
    assert [value for _, value in samples] == [80, 30]
    assert samples[1][0] - samples[0][0] == 3_000_000
    slack = 20_000  # a file's time stamp is as coarse as the kernel's tick
    assert before - slack <= samples[1][0] + 2_000_000 <= after
    assert ask(SAMPLES.format(since=0)) == samples
    assert ask(SAMPLES.format(since=samples[0][0])) == samples[1:]
    assert ask.error(SAMPLES.format(since=samples[1][0])).code == 6


@pytest.mark.parametrize(("value_type", "member"), list(enumerate(["dVal", "uiVal", "ulVal", "ullVal", "sllVal"])))
def test_samples_come_as_the_type_they_say(driver: FakeDriver, value_type: int, member: str) -> None:
    ask = driver.start(replace(GPU, samples=Recorded(((0, 42),)), value_type=value_type))
    ask("(answer := nvmlDeviceGetSamples(h, 1, 0)) and None")
    assert ask(f"answer[0], answer[1][0].sampleValue.{member}") == [value_type, 42]
