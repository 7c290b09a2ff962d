# SPDX-License-Identifier: Apache-2.0
"""From a sealed cycle to the SDK's data, as the agent's readers do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from benchmarks.parts import PATIENCE
from otel_gpu_cgroup.otel.collection import Collection
from otel_gpu_cgroup.otel.instruments import SCHEMA_URL, SCOPE
from otel_gpu_cgroup.otel.producer import Producer

if TYPE_CHECKING:
    from otel_gpu_cgroup.model import NodeStats


class Points:
    """The container and device metrics of one cycle after the other, with what stays from each to the next."""

    def __init__(self) -> None:
        self.last: NodeStats | None = None
        self._collection = Collection(self, PATIENCE)
        self._producer = Producer(self._collection)

    def latest(self, _: float) -> NodeStats | None:
        """The cycle that is observed, as a source of the collection."""
        return self.last

    def expire(self) -> None:
        """Nothing: the cycle stays."""

    def observe(self, stats: NodeStats) -> MetricsData:
        """All points, in the scope to which a reader adds them."""
        self.last = stats
        self._collection.begin(PATIENCE)
        scope = ScopeMetrics(InstrumentationScope(SCOPE), [], SCHEMA_URL)
        return self._producer.added_to(MetricsData([ResourceMetrics(Resource.get_empty(), [scope], "")]))

    @staticmethod
    def number(data: MetricsData) -> int:
        """How many points the data has."""
        return sum(
            len(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        )
