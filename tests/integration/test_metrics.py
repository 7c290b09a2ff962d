# SPDX-License-Identifier: Apache-2.0
"""Every metric as it arrives in OTLP: name, unit, kind, attribute keys and number type are a contract with users."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import pytest

from tests.fakes.fake_nvml import FakeGpu, Steady, World
from tests.integration.host_tree import write_host
from tests.support.otlp import CUMULATIVE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import StartAgent
    from tests.support.agent import Driver
    from tests.support.otlp import Export

DOCKER: Final = "d0" * 32
IN_POD: Final = "b0" * 32
POD_UID: Final = "0d5e4ecd-9e29-4f2f-8b0c-2d7a1de5b0a7"
GPU_RULES: Final = "c 1:3 rwm\nc 195:4 rw\n"


@dataclass(frozen=True, slots=True)
class Expected:
    """One row of the contract."""

    unit: str
    kind: Literal["counter", "up-down counter", "gauge"]
    type: type[int | float]
    keys: tuple[frozenset[str], ...]
    """The sets of attribute keys that its points have."""


def _keys(*sets: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(words.split()) for words in sets)


_CONTAINER: Final = _keys("container.id hw.id hw.model", "container.id hw.id hw.model k8s.pod.uid")
_DEVICE: Final = _keys("hw.id hw.model hw.name hw.vendor")
_STAGE: Final = _keys("gpu_cgroup.stage")

CONTRACT: Final = {
    "container.gpu.access": Expected("{gpu}", "up-down counter", int, _CONTAINER),
    "container.accelerator.memory.total": Expected("By", "gauge", int, _CONTAINER),
    "container.accelerator.memory.used": Expected("By", "gauge", int, _CONTAINER),
    "container.accelerator.duty_cycle": Expected("{percent}", "gauge", float, _CONTAINER),
    "hw.gpu.memory.limit": Expected("By", "up-down counter", int, _DEVICE),
    "hw.gpu.memory.usage": Expected("By", "up-down counter", int, _DEVICE),
    "hw.gpu.memory.utilization": Expected("1", "gauge", float, _DEVICE),
    "hw.gpu.utilization": Expected("1", "gauge", float, _keys("hw.id hw.model hw.name hw.vendor hw.gpu.task")),
    "gpu_cgroup.device.container.count": Expected(
        "{container}", "up-down counter", int, _keys("hw.id hw.model hw.name hw.vendor gpu_cgroup.device.kind")
    ),
    "gpu_cgroup.device.count": Expected("{gpu}", "up-down counter", int, _keys("gpu_cgroup.device.source")),
    "gpu_cgroup.up": Expected("1", "up-down counter", int, _STAGE),
    "gpu_cgroup.cycle.duration": Expected("s", "gauge", float, _keys("")),
    "gpu_cgroup.cycle.age": Expected("s", "gauge", float, _STAGE),
    "gpu_cgroup.cycle.problems": Expected("{problem}", "counter", int, _STAGE),
    "gpu_cgroup.container.count": Expected("{container}", "up-down counter", int, _keys("gpu_cgroup.access")),
}


@pytest.fixture
def export(start_agent: StartAgent, driver: Driver, tmp_path: Path) -> Export:
    """What an agent sends that has a value for every metric."""
    driver.set(World(gpus=(FakeGpu(uuid="GPU-a", minor=4, samples=Steady((25,))), FakeGpu(uuid="GPU-b", minor=5))))
    pod = f"/kubepods/burstable/pod{POD_UID}/{IN_POD}"
    root = write_host(tmp_path / "host", {f"/docker/{DOCKER}": GPU_RULES, pod: GPU_RULES})
    return start_agent("--host-root", os.fspath(root), **driver.variables()).flushed()


def test_exactly_these_metrics_arrive(export: Export) -> None:
    assert {point.stream.name for point in export.points} == CONTRACT.keys()


def test_each_metric_arrives_as_its_row_says(export: Export) -> None:
    for name, expected in CONTRACT.items():
        points = export.of(name)
        assert {point.stream.unit for point in points} == {expected.unit}, name
        assert {_kind(export, name)} == {expected.kind}, name
        assert {type(point.value) for point in points} == {expected.type}, name
        assert {frozenset(point.attributes) for point in points} == set(expected.keys), name


def _kind(export: Export, name: str) -> str:
    [stream] = {point.stream for point in export.of(name)}
    if stream.shape == "gauge":
        return "gauge"
    assert stream.temporality == CUMULATIVE, name
    return "counter" if stream.monotonic else "up-down counter"


def test_attribute_values_are_the_words_of_the_contract(export: Export) -> None:
    def values(metric: str, key: str) -> set[str]:
        return {point.attributes[key] for point in export.of(metric)}

    assert values("gpu_cgroup.up", "gpu_cgroup.stage") == {"discovery", "policy", "nvml"}
    assert values("gpu_cgroup.cycle.age", "gpu_cgroup.stage") == {"policy", "nvml"}
    stages = {"discovery", "policy", "nvml", "share", "names", "cycle"}
    assert values("gpu_cgroup.cycle.problems", "gpu_cgroup.stage") == stages
    classes = {"explicit", "unrestricted", "none", "unknown", "excluded"}
    assert values("gpu_cgroup.container.count", "gpu_cgroup.access") == classes
    assert values("gpu_cgroup.device.count", "gpu_cgroup.device.source") == {"pci", "nvml"}
    assert values("hw.gpu.utilization", "hw.gpu.task") == {"general"}
    assert values("hw.gpu.memory.limit", "hw.vendor") == {"NVIDIA"}
    assert values("hw.gpu.memory.limit", "hw.name") == {"nvidia4", "nvidia5"}
    assert values("gpu_cgroup.device.container.count", "gpu_cgroup.device.kind") == {"gpu"}


def test_counts_are_those_of_the_host(export: Export) -> None:
    for gpu, holders in (("GPU-a", 2), ("GPU-b", 0)):
        assert export.value("gpu_cgroup.device.container.count", {"hw.id": gpu}) == holders
    for access, count in {"explicit": 2, "unrestricted": 0, "none": 0, "unknown": 0, "excluded": 0}.items():
        assert export.value("gpu_cgroup.container.count", {"gpu_cgroup.access": access}) == count
    assert {point.value for point in export.of("gpu_cgroup.cycle.problems")} == {0}


def test_what_is_device_wide_says_so_before_all_else(export: Export) -> None:
    described = {p.stream.description for p in export.points if p.stream.name.startswith("container.accelerator.")}
    assert len(described) == 3
    for description in described:
        assert description.startswith("DEVICE-WIDE, repeated per container, never sum; own share: container.gpu.*")


def test_every_point_has_the_scope_the_schema_and_the_time_of_its_cycle(export: Export) -> None:
    for point in export.points:
        name, version, schema = point.scope
        assert (name, schema) == ("otel_gpu_cgroup", "https://opentelemetry.io/schemas/1.44.0")
        assert version
        assert point.taken_at > 0
        assert (point.started_at == 0) == (point.stream.shape == "gauge")
        assert point.started_at <= point.taken_at
