# SPDX-License-Identifier: Apache-2.0
"""When series begin and end, and what they are told in between: cycles made by hand, read as the agent exports them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.metrics.export import AggregationTemporality, Metric, Sum

from otel_gpu_cgroup.model import Account, CgroupPath, Gpu, GpuReading, GpuReport, GpuUuid, HeldTime, Pod
from tests.support.readers import Push, attributes, points, values
from tests.support.stats import Script, accelerator, container, gpu, held, node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.model import NodeStats

SECOND = 10**9
ROW = accelerator("GPU-1")


class Cycles:
    """Sets the next cycle and returns what leaves."""

    def __init__(self) -> None:
        self.script = Script()
        self.push = Push(self.script)

    def __call__(self, stats: NodeStats) -> dict[str, Metric]:
        self.script.next = stats
        return self.push()


@pytest.fixture
def cycles() -> Iterator[Cycles]:
    cycles = Cycles()
    with cycles.push:
        yield cycles


def times(metrics: dict[str, Metric], name: str = "container.gpu.time") -> dict[tuple[str, ...], float]:
    """By what tells the points apart, the state last."""
    if name not in metrics:
        return {}
    keys = ("container.id", "hw.id", "k8s.namespace.name", "slurm.job.uid", "container.gpu.state")
    return {
        tuple(str(own[key]) for key in keys if (own := attributes(point)).get(key) is not None): point.value
        for point in points(metrics[name])
    }


def starts(metrics: dict[str, Metric], name: str = "container.gpu.time") -> set[int]:
    """Seconds since the epoch."""
    return {point.start_time_unix_nano // SECOND for point in points(metrics[name])}


def states(*key: str, active: float, idle: float, unknown: float) -> dict[tuple[str, ...], float]:
    return {(*key, "active"): active, (*key, "idle"): idle, (*key, "unknown"): unknown}


def test_time_is_a_counter_that_starts_at_0_with_the_container(cycles: Cycles) -> None:
    first = cycles(node(container("a", ROW), held=held(("a", "GPU-1", 0, 0, 0)), taken_at=100))
    assert times(first) == states("a", "GPU-1", active=0, idle=0, unknown=0)
    second = cycles(node(container("a", ROW), held=held(("a", "GPU-1", 3, 10, 2)), taken_at=115))
    assert times(second) == states("a", "GPU-1", active=3, idle=10, unknown=2)
    data = second["container.gpu.time"].data
    assert isinstance(data, Sum)
    assert (data.is_monotonic, data.aggregation_temporality) == (True, AggregationTemporality.CUMULATIVE)
    assert {(p.start_time_unix_nano, p.time_unix_nano) for p in data.data_points} == {(100 * SECOND, 115 * SECOND)}


def test_attribute_sets_are_made_once(cycles: Cycles) -> None:
    def sets(metrics: dict[str, Metric]) -> set[int]:
        return {id(point.attributes) for name in metrics if "." in name for point in points(metrics[name])}

    def cycle(used: int) -> dict[str, Metric]:
        rows = container("a", accelerator("GPU-1", used))
        stats = node(rows, gpus=[gpu("GPU-1", 0, "a")], held=held(("a", "GPU-1", 1, 1, 1)))
        metrics = cycles(stats)
        return {name: metric for name, metric in metrics.items() if name.startswith(("container.", "hw."))}

    first, second = cycle(1), cycle(2)
    assert sets(first) == sets(second)
    assert len({id(p.attributes) for name in first if name.startswith("container.") for p in points(first[name])}) == 4


def test_a_name_that_is_awaited_holds_the_first_point_back_but_not_the_start(cycles: Cycles) -> None:
    awaited, named = Pod("u"), Pod("u", "web-0", "shop", "server")
    for at, seconds in ((100, 0.0), (115, 15.0)):
        stats = node(
            container("a", ROW, pod=awaited, is_named=False), held=held(("a", "GPU-1", 0, 0, seconds)), taken_at=at
        )
        assert not [name for name in cycles(stats) if name.startswith("container.")]
    metrics = cycles(node(container("a", ROW, pod=named), held=held(("a", "GPU-1", 0, 0, 30)), taken_at=130))
    assert starts(metrics) == starts(metrics, "container.gpu.access") == {100}
    assert attributes(points(metrics["container.gpu.access"])[0])["k8s.pod.name"] == "web-0"
    changed = Pod("u", "web-0", "shop", "another")
    later = cycles(node(container("a", ROW, pod=changed), held=held(("a", "GPU-1", 0, 0, 45)), taken_at=145))
    for name in ("container.gpu.access", "container.gpu.time"):
        assert attributes(points(later[name])[0]) == attributes(points(metrics[name])[0])


def test_a_device_that_comes_later_begins_later(cycles: Cycles) -> None:
    cycles(node(container("a", ROW), taken_at=100))
    rows = (ROW, accelerator("GPU-2"))
    metrics = cycles(node(container("a", *rows), taken_at=115))
    begun = {
        attributes(point)["hw.id"]: point.start_time_unix_nano // SECOND
        for point in points(metrics["container.gpu.access"])
    }
    assert begun == {"GPU-1": 100, "GPU-2": 115}


def test_a_row_that_ended_has_its_last_point_once(cycles: Cycles) -> None:
    stays = container("b", ROW)
    cycles(node(container("a", ROW), stays, held=held(("a", "GPU-1", 5, 5, 5), ("b", "GPU-1", 0, 0, 0)), taken_at=100))
    last = cycles(node(stays, held=held(("a", "GPU-1", 5, 5, 12.5), ("b", "GPU-1", 0, 15, 0)), taken_at=115))
    assert times(last) == {
        **states("a", "GPU-1", active=5, idle=5, unknown=12.5),
        **states("b", "GPU-1", active=0, idle=15, unknown=0),
    }
    assert starts(last) == {100}
    assert values(last["container.gpu.access"], "container.id") == {"b": 1}
    after = cycles(node(stays, held=held(("b", "GPU-1", 0, 30, 0)), taken_at=130))
    assert times(after) == states("b", "GPU-1", active=0, idle=30, unknown=0)


def test_a_row_that_ended_before_it_was_named_has_no_point(cycles: Cycles) -> None:
    cycles(node(container("a", ROW, is_named=False), held=held(("a", "GPU-1", 0, 0, 0))))
    assert times(cycles(node(held=held(("a", "GPU-1", 0, 0, 7.5))))) == {}


def test_a_lost_row_goes_on_where_it_was_when_it_comes_back(cycles: Cycles) -> None:
    lost = container("a", accelerator("GPU-1", None, None, lost=True))
    cycles(node(container("a", ROW), held=held(("a", "GPU-1", 5, 0, 0)), taken_at=100))
    cycles(node(lost, held=held(("a", "GPU-1", 5, 0, 7.5)), taken_at=115))
    assert times(cycles(node(lost, taken_at=130))) == {}
    back = cycles(node(container("a", ROW), held=held(("a", "GPU-1", 5, 0, 7.5)), taken_at=145))
    assert times(back) == states("a", "GPU-1", active=5, idle=0, unknown=7.5)
    assert starts(back) == {100}


def test_a_cgroup_that_was_made_again_is_another_life(cycles: Cycles) -> None:
    cycles(node(container("a", ROW, inode=7), held=held(("a", "GPU-1", 5, 0, 0)), taken_at=100))
    unread = cycles(node(container("a", ROW, inode=None), held=held(("a", "GPU-1", 20, 0, 0)), taken_at=115))
    assert starts(unread) == {100}
    again = cycles(node(container("a", ROW, inode=8), held=held(("a", "GPU-1", 0, 0, 0)), taken_at=130))
    assert times(again) == states("a", "GPU-1", active=0, idle=0, unknown=0)
    assert starts(again) == starts(again, "container.gpu.access") == {130}


def test_the_last_point_of_a_life_comes_though_the_next_one_has_no_device(cycles: Cycles) -> None:
    cycles(node(container("a", ROW, inode=7), held=held(("a", "GPU-1", 5, 0, 0)), taken_at=100))
    last = cycles(node(container("a", inode=8), held=held(("a", "GPU-1", 5, 0, 7.5)), taken_at=115))
    assert times(last) == states("a", "GPU-1", active=5, idle=0, unknown=7.5)


def test_a_life_whose_name_is_awaited_does_not_go_on_with_the_series_of_the_one_before(cycles: Cycles) -> None:
    cycles(node(container("a", ROW, inode=7), held=held(("a", "GPU-1", 5, 0, 0))))
    metrics = cycles(node(container("a", ROW, inode=8, is_named=False), held=held(("a", "GPU-1", 0, 0, 0))))
    assert not [name for name in metrics if name.startswith("container.")]


def test_of_two_containers_with_one_printable_id_the_later_is_left_out(
    cycles: Cycles, caplog: pytest.LogCaptureFixture
) -> None:
    long = "/" + "x" * 1100
    first, second = (container(f"{long}{end}", ROW, id=None, cgroup=CgroupPath(f"{long}{end}")) for end in "ab")
    cycles(node(second))
    with caplog.at_level(logging.WARNING, logger="otel_gpu_cgroup"):
        for _ in range(2):
            metrics = cycles(node(first, second))
            assert len(points(metrics["container.gpu.access"])) == 1
    [record] = caplog.records
    assert "xa'" in record.getMessage()
    assert values(metrics["gpu_cgroup.cycle.problems"], "gpu_cgroup.stage")["discovery"] == 2
    assert len(points(cycles(node(first))["container.gpu.access"])) == 1


def test_what_a_cycle_says_twice_leaves_once(cycles: Cycles) -> None:
    devices = [gpu("GPU-1", 0, "a"), gpu("GPU-1", 0, "a")]
    metrics = cycles(node(container("a", ROW, ROW), container("a", ROW), gpus=devices))
    assert values(metrics["container.gpu.access"], "container.id") == {"a": 1}
    assert values(metrics["hw.gpu.memory.limit"], "hw.id").keys() == {"GPU-1"}


def test_a_device_of_which_more_is_known_is_another_series(cycles: Cycles) -> None:
    def device(**known: str) -> GpuReport:
        return GpuReport(Gpu(0, GpuUuid("GPU-1"), **known), GpuReading(memory_total=1))  # type: ignore[arg-type]

    unknown = cycles(node(gpus=[device()], taken_at=100))
    same = cycles(node(gpus=[device(address="0000:01:00.0")], taken_at=115))
    assert starts(unknown, "hw.gpu.memory.limit") == starts(same, "hw.gpu.memory.limit") == {100}
    known = cycles(node(gpus=[device(model="H100")], taken_at=130))
    assert starts(known, "hw.gpu.memory.limit") == {130}
    assert attributes(points(known["hw.gpu.memory.limit"])[0])["hw.model"] == "H100"


def test_usage_goes_on_when_containers_have_ended(cycles: Cycles) -> None:
    shop, user, nobody = Account("shop", None, "H100"), Account(None, 1000, "H100"), Account(None, None, "H100")
    cycles(node(taken_at=100))
    cycles(node(taken_at=115, usage={shop: HeldTime(1, 2, 3)}))
    usage = {shop: HeldTime(1, 2, 3), user: HeldTime(4, 0, 0), nobody: HeldTime(0, 0, 7.5)}
    metrics = cycles(node(taken_at=130, usage=usage))
    assert times(metrics, "gpu_cgroup.usage.time") == {
        **states("shop", active=1, idle=2, unknown=3),
        **states("1000", active=4, idle=0, unknown=0),
        **states(active=0, idle=0, unknown=7.5),
    }
    assert starts(metrics, "gpu_cgroup.usage.time") == {100}  # since then they have been counted, from 0


def test_accounts_that_look_the_same_are_one(cycles: Cycles) -> None:
    usage = {Account("a\nb", None, "H100"): HeldTime(1, 2, 3), Account(r"a\nb", None, "H100"): HeldTime(10, 20, 30)}
    metrics = cycles(node(usage=usage))
    assert times(metrics, "gpu_cgroup.usage.time") == states(r"a\nb", active=11, idle=22, unknown=33)


def test_an_older_cycle_ends_nothing_that_a_newer_one_began(cycles: Cycles) -> None:
    older = node(container("a", ROW), taken_at=100)
    cycles(node(container("a", ROW), container("b", ROW), taken_at=115))
    metrics = cycles(older)
    assert values(metrics["container.gpu.access"], "container.id") == {"a": 1, "b": 1}
