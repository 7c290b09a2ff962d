# SPDX-License-Identifier: Apache-2.0
"""What the agent's reader hands to its exporter, read by an exporter that keeps it."""

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

from otel_gpu_cgroup.model import GpuReading, NodeStats
from otel_gpu_cgroup.otel.collection import Collection
from otel_gpu_cgroup.otel.instruments import AGENT_INSTRUMENTS
from otel_gpu_cgroup.otel.producer import Producer, ProducingReader
from otel_gpu_cgroup.otel.register import register
from tests.support.stats import GIB, Script, accelerator, container, gpu, node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_gpu_cgroup.freshness import StatsSource


def points(metric: Metric) -> Sequence[NumberDataPoint]:
    """All that this package reports are numbers."""
    assert isinstance(metric.data, Gauge | Sum)
    return metric.data.data_points


class Keep(MetricExporter):
    """An exporter that keeps what it was given last."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics: dict[str, Metric] = {}

    def export(self, metrics_data: MetricsData, *_: Any, **__: Any) -> MetricExportResult:
        [resource] = metrics_data.resource_metrics
        [scope] = resource.scope_metrics
        assert len({metric.name for metric in scope.metrics}) == len(scope.metrics)
        self.metrics = {metric.name: metric for metric in scope.metrics}
        return MetricExportResult.SUCCESS

    def force_flush(self, *_: Any, **__: Any) -> bool:
        return True

    def shutdown(self, *_: Any, **__: Any) -> None:
        self.metrics = {}


class Push:
    """A provider whose reader exports when it is told."""

    def __init__(self, source: StatsSource, *excluded: str) -> None:
        self.kept = Keep()
        collection = Collection(source, patience=5)
        reader = ProducingReader(self.kept, Producer(collection, excluded), interval_millis=3_600_000)
        self.provider = MeterProvider([reader], shutdown_on_exit=False)
        register(self.provider, collection, AGENT_INSTRUMENTS)

    def __call__(self) -> dict[str, Metric]:
        self.kept.metrics = {}
        self.provider.force_flush()
        return self.kept.metrics

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.provider.shutdown()


def ids(metric: Metric) -> list[Any]:
    return [dict(point.attributes or {})["container.id"] for point in points(metric)]


def two_containers() -> NodeStats:
    return node(
        container("a", accelerator("GPU-1")),
        container("b", accelerator("GPU-1"), accelerator("GPU-2", duty_cycle=None)),
        gpus=[gpu("GPU-1", 0, "a", "b"), gpu("GPU-2", 1, "b"), gpu("GPU-3", 2, reading=GpuReading())],
    )


def test_container_and_device_points_follow_the_agents_own() -> None:
    with Push(Script(two_containers())) as push:
        metrics = push()
    assert list(metrics)[:6] == [row.name for row in AGENT_INSTRUMENTS]
    assert ids(metrics["container.gpu.access"]) == ["a", "b", "b"]
    assert ids(metrics["container.accelerator.duty_cycle"]) == ["a", "b"]
    counts = [
        (dict(point.attributes or {}), point.value) for point in points(metrics["gpu_cgroup.device.container.count"])
    ]
    assert counts[2] == (
        {
            "hw.id": "GPU-3",
            "hw.model": "H100",
            "hw.name": "nvidia2",
            "hw.vendor": "NVIDIA",
            "gpu_cgroup.device.kind": "gpu",
        },
        0,
    )
    [first, second] = points(metrics["hw.gpu.memory.utilization"])
    assert first.value == second.value == 1 / 80
    assert {dict(point.attributes or {})["hw.gpu.task"] for point in points(metrics["hw.gpu.utilization"])} == {
        "general"
    }


def test_points_bear_the_cycles_time_and_sums_the_beginning_of_their_series() -> None:
    script = Script(node(container("a", accelerator("GPU-1")), taken_at=1000.0))
    with Push(script) as push:
        push()
        script.next = node(container("a", accelerator("GPU-1")), container("b", accelerator("GPU-1")), taken_at=1015.5)
        metrics = push()
    access, used = metrics["container.gpu.access"].data, metrics["container.accelerator.memory.used"].data
    assert isinstance(access, Sum)
    assert (access.is_monotonic, access.aggregation_temporality) == (False, AggregationTemporality.CUMULATIVE)
    assert [(p.start_time_unix_nano, p.time_unix_nano) for p in access.data_points] == [
        (1000 * 10**9, 1015_500_000_000),
        (1015_500_000_000, 1015_500_000_000),
    ]
    assert isinstance(used, Gauge)
    assert [(p.start_time_unix_nano, p.value) for p in used.data_points] == [(0, GIB), (0, GIB)]


def test_an_attribute_set_never_changes_while_its_series_lives() -> None:
    nameless = accelerator("GPU-1")
    script = Script(node(container("a", nameless)))
    with Push(script) as push:
        before = points(push()["container.gpu.access"])[0].attributes
        script.next = node(container("a", type(nameless)("nvidia", "H100 by another name", nameless.id, 1, 1, 1.0)))
        assert points(push()["container.gpu.access"])[0].attributes == before


def test_twenty_thousand_containers_leave_nothing_behind() -> None:
    script = Script()
    with Push(script) as push:
        for batch in range(20):
            script.next = node(*(container(f"{batch}-{n}", accelerator("GPU-1")) for n in range(1000)))
            metrics = push()
            assert len(points(metrics["container.gpu.access"])) == 1000
            assert not any("otel.metric.overflow" in (p.attributes or {}) for m in metrics.values() for p in points(m))


def test_excluded_metrics_are_left_out_of_both_ways() -> None:
    with Push(Script(two_containers()), "hw.*", "gpu_cgroup.cycle.*", "container.accelerator.duty_cycle") as push:
        names = push().keys()
    assert names == {
        "gpu_cgroup.up",
        "gpu_cgroup.device.count",
        "gpu_cgroup.container.count",
        "gpu_cgroup.device.container.count",
        "container.gpu.access",
        "container.accelerator.memory.total",
        "container.accelerator.memory.used",
    }


def test_container_metrics_come_though_every_metric_of_the_agent_is_excluded() -> None:
    with Push(Script(two_containers()), "gpu_cgroup.*") as push:
        assert "container.gpu.access" in push()


def test_a_cycle_that_did_not_come_leaves_the_agents_own_metrics() -> None:
    with Push(Script(None)) as push:
        assert push().keys() == {"gpu_cgroup.cycle.problems"}
