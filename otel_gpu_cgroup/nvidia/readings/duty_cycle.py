# SPDX-License-Identifier: Apache-2.0
"""Pure: the driver's utilization samples, the clock that they are stamped with, and their means.

The driver keeps about 100 samples a GPU, six a second. Drivers stamp them in microseconds of the wall clock or of
CLOCK_BOOTTIME and do not say which; the two are decades apart, so the nearer one is it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW: Final = 10.0
"""Seconds that a duty cycle looks back, as in cAdvisor."""
LONGEST_SAMPLE: Final = 1.0
"""Seconds between two samples at most (1/6 to 1, says nvml.h): a shorter window may hold none of a busy GPU."""
SLACK: Final = 1.0
"""Seconds by which a stamp may lie in the future: the driver's clock is read apart from ours."""
MAX_PERCENT: Final = 100
"""Drivers have been seen to answer more; such an answer is none."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One utilization sample of the driver."""

    stamp: int
    """Microseconds of a clock that the driver does not name."""
    percent: float


@dataclass(frozen=True, slots=True)
class Instant:
    """One instant on both clocks that drivers use, in seconds."""

    wall: float
    boot: float


def age_of(stamp: int, now: Instant) -> float:
    """Seconds since one stamp, on whichever clock it is nearer to; below 0 for the future."""
    seconds = stamp / 1e6
    return min((now.wall - seconds, now.boot - seconds), key=abs)


def sample_ages(samples: Sequence[Sample], now: Instant) -> list[tuple[float, float]]:
    """Age in seconds and percent of every credible sample: not above 100 and not from the future."""
    if not samples:
        return []
    newest = max(sample.stamp for sample in samples) / 1e6
    clock = min((now.wall, now.boot), key=lambda reading: abs(reading - newest))
    aged = ((clock - sample.stamp / 1e6, sample.percent) for sample in samples)
    return [(age, percent) for age, percent in aged if age >= -SLACK and 0 <= percent <= MAX_PERCENT]


def mean_percent(ages: Sequence[tuple[float, float]], window: float) -> float | None:
    """Mean of the samples of the last `window` seconds, 0..100; None when there is none."""
    percents = [percent for age, percent in ages if age <= window]
    return sum(percents) / len(percents) if percents else None
