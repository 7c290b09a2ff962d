# SPDX-License-Identifier: Apache-2.0
"""Kernel and driver → agent → the collector of collector-config/agent.yaml → Prometheus' scrape and a gateway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.fakes.fake_nvml import GIB, FakeGpu, FakeMemory, Steady, World
from tests.support.agent import Agent, Driver
from tests.support.collector import NODE_CONFIG, Collector
from tests.support.eventually import eventually
from tests.support.runc import DENY_ALL, RuncSpec, docker_cgroup, need_runc, runc_container

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.otlp import Export

SHARED = FakeGpu(
    uuid="GPU-5a5ed000-0000-4000-8000-000000000001",
    minor=21,
    memory=FakeMemory(total=80 * GIB, used=7 * GIB + 12345, reserved=GIB),
    utilization=3,
    samples=Steady((62,)),
)
FREE = FakeGpu(uuid="GPU-f4ee0000-0000-4000-8000-000000000000", minor=20, samples=Steady((0,)))
WORLD = World(gpus=(FREE, SHARED))  # index 0 has minor 20, index 1 minor 21
POD_UID = "0d5e4ecd-9e29-4f2f-8b0c-2d7a1de5b0a7"


@dataclass(frozen=True, slots=True)
class Line:
    """A whole line that is up: two containers that share one of two GPUs."""

    docker: str
    """The id of a container."""
    pod: str
    agent: str
    node: Collector
    gateway: Collector

    def gateway_exports(self) -> list[Export]:
        return self.gateway.exports(self.agent)


@pytest.fixture(scope="module", params=["http", "grpc"])
def line(
    request: pytest.FixtureRequest,
    otelcol: Path,
    sink: Collector,
    fake_library_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Line]:
    need_runc()
    folder = tmp_path_factory.mktemp("line")
    driver = Driver(fake_library_dir, folder / "world", folder / "counts")
    driver.set(WORLD)
    rules = (DENY_ALL, f"allow c 195:{SHARED.minor} rw", "allow c 195:255 rw")
    docker, pod = docker_cgroup(), docker_cgroup().replace("/docker/", f"/kubepods/burstable/pod{POD_UID}/")
    with (
        runc_container(folder, RuncSpec(cgroup=docker, rules=rules)),
        runc_container(folder, RuncSpec(cgroup=pod, rules=rules)),
        Collector(otelcol, NODE_CONFIG, folder, gateway=sink) as node,
    ):
        agent = Agent(folder, ["--interval", "1"], driver.variables() | _push_to(node, request.param))
        try:
            line = Line(_name(docker), _name(pod), agent.id, node, sink)
            eventually(lambda: _are_all_there(line), agent.log)
            yield line
            agent.end()
        finally:
            agent.kill()


def _are_all_there(line: Line) -> bool:
    """Series of containers whose name may yet come begin with their third cycle."""
    return all(_scraped(line, "container_gpu_access", container_id=one) for one in (line.docker, line.pod))


def _push_to(node: Collector, protocol: str) -> dict[str, str]:
    """HTTP is the default: nothing chooses it."""
    if protocol == "http":
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": node.http_url}
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": node.grpc_url, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}


def _name(cgroup: str) -> str:
    return cgroup.rpartition("/")[2]


def _scraped(line: Line, name: str, **labels: str) -> list[float]:
    return [
        sample.value for sample in line.node.scrape() if sample.name == name and labels.items() <= sample.labels.items()
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("container_accelerator_memory_used_bytes", SHARED.memory.used),
        ("container_accelerator_memory_total_bytes", SHARED.memory.total),
        ("container_accelerator_duty_cycle", 62),
        ("container_gpu_access", 1),
    ],
)
def test_prometheus_sees_the_shared_gpu_once_for_each_container(line: Line, name: str, expected: float) -> None:
    for container in (line.docker, line.pod):
        assert _scraped(line, name, container_id=container, hw_id=SHARED.uuid) == [expected]
        assert _scraped(line, name, container_id=container, hw_id=FREE.uuid) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hw_gpu_memory_limit_bytes", SHARED.memory.total),
        ("hw_gpu_memory_usage_bytes", SHARED.memory.used),
        ("hw_gpu_memory_utilization_ratio", SHARED.memory.used / SHARED.memory.total),
        ("hw_gpu_utilization_ratio", 0.62),
    ],
)
def test_prometheus_sees_the_device_once(line: Line, name: str, expected: float) -> None:
    assert _scraped(line, name, hw_id=SHARED.uuid) == [pytest.approx(expected)]


def test_prometheus_sees_how_many_containers_may_open_each_device(line: Line) -> None:
    [shared] = _scraped(line, "gpu_cgroup_device_container_count", hw_id=SHARED.uuid)
    [free] = _scraped(line, "gpu_cgroup_device_container_count", hw_id=FREE.uuid)
    assert shared == free + 2  # containers of others may open both


def test_prometheus_sees_the_agent_itself(line: Line) -> None:
    for stage in ("discovery", "policy", "nvml"):
        assert _scraped(line, "gpu_cgroup_up", gpu_cgroup_stage=stage) == [1]
    assert _scraped(line, "gpu_cgroup_device_count", gpu_cgroup_device_source="nvml") == [2]
    [explicit] = _scraped(line, "gpu_cgroup_container_count", gpu_cgroup_access="explicit")
    assert explicit >= 2  # containers of others run here, too
    [age] = _scraped(line, "gpu_cgroup_cycle_age_seconds", gpu_cgroup_stage="nvml")
    assert age >= 0
    assert _scraped(line, "gpu_cgroup_cycle_problems_total", gpu_cgroup_stage="nvml") == [0]


def test_the_label_of_the_pod_stays_on_its_series(line: Line) -> None:
    assert _scraped(line, "container_gpu_access", container_id=line.pod, k8s_pod_uid=POD_UID) == [1]
    [docker] = [sample for sample in line.node.scrape() if sample.labels.get("container_id") == line.docker][:1]
    assert docker.labels.keys() == {"container_id", "hw_id", "hw_model", "job", "instance"}


def test_the_gateway_gets_each_container_as_a_resource_of_its_own(line: Line) -> None:
    used = "container.accelerator.memory.used"
    found = eventually(lambda: [points for export in line.gateway_exports() if len(points := export.of(used)) == 2])
    by_container = {point.resource["container.id"]: point for point in found[-1]}
    assert by_container.keys() == {line.docker, line.pod}
    assert by_container[line.pod].resource["k8s.pod.uid"] == POD_UID
    assert "k8s.pod.uid" not in by_container[line.docker].resource
    for point in by_container.values():
        assert point.attributes == {"hw.id": SHARED.uuid, "hw.model": SHARED.name}
        assert point.value == SHARED.memory.used


def test_at_the_gateway_devices_and_the_agent_keep_the_agents_resource(line: Line) -> None:
    points = line.gateway_exports()[-1].points
    own = [point for point in points if point.stream.name.startswith(("hw.", "gpu_cgroup."))]
    assert own
    assert not [point for point in own if "container.id" in {**point.resource, **point.attributes}]
