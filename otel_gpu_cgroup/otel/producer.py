# SPDX-License-Identifier: Apache-2.0
"""The table's rows that cycles fill as MetricsData, added to what a reader of the SDK collects.

The agent's way. The SDK keeps every series that it has ever seen (SDK 1.45.2 folds those past the 2000th into one
overflow point), while containers come and go for years; what is made here from the sealed cycle leaves nothing
behind. Each point bears the time of its cycle, and each sum the time at which its series began.
"""

from __future__ import annotations

import fnmatch
import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    PeriodicExportingMetricReader,
    Sum,
)

from otel_gpu_cgroup.otel.deltas import Deltas
from otel_gpu_cgroup.otel.instruments import CONTAINER_INSTRUMENTS, DEVICE_INSTRUMENTS, SCOPE, USAGE_INSTRUMENTS
from otel_gpu_cgroup.otel.rows import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from opentelemetry.sdk.metrics.export import MetricExporter, ResourceMetrics, ScopeMetrics

    from otel_gpu_cgroup.otel.collection import Collection
    from otel_gpu_cgroup.otel.rows import Instrument
    from otel_gpu_cgroup.otel.series import Point

_log: Final = logging.getLogger(__name__)


class Producer:
    """Makes Metrics for one reader out of its collections' cycles, and leaves out what is not wanted."""

    def __init__(self, collection: Collection, excluded: Sequence[str] = ()) -> None:
        """`excluded` are globs of metric names."""
        self._collection = collection
        self._excluded = tuple(excluded)
        rows = (*CONTAINER_INSTRUMENTS, *DEVICE_INSTRUMENTS, *USAGE_INSTRUMENTS)
        self._rows = [row for row in rows if not self._is_excluded(row.name)]
        self._deltas = Deltas()
        self._lock = threading.Lock()

    def added_to(self, metrics_data: MetricsData) -> MetricsData:
        """The SDK's data, whose part of our scope is followed by the metrics of this collection's cycle."""
        with self._lock:  # the reader's own thread and one that flushes may collect at once
            parts = [self._added_to_resource(part) for part in metrics_data.resource_metrics]
        return MetricsData(resource_metrics=parts)

    def _added_to_resource(self, part: ResourceMetrics) -> ResourceMetrics:
        return replace(part, scope_metrics=[self._added_to_scope(scope) for scope in part.scope_metrics])

    def _added_to_scope(self, part: ScopeMetrics) -> ScopeMetrics:
        if part.scope.name != SCOPE:
            return part
        wanted = (metric for metric in part.metrics if not self._is_excluded(metric.name))
        return replace(part, metrics=[*wanted, *self._metrics(_temporality(part.metrics))])

    def _metrics(self, of_counters: AggregationTemporality) -> Iterable[Metric]:
        observed = self._collection.observed
        if observed is None:
            return
        self._deltas.begin(observed.stats)
        time = int(observed.stats.taken_at * 1e9)
        for row in self._rows:
            points, temporality = observed.points(row), AggregationTemporality.CUMULATIVE
            if row.kind is Kind.COUNTER and of_counters is AggregationTemporality.DELTA:
                data_points, temporality = self._deltas.data_points(points, time), of_counters
            else:
                data_points = _data_points(row, points, time)
            if data_points:
                yield Metric(row.name, row.description, row.unit, _data(row, data_points, temporality))

    def _is_excluded(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, glob) for glob in self._excluded)


class ProducingReader(PeriodicExportingMetricReader):
    """A periodic reader whose every collection is completed by a producer of its own before it is exported."""

    def __init__(self, exporter: MetricExporter, producer: Producer, interval_millis: float) -> None:
        self._producer = producer
        super().__init__(exporter, export_interval_millis=interval_millis)

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        try:
            metrics_data = self._producer.added_to(metrics_data)
        except Exception:  # an exception that leaves this method ends the reader's thread for good
            _log.exception("container metrics left out of one export")
        super()._receive_metrics(metrics_data, timeout_millis=timeout_millis, **kwargs)


def _temporality(metrics: Iterable[Metric]) -> AggregationTemporality:
    """What the reader wants of observable counters, as one of ours shows that the SDK always collects."""
    sums = (metric.data for metric in metrics if isinstance(metric.data, Sum) and metric.data.is_monotonic)
    return next((data.aggregation_temporality for data in sums), AggregationTemporality.CUMULATIVE)


def _data(row: Instrument, points: list[NumberDataPoint], temporality: AggregationTemporality) -> Gauge | Sum:
    if row.kind is Kind.GAUGE:
        return Gauge(points)
    return Sum(points, temporality, is_monotonic=row.kind is Kind.COUNTER)


def _data_points(row: Instrument, points: Iterable[Point], time: int) -> list[NumberDataPoint]:
    """A gauge's value has no beginning; 0 is how OTLP says so."""
    if row.kind is Kind.GAUGE:
        return [NumberDataPoint(series.attributes, 0, time, value, ()) for series, value in points]
    return [NumberDataPoint(series.attributes, series.started_at, time, value, ()) for series, value in points]
