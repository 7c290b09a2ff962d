# SPDX-License-Identifier: Apache-2.0
"""What the agent's reader hands to its exporter, read by an exporter that keeps it."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Metric, Sum

from otel_gpu_cgroup.model import GpuReading, NodeStats, OwnShare
from otel_gpu_cgroup.otel.instruments import AGENT_INSTRUMENTS
from tests.support.readers import Push, points, values
from tests.support.stats import GIB, Script, accelerator, container, gpu, held, instance, node, partitioned


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


def test_own_values_are_told_where_they_are_known_and_zero_is_known() -> None:
    some, none, nothing = OwnShare(GIB, 0.25, 2), OwnShare(0, 0.0, 0), OwnShare(None, None, 3)
    rows = {"some": some, "none": none, "nothing": nothing, "unknown": None}
    stats = node(*(container(name, accelerator("GPU-1", own=own)) for name, own in rows.items()))
    with Push(Script(stats)) as push:
        metrics = push()
    assert values(metrics["container.gpu.memory.usage"], "container.id") == {"some": GIB, "none": 0}
    assert values(metrics["container.gpu.utilization"], "container.id") == {"some": 0.25, "none": 0.0}
    assert values(metrics["container.gpu.process.count"], "container.id") == {"some": 2, "none": 0, "nothing": 3}
    assert "container.gpu.time" not in metrics


def test_a_lost_device_has_access_0_and_what_is_the_containers_own() -> None:
    lost = accelerator("GPU-1", None, None, memory_total=None, lost=True, own=OwnShare(GIB, 0.5, 1))
    stated = accelerator("GPU-1", certain=False)
    with Push(Script(node(container("a", lost), container("b", stated)))) as push:
        metrics = push()
    assert values(metrics["container.gpu.access"], "container.id") == {"a": 0}
    assert values(metrics["container.accelerator.memory.total"], "container.id") == {"b": 80 * GIB}
    assert values(metrics["container.gpu.memory.usage"], "container.id") == {"a": GIB}


def test_instances_are_devices_but_no_hardware() -> None:
    gpus = [
        partitioned("GPU-1", 0, "a", "b"),
        instance("MIG-1", "GPU-1", 0, "a", "b"),
        instance("MIG-2", "GPU-1", 0, fraction=None),
        gpu("GPU-2", 1, complete=False, unattributed=0),
    ]
    with Push(Script(node(gpus=gpus))) as push:
        metrics = push()
    assert values(metrics["hw.gpu.memory.limit"], "hw.id") == {"GPU-1": 80 * GIB, "GPU-2": 80 * GIB}
    assert values(metrics["hw.gpu.memory.usage"], "hw.id") == {"GPU-1": 3 * GIB, "GPU-2": GIB}
    assert values(metrics["hw.gpu.utilization"], "hw.id") == {"GPU-2": 0.5}
    assert values(metrics["gpu_cgroup.device.fraction"], "hw.id") == {"GPU-1": 1, "MIG-1": 1 / 7, "GPU-2": 1}
    assert values(metrics["gpu_cgroup.device.memory.unattributed"], "hw.id") == {"GPU-2": 0}
    count = metrics["gpu_cgroup.device.container.count"]
    assert values(count, "hw.id") == {"GPU-1": 2, "MIG-1": 2, "MIG-2": 0}
    kinds = {dict(p.attributes or {})["hw.id"]: dict(p.attributes or {}) for p in points(count)}
    assert {uuid: own["gpu_cgroup.device.kind"] for uuid, own in kinds.items()} == {
        "GPU-1": "partitioned",
        "MIG-1": "mig",
        "MIG-2": "mig",
    }
    assert kinds["MIG-1"] == {
        "hw.id": "MIG-1",
        "hw.model": "H100",
        "hw.parent": "GPU-1",
        "hw.vendor": "NVIDIA",
        "gpu_cgroup.device.kind": "mig",
        "gpu_cgroup.mig.profile": "1g.10gb",
    }


def test_a_row_has_ten_points_and_a_gpu_seven() -> None:
    names = ("a", "b", "c")
    rows = (container(name, accelerator("GPU-1", own=OwnShare(1, 0.5, 1))) for name in names)
    of_rows = node(*rows, held=held(*((name, "GPU-1", 1, 2, 3) for name in names)))
    of_gpus = node(gpus=[gpu("GPU-1", 0, unattributed=1), gpu("GPU-2", 1, unattributed=1)])
    for stats, expected in ((of_rows, 3 * 10), (of_gpus, 2 * 7)):
        with Push(Script(stats), *(row.name for row in AGENT_INSTRUMENTS)) as push:
            assert sum(len(points(metric)) for metric in push().values()) == expected


def test_twenty_thousand_containers_leave_nothing_behind() -> None:
    script = Script()
    with Push(script) as push:
        for batch in range(20):
            names = [f"{batch}-{n}" for n in range(1000)]
            rows = (container(name, accelerator("GPU-1")) for name in names)
            script.next = node(*rows, held=held(*((name, "GPU-1", 1, 2, 3) for name in names)))
            metrics = push()
            assert len(points(metrics["container.gpu.access"])) == 1000
            assert len(points(metrics["container.gpu.time"])) == 3000
            assert not any("otel.metric.overflow" in (p.attributes or {}) for m in metrics.values() for p in points(m))


def test_excluded_metrics_are_left_out_of_both_ways() -> None:
    with Push(Script(two_containers()), "hw.*", "gpu_cgroup.cycle.*", "container.accelerator.duty_cycle") as push:
        names = push().keys()
    assert names == {
        "gpu_cgroup.up",
        "gpu_cgroup.device.count",
        "gpu_cgroup.container.count",
        "gpu_cgroup.device.container.count",
        "gpu_cgroup.device.fraction",
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
