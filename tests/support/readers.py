# SPDX-License-Identifier: Apache-2.0
"""The agent's reader above an exporter that keeps what it gets: what leaves, without a collector.

with Push(script) as push:
    metrics = push()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    Sum,
)

from otel_gpu_cgroup.otel.collection import Collection
from otel_gpu_cgroup.otel.instruments import AGENT_INSTRUMENTS
from otel_gpu_cgroup.otel.producer import Producer, ProducingReader
from otel_gpu_cgroup.otel.register import register

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.sdk.resources import Resource

    from otel_gpu_cgroup.freshness import StatsSource

Temporality = dict[type, AggregationTemporality]


def points(metric: Metric) -> Sequence[NumberDataPoint]:
    """All that this package reports are numbers."""
    assert isinstance(metric.data, Gauge | Sum)
    return metric.data.data_points


def attributes(point: NumberDataPoint) -> dict[str, Any]:
    return dict(point.attributes or {})


def values(metric: Metric, key: str) -> dict[Any, int | float]:
    """By the value of one attribute, which tells the points apart."""
    found = [(attributes(point).get(key), point.value) for point in points(metric)]
    assert len(dict(found)) == len(found)
    return dict(found)


class Keep(MetricExporter):
    """An exporter that keeps what it was given last, and fails when it is told to."""

    def __init__(self, temporality: Mapping[type, AggregationTemporality] | None = None) -> None:
        super().__init__(preferred_temporality=dict(temporality or {}))
        self.metrics: dict[str, Metric] = {}
        self.result = MetricExportResult.SUCCESS

    def export(self, metrics_data: MetricsData, *_: Any, **__: Any) -> MetricExportResult:
        [resource] = metrics_data.resource_metrics
        [scope] = resource.scope_metrics
        assert len({metric.name for metric in scope.metrics}) == len(scope.metrics)
        for metric in scope.metrics:
            sets = [tuple(sorted(attributes(point).items())) for point in points(metric)]
            assert len(set(sets)) == len(sets), metric.name
        self.metrics = {metric.name: metric for metric in scope.metrics}
        return self.result

    def force_flush(self, *_: Any, **__: Any) -> bool:
        return True

    def shutdown(self, *_: Any, **__: Any) -> None:
        self.metrics = {}


class Push:
    """A provider whose readers export when they are told; each has its own exporter, all share the cycles."""

    def __init__(
        self,
        source: StatsSource,
        *excluded: str,
        exporters: Sequence[MetricExporter] = (),
        resource: Resource | None = None,
    ) -> None:
        self.exporters = exporters or (Keep(),)
        collection = Collection(source, patience=5)
        self.readers = [
            ProducingReader(one, Producer(collection, excluded), interval_millis=3_600_000) for one in self.exporters
        ]
        self.provider = MeterProvider(self.readers, resource, shutdown_on_exit=False)
        register(self.provider, collection, AGENT_INSTRUMENTS)

    def __call__(self, which: int = 0) -> dict[str, Metric]:
        """Let one of the readers push; returns what arrived, if it is kept."""
        kept = self.exporters[which]
        if isinstance(kept, Keep):
            kept.metrics = {}
        self.readers[which].force_flush()
        return kept.metrics if isinstance(kept, Keep) else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.provider.shutdown()
