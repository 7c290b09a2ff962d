# SPDX-License-Identifier: Apache-2.0
"""Cycles made by hand → the agent's reader → the real collector: what the two temporalities are on the wire.

The expected totals are the numbers that the cycles were made of.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter
from opentelemetry.sdk.resources import Resource

from otel_gpu_cgroup.model import Account, HeldTime, NodeStats, OwnShare
from tests.support.collector import AGENT_KEY, NODE_CONFIG, Collector
from tests.support.eventually import eventually
from tests.support.otlp import CUMULATIVE, DELTA
from tests.support.readers import Push
from tests.support.stats import GIB, Script, accelerator, container, gpu, held, node

if TYPE_CHECKING:
    from pathlib import Path

    from opentelemetry.sdk.metrics.export import MetricExporter

    from tests.support.otlp import Export, Point

SECOND: Final = 10**9
TIME: Final = "container.gpu.time"
USAGE: Final = "gpu_cgroup.usage.time"
ACTIVE: Final = {"container.gpu.state": "active"}
EXPECTED: Final = {"cumulative": CUMULATIVE, "delta": DELTA, "lowmemory": CUMULATIVE}


def cycle(at: float, *containers: str, **active: float) -> NodeStats:
    """Containers, the seconds for which they (and those that have just ended) were active, and their sum."""
    row = accelerator("GPU-1", own=OwnShare(GIB, 0.5, 1))
    return node(
        *(container(name, row) for name in containers),
        gpus=[gpu("GPU-1", 0, *containers, unattributed=0)],
        held=held(*((name, "GPU-1", seconds, 1.0, 2.0) for name, seconds in active.items())),
        usage={Account("shop", None, "H100"): HeldTime(active=100 + at)},
        taken_at=at,
    )


CYCLES: Final = (
    cycle(1000, "a", a=0),
    cycle(1015, "a", "b", a=12.5, b=0),
    cycle(1030, "b", a=20.25, b=7),  # the last of a
    cycle(1045, "b", b=7.5),
)
SPANS: Final = {"a": [(1000, 1000, 0), (1000, 1015, 12.5), (1015, 1030, 7.75)],
                "b": [(1015, 1015, 0), (1015, 1030, 7), (1030, 1045, 0.5)]}  # fmt: skip
"""From, to, and the seconds added meanwhile."""


def push_all(exporter: MetricExporter, agent: str) -> None:
    script = Script()
    with Push(script, exporters=[exporter], resource=Resource({AGENT_KEY: agent})) as push:
        for script.next in CYCLES:
            push()
        script.next = None


def spans(exports: list[Export], name: str) -> list[tuple[float, float, float]]:
    """Of one container."""
    found: list[Point] = [p for export in exports for p in export.of(TIME, {"container.id": name, **ACTIVE})]
    return [(point.started_at / SECOND, point.taken_at / SECOND, point.value) for point in found]


@pytest.fixture(params=["http", "grpc"])
def exported(
    request: pytest.FixtureRequest, preference: str, sink: Collector, monkeypatch: pytest.MonkeyPatch
) -> list[Export]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", preference)
    agent = secrets.token_hex(8)
    if request.param == "http":
        push_all(HttpExporter(f"{sink.http_url}/v1/metrics"), agent)
    else:
        push_all(GrpcExporter(sink.grpc_url), agent)
    return eventually(lambda: found if len(found := sink.exports(agent)) > len(CYCLES) else None)[: len(CYCLES)]


@pytest.mark.parametrize("preference", EXPECTED)
def test_counters_have_the_temporality_that_is_preferred_and_nothing_else_has(
    exported: list[Export], preference: str
) -> None:
    temporalities = {point.stream.name: point.stream.temporality for export in exported for point in export.points}
    for name in (TIME, USAGE, "gpu_cgroup.cycle.problems"):
        assert temporalities[name] == EXPECTED[preference], name
    for name in ("container.gpu.access", "container.gpu.memory.usage", "hw.gpu.memory.usage"):
        assert temporalities[name] == CUMULATIVE, name
    assert temporalities["container.gpu.utilization"] is None


@pytest.mark.parametrize("preference", ["delta"])
def test_deltas_follow_each_other_and_add_up(exported: list[Export]) -> None:
    assert {name: spans(exported, name) for name in SPANS} == SPANS
    usage = [export.value(USAGE, {"k8s.namespace.name": "shop", **ACTIVE}) for export in exported]
    assert usage == [1100, 15, 15, 15]


@pytest.mark.parametrize("preference", ["cumulative"])
def test_totals_grow_from_where_their_series_began(exported: list[Export]) -> None:
    for name, added in SPANS.items():
        began, total = added[0][0], 0.0
        expected = [(began, until, total := total + seconds) for _, until, seconds in added]
        assert spans(exported, name) == expected


@pytest.mark.parametrize("preference", ["delta"])
def test_prometheus_behind_the_nodes_collector_sees_the_totals_of_deltas(
    otelcol: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preference: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", preference)
    with Collector(otelcol, NODE_CONFIG, tmp_path) as collector:
        push_all(HttpExporter(f"{collector.http_url}/v1/metrics"), secrets.token_hex(8))
        shown = {
            sample.labels["container_id"]: sample.value
            for sample in collector.scrape()
            if sample.name == "container_gpu_time_seconds_total" and sample.labels["container_gpu_state"] == "active"
        }
    assert shown == {"a": 20.25, "b": 7.5}
