# SPDX-License-Identifier: Apache-2.0
"""The rows as API instruments, read through the SDK's own in-memory reader."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, InMemoryMetricReader, Metric, Sum

from otel_gpu_cgroup.model import Account, HeldTime, OwnShare, Problem, Stage
from otel_gpu_cgroup.otel.collection import Collection
from otel_gpu_cgroup.otel.instruments import (
    AGENT_INSTRUMENTS,
    CONTAINER_INSTRUMENTS,
    DEVICE_INSTRUMENTS,
    SCHEMA_URL,
    USAGE_INSTRUMENTS,
)
from otel_gpu_cgroup.otel.register import register
from otel_gpu_cgroup.version import __version__
from tests.support.readers import Push
from tests.support.stats import Script, accelerator, container, gpu, held, node

Points = dict[str, dict[tuple[tuple[str, Any], ...], int | float]]


def provider(script: Script, rows: Any) -> InMemoryMetricReader:
    reader = InMemoryMetricReader()
    register(MeterProvider([reader], shutdown_on_exit=False), Collection(script, patience=5), rows)
    return reader


def collect(reader: InMemoryMetricReader) -> Points:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    [resource] = data.resource_metrics
    [scope] = resource.scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("otel_gpu_cgroup", __version__)
    assert scope.schema_url == SCHEMA_URL
    return {metric.name: values(metric) for metric in scope.metrics}


def values(metric: Metric) -> dict[tuple[tuple[str, Any], ...], int | float]:
    """By attribute set."""
    assert isinstance(metric.data, Gauge | Sum)
    return {tuple(sorted((point.attributes or {}).items())): point.value for point in metric.data.data_points}


def test_a_callback_fans_out_over_containers_that_come_and_go() -> None:
    script = Script(node(container("a", accelerator("GPU-1"))))
    reader = provider(script, CONTAINER_INSTRUMENTS)
    a, b = ((("container.id", name), ("hw.id", "GPU-1"), ("hw.model", "H100")) for name in ("a", "b"))
    assert collect(reader)["container.gpu.access"] == {a: 1}
    script.next = node(container("a", accelerator("GPU-1")), container("b", accelerator("GPU-1")))
    assert collect(reader)["container.gpu.access"] == {a: 1, b: 1}
    script.next = node(container("b", accelerator("GPU-1", memory_used=7)))
    assert collect(reader) == {
        "container.gpu.access": {b: 1},
        "container.accelerator.memory.total": {b: 80 << 30},
        "container.accelerator.memory.used": {b: 7},
        "container.accelerator.duty_cycle": {b: 12.5},
    }


def test_the_same_rows_leave_as_through_the_agents_reader() -> None:
    stats = node(
        container("a", accelerator("GPU-1", own=OwnShare(5, 0.5, 1))),
        container("b", accelerator("GPU-1", lost=True, own=OwnShare(0, 0.0, 0))),
        gpus=[gpu("GPU-1", 0, "a", unattributed=3)],
        held=held(("a", "GPU-1", 1.5, 2, 3), ("b", "GPU-1", 0, 0, 4)),
        usage={Account("shop", None, "H100"): HeldTime(1.5, 2, 7)},
    )
    with Push(Script(stats)) as push:
        produced = {name: values(metric) for name, metric in push().items()}
    rows = (*CONTAINER_INSTRUMENTS, *DEVICE_INSTRUMENTS, *USAGE_INSTRUMENTS)
    registered = collect(provider(Script(stats), rows))
    assert registered == {name: series for name, series in produced.items() if name in {row.name for row in rows}}
    assert registered.keys() == {row.name for row in rows}


def test_a_value_that_is_unknown_has_no_point() -> None:
    row = accelerator("GPU-1", memory_used=None, duty_cycle=None)
    points = collect(provider(Script(node(container("a", row))), CONTAINER_INSTRUMENTS))
    assert points.keys() == {"container.gpu.access", "container.accelerator.memory.total"}


def test_a_cycle_that_did_not_come_in_time_leaves_no_stale_point() -> None:
    script = Script(node(container("a", accelerator("GPU-1"))))
    reader = provider(script, CONTAINER_INSTRUMENTS)
    assert collect(reader)
    script.next = None
    assert collect(reader) == {}


def test_health_is_told_while_cycles_fail_to_come() -> None:
    problems = (Problem(Stage.NVML, "NVML", "down"), Problem(Stage.POLICY, "/a", "x"), Problem(Stage.POLICY, "/b", "x"))
    script = Script(
        node(container("a", accelerator("GPU-1")), container("b"), gpus=[gpu("GPU-1", 0)], problems=problems)
    )
    reader = provider(script, AGENT_INSTRUMENTS)

    def stage(name: str) -> tuple[tuple[str, str], ...]:
        return (("gpu_cgroup.stage", name),)

    first = collect(reader)
    assert first["gpu_cgroup.up"] == {stage("discovery"): 1, stage("nvml"): 0}
    assert first["gpu_cgroup.device.count"] == {
        (("gpu_cgroup.device.source", "pci"),): 2,
        (("gpu_cgroup.device.source", "nvml"),): 1,
    }
    counts = {dict(key)["gpu_cgroup.access"]: value for key, value in first["gpu_cgroup.container.count"].items()}
    assert counts == {"explicit": 1, "unrestricted": 0, "none": 1, "unknown": 0, "excluded": 0}
    assert first["gpu_cgroup.cycle.duration"] == {(): 0.25}
    assert first["gpu_cgroup.cycle.problems"] == {
        stage("discovery"): 0,
        stage("policy"): 2,
        stage("nvml"): 1,
        stage("share"): 0,
        stage("names"): 0,
        stage("cycle"): 0,
    }
    script.next = None
    second = collect(reader)
    assert second.keys() == {"gpu_cgroup.cycle.age", "gpu_cgroup.cycle.problems"}
    assert second["gpu_cgroup.cycle.problems"] == first["gpu_cgroup.cycle.problems"]
    for key, age in second["gpu_cgroup.cycle.age"].items():
        assert age > first["gpu_cgroup.cycle.age"][key]


def test_a_problem_is_counted_once_a_cycle_however_often_the_cycle_is_read() -> None:
    script = Script(node(problems=[Problem(Stage.NVML, "NVML", "down")]))
    reader = provider(script, AGENT_INSTRUMENTS)
    nvml = (("gpu_cgroup.stage", "nvml"),)
    assert [collect(reader)["gpu_cgroup.cycle.problems"][nvml] for _ in range(2)] == [1, 1]
    script.next = node(problems=[Problem(Stage.NVML, "NVML", "down")])
    assert collect(reader)["gpu_cgroup.cycle.problems"][nvml] == 2


def test_only_counters_are_monotonic() -> None:
    reader = provider(Script(node()), AGENT_INSTRUMENTS)
    data = reader.get_metrics_data()
    assert data is not None
    [scope] = data.resource_metrics[0].scope_metrics
    sums = {metric.name: metric.data.is_monotonic for metric in scope.metrics if isinstance(metric.data, Sum)}
    assert sums == {
        "gpu_cgroup.up": False,
        "gpu_cgroup.device.count": False,
        "gpu_cgroup.container.count": False,
        "gpu_cgroup.cycle.problems": True,
    }


def test_a_collection_waits_for_at_most_half_of_its_own_timeout() -> None:
    script = Script(node())
    collection = Collection(script, patience=5)
    collection.begin(4.0)
    assert script.timeout == 2.0
    collection.begin(60.0)
    assert script.timeout == 5.0
