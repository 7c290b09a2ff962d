# SPDX-License-Identifier: Apache-2.0
"""The table's container and device rows as MetricsData, added to what a reader of the SDK collects.

The agent's way. The SDK keeps every series that it has ever seen (SDK 1.45.2 folds those past the 2000th into one
overflow point), while containers come and go for years; what is made here from the sealed cycle leaves nothing
behind. Each point bears the time of its cycle, and each sum the time at which its series began.
"""

from __future__ import annotations

import fnmatch
import logging
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

from otel_gpu_cgroup.otel.instruments import (
    CONTAINER_INSTRUMENTS,
    DEVICE_INSTRUMENTS,
    SCOPE,
    Instrument,
    Kind,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from opentelemetry.sdk.metrics.export import MetricExporter, ResourceMetrics, ScopeMetrics

    from otel_gpu_cgroup.otel.collection import Collection
    from otel_gpu_cgroup.otel.observe import Point

_log: Final = logging.getLogger(__name__)


class Producer:
    """Makes Metrics out of the collection's cycle, and leaves out what is not wanted."""

    def __init__(self, collection: Collection, excluded: Sequence[str] = ()) -> None:
        """`excluded` are globs of metric names."""
        self._collection = collection
        self._excluded = tuple(excluded)

    def added_to(self, metrics_data: MetricsData) -> MetricsData:
        """The SDK's data, whose part of our scope is followed by the metrics of this collection's cycle."""
        parts = [self._added_to_resource(part) for part in metrics_data.resource_metrics]
        return MetricsData(resource_metrics=parts)

    def _added_to_resource(self, part: ResourceMetrics) -> ResourceMetrics:
        return replace(part, scope_metrics=[self._added_to_scope(scope) for scope in part.scope_metrics])

    def _added_to_scope(self, part: ScopeMetrics) -> ScopeMetrics:
        if part.scope.name != SCOPE:
            return part
        metrics = [*part.metrics, *self._metrics()]
        return replace(part, metrics=[metric for metric in metrics if not self._is_excluded(metric.name)])

    def _metrics(self) -> Iterable[Metric]:
        stats = self._collection.stats
        if stats is None:
            return
        taken_at = stats.taken_at
        for row in CONTAINER_INSTRUMENTS:
            yield from _metric(row, self._collection.observe_containers(row), taken_at)
        for device_row in DEVICE_INSTRUMENTS:
            yield from _metric(device_row, self._collection.observe_gpus(device_row), taken_at)

    def _is_excluded(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, glob) for glob in self._excluded)


class ProducingReader(PeriodicExportingMetricReader):
    """A periodic reader whose every collection is completed by a producer before it is exported."""

    def __init__(self, exporter: MetricExporter, producer: Producer, interval_millis: float) -> None:
        self._producer = producer
        super().__init__(exporter, export_interval_millis=interval_millis)

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        try:
            metrics_data = self._producer.added_to(metrics_data)
        except Exception:  # an exception that leaves this method ends the reader's thread for good
            _log.exception("container metrics left out of one export")
        super()._receive_metrics(metrics_data, timeout_millis=timeout_millis, **kwargs)


def _metric(row: Instrument, points: Sequence[Point], taken_at: float) -> Iterable[Metric]:
    """The row's metric; nothing when it has no point."""
    if not points:
        return
    data_points = [_data_point(row, point, int(taken_at * 1e9)) for point in points]
    yield Metric(name=row.name, description=row.description, unit=row.unit, data=_data(row, data_points))


def _data(row: Instrument, points: list[NumberDataPoint]) -> Gauge | Sum:
    if row.kind is Kind.GAUGE:
        return Gauge(data_points=points)
    return Sum(
        data_points=points,
        aggregation_temporality=AggregationTemporality.CUMULATIVE,
        is_monotonic=row.kind is Kind.COUNTER,
    )


def _data_point(row: Instrument, point: Point, time: int) -> NumberDataPoint:
    """A gauge's value has no beginning; 0 is how OTLP says so."""
    return NumberDataPoint(
        attributes=dict(point.attributes),
        start_time_unix_nano=0 if row.kind is Kind.GAUGE else int(point.started_at * 1e9),
        time_unix_nano=time,
        value=point.value,
    )
