# SPDX-License-Identifier: Apache-2.0
"""Counters for a reader that wants only what has been added since it last collected.

As the SDK has it for instruments of its own, what a failed export took with it is not told again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from opentelemetry.sdk.metrics.export import NumberDataPoint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_gpu_cgroup.model import NodeStats
    from otel_gpu_cgroup.otel.rows import Number
    from otel_gpu_cgroup.otel.series import Point, Series


class Deltas:
    """What one reader has been told of each series, for as long as the series lives."""

    def __init__(self) -> None:
        self._told: WeakKeyDictionary[Series, tuple[Number, int]] = WeakKeyDictionary()
        self._sealed_at = float("-inf")
        self._is_newer = True

    def begin(self, stats: NodeStats) -> None:
        """Take points of this cycle from now on; one that was told already, or is older, adds nothing."""
        self._is_newer = stats.sealed_at > self._sealed_at
        self._sealed_at = max(stats.sealed_at, self._sealed_at)

    def data_points(self, points: Iterable[Point], time: int) -> list[NumberDataPoint]:
        """What each series has gained since it was last told; the first time, since it began. `time` in nanoseconds."""
        return [self._data_point(series, value, time) for series, value in points] if self._is_newer else []

    def _data_point(self, series: Series, value: Number, time: int) -> NumberDataPoint:
        before, since = self._told.get(series, (0, series.started_at))
        self._told[series] = value, time
        return NumberDataPoint(series.attributes, since, time, value - before, ())
