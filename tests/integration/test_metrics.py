# SPDX-License-Identifier: Apache-2.0
"""Every metric as it arrives in OTLP: name, unit, kind, attribute keys and number type are a contract with users."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import pytest

from tests.fakes.fake_nvml import GIB, FakeGpu, FakeMemory, Steady, World
from tests.fakes.nvml_world import FakeInstance, FakeProcess, FakeShare
from tests.integration.host_tree import write_host
from tests.support.eventually import eventually
from tests.support.name_host import ID, NAMED, NameHost, recorded
from tests.support.otlp import CUMULATIVE
from tests.support.process_host import Host

if TYPE_CHECKING:
    from tests.integration.conftest import StartAgent
    from tests.support.agent import Driver
    from tests.support.otlp import Export

CAPABILITIES: Final = Path(__file__).parents[1] / "data/nvidia-caps"
DOCKER: Final = "d0" * 32
POD: Final = f"/kubepods/burstable/pod{NAMED.uid}/{ID}"
STEP: Final = "/slurm/uid_1000/job_77/step_0"
RULES: Final = {
    f"/docker/{DOCKER}": "c 1:3 rwm\nc 195:1 rw\n",
    POD: "c 195:1 rw\n",
    STEP: "c 195:3 rw\nc 236:471 rw\nc 236:472 rw\n",
}
"""The last opens instance 7 of GPU 3: its numbers are those of tests/data/nvidia-caps."""
SHARED: Final = FakeGpu(
    uuid="GPU-shared",
    minor=1,
    name="H100",
    memory=FakeMemory(used=9 * GIB),
    samples=Steady((25,)),
    processes=(FakeProcess(pid=41, memory=4 * GIB), FakeProcess(pid=42, memory=2 * GIB)),
    shares=(FakeShare(pid=41, sm=20),),
)
CUT: Final = FakeGpu(
    uuid="GPU-cut",
    minor=3,
    name="H100",
    memory=FakeMemory(used=3 * GIB),
    instances=(FakeInstance(slot=0, uuid="MIG-one", gi=7, memory=FakeMemory(total=10 * GIB, used=GIB), busy=40),),
    processes=(FakeProcess(pid=43, memory=GIB, gi=7, ci=0),),
)
FREE: Final = FakeGpu(uuid="GPU-free", minor=5, name="H100")
CGROUPS: Final = {41: f"/docker/{DOCKER}", 42: f"/docker/{DOCKER}", 43: STEP}


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


_NAMED: Final = "container.id container.name hw.id hw.model"
_PER_CONTAINER: Final = (_NAMED, f"{_NAMED} k8s.namespace.name k8s.pod.name k8s.pod.uid k8s.container.name")
_OF_AN_INSTANCE: Final = f"{_NAMED} hw.parent slurm.job.id"
_CONTAINER: Final = _keys(*_PER_CONTAINER, _OF_AN_INSTANCE)
_HELD: Final = tuple(keys | {"container.gpu.state"} for keys in _CONTAINER)
_GPU: Final = "hw.id hw.model hw.name hw.vendor"
_INSTANCE: Final = "hw.id hw.model hw.parent hw.vendor"
_STAGE: Final = _keys("gpu_cgroup.stage")

CONTRACT: Final = {
    "container.gpu.access": Expected("{gpu}", "up-down counter", int, _CONTAINER),
    "container.accelerator.memory.total": Expected("By", "gauge", int, _CONTAINER),
    "container.accelerator.memory.used": Expected("By", "gauge", int, _CONTAINER),
    "container.accelerator.duty_cycle": Expected("{percent}", "gauge", float, _CONTAINER),
    "container.gpu.memory.usage": Expected("By", "up-down counter", int, _CONTAINER),
    "container.gpu.utilization": Expected("1", "gauge", float, _keys(*_PER_CONTAINER)),
    "container.gpu.process.count": Expected("{process}", "up-down counter", int, _CONTAINER),
    "container.gpu.time": Expected("s", "counter", float, _HELD),
    "hw.gpu.memory.limit": Expected("By", "up-down counter", int, _keys(_GPU)),
    "hw.gpu.memory.usage": Expected("By", "up-down counter", int, _keys(_GPU)),
    "hw.gpu.memory.utilization": Expected("1", "gauge", float, _keys(_GPU)),
    "hw.gpu.utilization": Expected("1", "gauge", float, _keys(f"{_GPU} hw.gpu.task")),
    "gpu_cgroup.device.container.count": Expected(
        "{container}",
        "up-down counter",
        int,
        _keys(f"{_GPU} gpu_cgroup.device.kind", f"{_INSTANCE} gpu_cgroup.device.kind gpu_cgroup.mig.profile"),
    ),
    "gpu_cgroup.device.fraction": Expected("1", "gauge", float, _keys(_GPU, _INSTANCE)),
    "gpu_cgroup.device.memory.unattributed": Expected("By", "up-down counter", int, _keys(_GPU, _INSTANCE)),
    "gpu_cgroup.usage.time": Expected(
        "s",
        "counter",
        float,
        _keys(
            "hw.model container.gpu.state",
            "hw.model container.gpu.state k8s.namespace.name",
            "hw.model container.gpu.state slurm.job.uid",
        ),
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
    driver.set(World(gpus=(SHARED, CUT, FREE)))
    root = write_host(Path(shutil.copytree(CAPABILITIES, tmp_path / "host")), RULES)
    names = NameHost(root)
    names.docker(DOCKER, recorded("docker.config.v2.json"))
    names.log(ID)
    for pid, cgroup in CGROUPS.items():
        Host(root).run(pid, cgroup)
    agent = start_agent("--host-root", os.fspath(root), **driver.variables())
    return eventually(lambda: next(filter(_has_all, agent.exports()), None), agent.log)


def _has_all(export: Export) -> bool:
    """Some values are of the time between two cycles."""
    return all(export.of(name) for name in ("container.gpu.utilization", "hw.gpu.utilization")) and bool(
        export.of("container.accelerator.duty_cycle", {"hw.id": "MIG-one"})
    )


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
        return {point.attributes[key] for point in export.of(metric) if key in point.attributes}

    assert values("gpu_cgroup.up", "gpu_cgroup.stage") == {"discovery", "policy", "nvml", "share", "names"}
    assert values("gpu_cgroup.cycle.age", "gpu_cgroup.stage") == {"policy", "nvml"}
    stages = {"discovery", "policy", "nvml", "share", "names", "cycle"}
    assert values("gpu_cgroup.cycle.problems", "gpu_cgroup.stage") == stages
    classes = {"explicit", "unrestricted", "none", "unknown", "excluded"}
    assert values("gpu_cgroup.container.count", "gpu_cgroup.access") == classes
    assert values("gpu_cgroup.device.count", "gpu_cgroup.device.source") == {"pci", "nvml"}
    assert values("hw.gpu.utilization", "hw.gpu.task") == {"general"}
    assert values("hw.gpu.memory.limit", "hw.vendor") == {"NVIDIA"}
    assert values("hw.gpu.memory.limit", "hw.name") == {"nvidia1", "nvidia3", "nvidia5"}
    assert values("hw.gpu.memory.limit", "hw.id") == {"GPU-shared", "GPU-cut", "GPU-free"}
    kinds = {
        point.attributes["hw.id"]: point.attributes["gpu_cgroup.device.kind"]
        for point in export.of("gpu_cgroup.device.container.count")
    }
    assert kinds == {"GPU-shared": "gpu", "GPU-cut": "partitioned", "MIG-one": "mig", "GPU-free": "gpu"}
    assert values("gpu_cgroup.device.container.count", "gpu_cgroup.mig.profile") == {"1g.10gb"}
    for metric in ("container.gpu.time", "gpu_cgroup.usage.time"):
        assert values(metric, "container.gpu.state") == {"active", "idle", "unknown"}
    assert values("gpu_cgroup.usage.time", "k8s.namespace.name") == {NAMED.namespace}
    assert values("gpu_cgroup.usage.time", "slurm.job.uid") == {"1000"}


def test_each_container_is_called_what_people_call_it(export: Export) -> None:
    names = {point.attributes["container.id"]: point.attributes for point in export.of("container.gpu.access")}
    assert names == {
        DOCKER: {"container.id": DOCKER, "container.name": "train_gpt", "hw.id": "GPU-shared", "hw.model": "H100"},
        ID: {
            "container.id": ID,
            "container.name": NAMED.container,
            "hw.id": "GPU-shared",
            "hw.model": "H100",
            "k8s.namespace.name": NAMED.namespace,
            "k8s.pod.name": NAMED.name,
            "k8s.pod.uid": NAMED.uid,
            "k8s.container.name": NAMED.container,
        },
        STEP: {
            "container.id": STEP,
            "container.name": "slurm-77.0",
            "hw.id": "MIG-one",
            "hw.model": "H100",
            "hw.parent": "GPU-cut",
            "slurm.job.id": "77",
        },
    }


def test_counts_are_those_of_the_host(export: Export) -> None:
    for device, holders in (("GPU-shared", 2), ("GPU-cut", 1), ("MIG-one", 1), ("GPU-free", 0)):
        assert export.value("gpu_cgroup.device.container.count", {"hw.id": device}) == holders
    for access, count in {"explicit": 3, "unrestricted": 0, "none": 0, "unknown": 0, "excluded": 0}.items():
        assert export.value("gpu_cgroup.container.count", {"gpu_cgroup.access": access}) == count
    assert {point.value for point in export.of("gpu_cgroup.cycle.problems")} == {0}
    assert {point.value for point in export.of("gpu_cgroup.up")} == {1}


def test_shares_are_those_of_the_processes(export: Export) -> None:
    for name, memory, processes in ((DOCKER, 6 * GIB, 2), (ID, 0, 0), (STEP, GIB, 1)):
        assert export.value("container.gpu.memory.usage", {"container.id": name}) == memory
        assert export.value("container.gpu.process.count", {"container.id": name}) == processes
    for device, rest in (("GPU-shared", 3 * GIB), ("GPU-cut", 2 * GIB), ("MIG-one", 0), ("GPU-free", 0)):
        assert export.value("gpu_cgroup.device.memory.unattributed", {"hw.id": device}) == rest
    for device, fraction in (("GPU-shared", 1), ("GPU-cut", 1), ("MIG-one", 1 / 7), ("GPU-free", 1)):
        assert export.value("gpu_cgroup.device.fraction", {"hw.id": device}) == fraction


def test_the_time_of_all_containers_is_that_of_all_accounts(export: Export) -> None:
    for state in ("active", "idle", "unknown"):
        held, used = (
            sum(point.value for point in export.of(metric, {"container.gpu.state": state}))
            for metric in ("container.gpu.time", "gpu_cgroup.usage.time")
        )
        assert held == pytest.approx(used)


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
