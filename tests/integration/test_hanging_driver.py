# SPDX-License-Identifier: Apache-2.0
"""A driver that does not answer any more costs its values: never access, never the agent."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from tests.fakes.fake_nvml import FakeGpu, FakeMemory, World
from tests.integration.host_tree import write_host
from tests.support.eventually import eventually
from tests.support.runc import DENY_ALL, RuncSpec, docker_cgroup, need_runc, runc_container

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.conftest import PushingAgent, StartAgent
    from tests.support.agent import Driver
    from tests.support.otlp import Export

GPU: Final = FakeGpu(uuid="GPU-5a5ed000-0000-4000-8000-000000000001", minor=23, memory=FakeMemory(used=1))
HANGING: Final = World(gpus=(replace(GPU, memory=FakeMemory(used=2)),), hangs=("nvmlDeviceGetMemoryInfo*",))
RELEASED: Final = World(gpus=(replace(GPU, memory=FakeMemory(used=3)),))
DEVICE_VALUES: Final = (
    "container.accelerator.memory.total",
    "container.accelerator.memory.used",
    "container.accelerator.duty_cycle",
    "hw.gpu.memory.limit",
    "hw.gpu.memory.usage",
    "hw.gpu.memory.utilization",
    "hw.gpu.utilization",
)


@pytest.fixture
def start_container(tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Starts a container that may open the GPU; returns its id."""
    need_runc()
    with ExitStack() as stack:

        def start() -> str:
            rules = (DENY_ALL, f"allow c 195:{GPU.minor} rw")
            container = stack.enter_context(runc_container(tmp_path, RuncSpec(cgroup=docker_cgroup(), rules=rules)))
            return container.cgroup.rpartition("/")[2]

        yield start


def _used(export: Export) -> int | float | None:
    return export.value("hw.gpu.memory.usage", {"hw.id": GPU.uuid})


def _wait_for(agent: PushingAgent, holds: Callable[[Export], object]) -> list[Export]:
    """All exports from the first on of which it holds."""

    def found() -> list[Export] | None:
        exports = agent.exports()
        first = next((place for place, export in enumerate(exports) if holds(export)), None)
        return None if first is None else exports[first:]

    return eventually(found, agent.log)


def _hang(agent: PushingAgent, driver: Driver) -> Export:
    """Let the driver hang; returns the first export without its values."""
    driver.set(World(gpus=(GPU,)))
    _wait_for(agent, lambda export: _used(export) == 1)
    driver.set(HANGING)
    return _wait_for(agent, lambda export: _used(export) is None)[0]


def _age(export: Export, stage: str) -> float:
    age = export.value("gpu_cgroup.cycle.age", {"gpu_cgroup.stage": stage})
    assert age is not None
    return age


def test_while_the_driver_hangs_access_goes_on_and_nothing_else_is_said_of_devices(
    start_agent: StartAgent, driver: Driver, start_container: Callable[[], str]
) -> None:
    before = start_container()
    driver.set(World(gpus=(GPU,)))
    agent = start_agent(**driver.variables())
    first = _hang(agent, driver)
    during = start_container()

    access = "container.gpu.access", {"container.id": during, "hw.id": GPU.uuid}
    _wait_for(agent, lambda export: export.value(*access) == 1)
    agent.wait_for(2)
    hanging = agent.exports()[agent.exports().index(first) :]
    for export in hanging:
        assert export.value("container.gpu.access", {"container.id": before, "hw.id": GPU.uuid}) == 1
        assert {point.stream.name for point in export.points}.isdisjoint(DEVICE_VALUES)
        assert export.value("gpu_cgroup.up", {"gpu_cgroup.stage": "nvml"}) == 0
        assert export.value("gpu_cgroup.up", {"gpu_cgroup.stage": "policy"}) == 1
        assert export.value("gpu_cgroup.device.count", {"gpu_cgroup.device.source": "nvml"}) is None
        assert _age(export, "policy") < _age(export, "nvml")
        assert _age(export, "policy") < 1
    duration = hanging[-1].value("gpu_cgroup.cycle.duration")
    assert duration is not None
    assert duration < 1  # only the first cycle waited for the driver
    ages = [_age(export, "nvml") for export in hanging]
    assert ages == sorted(ages)
    assert ages[-1] > 2

    seconds = agent.end()
    assert seconds < 1 * 3, agent.log()
    assert driver.counts()["in_flight"] == 1  # the call never came back
    assert driver.counts()["shutdown_while_in_flight"] == 0
    assert len(agent.lines("warning", "stage=nvml")) == 1


def test_when_the_driver_answers_again_the_values_return_and_none_is_stale(
    start_agent: StartAgent, driver: Driver, tmp_path: Path
) -> None:
    root = write_host(tmp_path / "host", {f"/docker/{'c0' * 32}": f"c 195:{GPU.minor} rw\n"})
    driver.set(World(gpus=(GPU,)))
    agent = start_agent("--host-root", os.fspath(root), **driver.variables())
    _hang(agent, driver)
    driver.set(RELEASED)
    [export, *_] = _wait_for(agent, lambda export: _used(export) == 3)
    assert export.value("container.accelerator.memory.used", {"hw.id": GPU.uuid}) == 3
    assert export.value("gpu_cgroup.up", {"gpu_cgroup.stage": "nvml"}) == 1
    # what the hanging call brought in the end, 2 or 3, came too late for its own cycle
    used = [_used(export) for export in agent.exports()]
    assert used == sorted(used, key=lambda value: (value != 1, value is not None))
    assert set(used) == {1, None, 3}
    agent.end()
    assert driver.counts()["shutdown_while_in_flight"] == 0
    assert agent.lines("info solved", "stage=nvml")


def test_a_driver_that_hangs_from_the_start_delays_neither_containers_nor_the_end(
    start_agent: StartAgent, driver: Driver, tmp_path: Path
) -> None:
    root = write_host(tmp_path / "host", {f"/docker/{'c0' * 32}": f"c 195:{GPU.minor} rw\n"})
    driver.set(World(gpus=(GPU,), hangs=("nvmlInitWithFlags",)))
    agent = start_agent("--host-root", os.fspath(root), **driver.variables())
    [export, *_] = eventually(agent.exports, agent.log)
    assert export.value("gpu_cgroup.container.count", {"gpu_cgroup.access": "explicit"}) == 1
    assert agent.end() < 1 * 3, agent.log()
    assert driver.counts()["shutdown_while_in_flight"] == 0


def test_the_number_of_nvml_calls_depends_on_devices_alone(
    start_agent: StartAgent, driver: Driver, tmp_path: Path
) -> None:
    """Were NVML called in callbacks, or for each container, more containers would mean more calls."""
    agents = {}
    for count in (1, 20):
        containers = {f"/docker/{number:064x}": f"c 195:{GPU.minor} rw\n" for number in range(count)}
        root = write_host(tmp_path / f"host-{count}", containers)
        own = replace(driver, counts_file=tmp_path / f"counts-{count}")
        own.set(World(gpus=(GPU, replace(GPU, uuid="GPU-b", minor=GPU.minor + 1))))
        agents[count] = own, start_agent("--host-root", os.fspath(root), **own.variables())
    calls = {count: _calls_per_pass(*agent, count) for count, agent in agents.items()}
    assert calls[1] == calls[20]
    assert calls[1]["nvmlDeviceGetMemoryInfo_v2"] == 2  # once for each GPU
    assert sum(calls[1].values()) <= 20 * 2


def _calls_per_pass(driver: Driver, agent: PushingAgent, containers: int) -> dict[str, float]:
    """Of every function that is called in each pass, after some of them."""
    _wait_for(agent, lambda export: len(export.of("container.gpu.access")) == containers)
    agent.wait_for(1)
    agent.end()
    passes = driver.passes()
    assert passes > 2  # more than there are GPUs, which are identified once
    return {name: number / passes for name, number in driver.counts().items() if number >= passes}
