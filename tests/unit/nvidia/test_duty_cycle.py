# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from otel_gpu_cgroup.nvidia.readings.duty_cycle import Instant, Sample, mean_percent, sample_ages

NOW = Instant(wall=1_790_000_000.0, boot=5_000.0)


def samples(clock: float, *pairs: tuple[float, int]) -> list[Sample]:
    """Samples by (age in seconds, percent)."""
    return [Sample(int((clock - age) * 1e6), percent) for age, percent in pairs]


@pytest.mark.parametrize("clock", [NOW.wall, NOW.boot], ids=["wall clock", "boot clock"])
def test_both_clocks_that_drivers_stamp_with_give_the_same_ages(clock: float) -> None:
    ages = sample_ages(samples(clock, (12.0, 10), (4.0, 20), (0.25, 30)), NOW)
    assert [(round(age, 3), percent) for age, percent in ages] == [(12.0, 10), (4.0, 20), (0.25, 30)]


def test_the_mean_is_of_the_window_alone_and_is_not_truncated() -> None:
    ages = sample_ages(samples(NOW.wall, (10.5, 100), (9.5, 1), (5.0, 2)), NOW)
    assert mean_percent(ages, 10) == 1.5


@pytest.mark.parametrize(
    "pairs",
    [[(1.0, 101)], [(-3.0, 50)], [(1.0, -1)], [(600.0, 50)], []],
    ids=["above 100", "from the future", "negative", "older than the window", "no samples"],
)
def test_what_cannot_be_believed_is_no_sample(pairs: list[tuple[float, int]]) -> None:
    assert mean_percent(sample_ages(samples(NOW.wall, *pairs), NOW), 10) is None


def test_an_idle_buffer_of_zeros_is_a_known_zero() -> None:
    assert mean_percent(sample_ages(samples(NOW.boot, (1.0, 0), (2.0, 0)), NOW), 10) == 0.0
