# SPDX-License-Identifier: Apache-2.0
"""Counters with delta temporality, each reader by itself; the expected sums are computed from the cycles' totals."""

from __future__ import annotations

import gc
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.metrics import ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, Metric, MetricExportResult, Sum

from otel_gpu_cgroup.model import Account, HeldTime, NodeStats
from otel_gpu_cgroup.otel.series import Series
from tests.support.readers import Keep, Push, attributes, points
from tests.support.stats import Script, accelerator, container, held, node

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import NumberDataPoint

DELTA, CUMULATIVE = AggregationTemporality.DELTA, AggregationTemporality.CUMULATIVE
OF_DELTAS: dict[type, AggregationTemporality] = {ObservableCounter: DELTA}
SHOP = Account("shop", None, "H100")


def cycle(at: float, *containers: str, **totals: float) -> NodeStats:
    """Containers, and for how long those and others that have ended were active; the shop is all of them."""
    rows = [(name, "GPU-1", seconds, 0.0, 0.0) for name, seconds in totals.items()]
    return node(
        *(container(name, accelerator("GPU-1")) for name in containers),
        held=held(*rows),
        usage={SHOP: HeldTime(active=sum(totals.values()))},
        taken_at=at,
    )


def active(metrics: dict[str, Metric], name: str = "container.gpu.time") -> list[NumberDataPoint]:
    found = points(metrics[name]) if name in metrics else ()
    return [point for point in found if attributes(point)["container.gpu.state"] == "active"]


def told(metrics: dict[str, Metric], name: str = "container.gpu.time") -> list[tuple[float, float, float]]:
    """Value, and the seconds since the epoch between which it came to be."""
    return [
        (point.value, point.start_time_unix_nano / 1e9, point.time_unix_nano / 1e9) for point in active(metrics, name)
    ]


def test_each_interval_is_told_once_and_follows_the_one_before() -> None:
    script, kept = Script(), Keep(OF_DELTAS)
    found = []
    with Push(script, exporters=[kept]) as push:
        for at, seconds in ((100, 0), (115, 4), (131, 4), (145, 16)):
            script.next = cycle(at, "a", a=seconds)
            metrics = push()
            found += told(metrics)
            assert told(metrics) == told(metrics, "gpu_cgroup.usage.time")
    assert found == [(0, 100, 100), (4, 100, 115), (0, 115, 131), (12, 131, 145)]
    assert all(before[2] == after[1] for before, after in pairwise(found))


def test_only_counters_are_told_so() -> None:
    script = Script(cycle(100, "a", a=3))
    with Push(script, exporters=[Keep(OF_DELTAS)]) as push:
        metrics = push()
    temporalities = {
        name: metric.data.aggregation_temporality for name, metric in metrics.items() if isinstance(metric.data, Sum)
    }
    deltas = {name for name, temporality in temporalities.items() if temporality is DELTA}
    assert deltas == {"container.gpu.time", "gpu_cgroup.usage.time", "gpu_cgroup.cycle.problems"}
    assert temporalities["container.gpu.access"] is CUMULATIVE


def test_each_reader_has_its_own_past() -> None:
    script = Script()
    with Push(script, exporters=[Keep(OF_DELTAS), Keep(), Keep(OF_DELTAS)]) as push:
        script.next = cycle(100, "a", a=1)
        assert [told(push(0)), told(push(1))] == [[(1, 100, 100)], [(1, 100, 100)]]
        script.next = cycle(115, "a", a=5)
        assert [told(push(0)), told(push(1))] == [[(4, 100, 115)], [(5, 100, 115)]]
        script.next = cycle(130, "a", a=7)
        assert [told(push(which)) for which in (0, 1, 2)] == [[(2, 115, 130)], [(7, 100, 130)], [(7, 100, 130)]]


def test_a_cycle_that_is_seen_twice_adds_nothing() -> None:
    script = Script(cycle(100, "a", a=1))
    with Push(script, exporters=[Keep(OF_DELTAS)]) as push:
        assert told(push())
        assert "container.gpu.time" not in push()
        script.next = cycle(115, "a", a=3)
        assert told(push()) == [(2, 100, 115)]


def test_a_container_that_comes_and_goes_is_told_to_the_end() -> None:
    script, found = Script(), []
    with Push(script, exporters=[Keep(OF_DELTAS)]) as push:
        script.next = cycle(100)
        push()
        for at, containers, totals in ((115, "a", {"a": 0}), (130, "a", {"a": 8}), (145, "", {"a": 11}), (160, "", {})):
            script.next = cycle(at, *containers, **totals)
            found += told(push())
    assert found == [(0, 115, 115), (8, 115, 130), (3, 130, 145)]


def test_a_row_that_pauses_goes_on_from_what_was_told() -> None:
    script, found = Script(), []
    with Push(script, exporters=[Keep(OF_DELTAS)]) as push:
        for at, totals in ((100, {"a": 0}), (115, {"a": 5}), (130, {}), (145, {"a": 5}), (160, {"a": 9})):
            script.next = cycle(at, "a", **totals)
            found += told(push())
    assert found == [(0, 100, 100), (5, 100, 115), (0, 115, 145), (4, 145, 160)]


def test_a_failed_export_loses_its_interval_as_the_sdk_loses_its_own() -> None:
    script, kept = Script(), Keep(OF_DELTAS)
    with Push(script, exporters=[kept]) as push:
        script.next = cycle(100, "a", a=0)
        push()
        kept.result = MetricExportResult.FAILURE
        script.next = cycle(115, "a", a=5)
        push()
        kept.result = MetricExportResult.SUCCESS
        script.next = cycle(130, "a", a=6)
        assert told(push()) == [(1, 115, 130)]


def test_nothing_is_remembered_of_series_that_have_ended() -> None:
    script = Script()
    with Push(script, exporters=[Keep(OF_DELTAS)]) as push:
        for number in range(20):
            name = f"c{number}"
            script.next = cycle(100 + number, name, **{name: 1})
            push()
        gc.collect()
        living = [one for one in gc.get_objects() if isinstance(one, Series) and "container.id" in one.attributes]
        assert {one.attributes["container.id"] for one in living} <= {"c18", "c19"}


@pytest.mark.parametrize(
    ("preference", "expected"), [("cumulative", CUMULATIVE), ("delta", DELTA), ("lowmemory", CUMULATIVE)]
)
def test_the_standard_variable_chooses(
    monkeypatch: pytest.MonkeyPatch, preference: str, expected: AggregationTemporality
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", preference)
    otlp = pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http.metric_exporter", reason="the core has no exporter"
    )
    kept = Keep(otlp.OTLPMetricExporter()._preferred_temporality)  # noqa: SLF001  # what the SDK's readers take from it
    with Push(Script(cycle(100, "a", a=3)), exporters=[kept]) as push:
        metrics = push()
    data = metrics["container.gpu.time"].data
    assert isinstance(data, Sum)
    assert data.aggregation_temporality is expected
