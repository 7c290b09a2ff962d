# SPDX-License-Identifier: Apache-2.0
"""GPUs that fail, that lack something, that come and go: each costs itself alone."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import pytest

from tests.fakes.fake_nvml import GIB, FakeGpu, FakeMemory, Recorded, Steady, World
from tests.integration.host_tree import write_host
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import PushingAgent, StartAgent
    from tests.support.agent import Driver
    from tests.support.otlp import Export

CONTAINER: Final = "c0" * 32
FIRST: Final = FakeGpu(uuid="GPU-first", minor=4, memory=FakeMemory(used=GIB), utilization=17, samples=Steady((60,)))
SECOND: Final = FakeGpu(uuid="GPU-second", minor=3, memory=FakeMemory(used=2 * GIB), samples=Steady((30,)))
LOST: Final = 15
"""NVML_ERROR_GPU_IS_LOST."""


class StartOnHost(Protocol):
    """Starts an agent on a host whose one container may open the GPUs with the minor numbers 3 and 4."""

    def __call__(self, *gpus: FakeGpu) -> PushingAgent: ...


@pytest.fixture
def start(start_agent: StartAgent, driver: Driver, tmp_path: Path) -> StartOnHost:
    root = write_host(tmp_path / "host", {f"/docker/{CONTAINER}": "c 195:3 rw\nc 195:4 rw\n"})

    def start(*gpus: FakeGpu) -> PushingAgent:
        driver.set(World(gpus=gpus))
        return start_agent("--host-root", os.fspath(root), **driver.variables())

    return start


def _values(export: Export, metric: str) -> dict[str, int | float]:
    return {point.attributes["hw.id"]: point.value for point in export.of(metric)}


def _wait_for(agent: PushingAgent, metric: str, values: dict[str, int | float]) -> Export:
    return eventually(
        lambda: next((export for export in reversed(agent.exports()) if _values(export, metric) == values), None),
        agent.log,
    )


def test_a_lost_gpu_is_named_and_the_others_go_on(start: StartOnHost, driver: Driver) -> None:
    agent = start(FIRST, SECOND)
    _wait_for(agent, "hw.gpu.memory.usage", {FIRST.uuid: GIB, SECOND.uuid: 2 * GIB})
    driver.set(World(gpus=(replace(FIRST, errors={"*": LOST}), SECOND)))
    export = _wait_for(agent, "hw.gpu.memory.usage", {SECOND.uuid: 2 * GIB})
    assert _values(export, "container.accelerator.memory.used") == {SECOND.uuid: 2 * GIB}
    assert agent.lines("warning", "stage=nvml", FIRST.uuid)
    driver.set(World(gpus=(FIRST, SECOND)))
    _wait_for(agent, "hw.gpu.memory.usage", {FIRST.uuid: GIB, SECOND.uuid: 2 * GIB})


def test_what_a_gpu_does_not_support_is_absent_and_asked_once(start: StartOnHost, driver: Driver) -> None:
    utilization = ("nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates")
    memory = ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")
    agent = start(replace(FIRST, unsupported=memory), replace(SECOND, unsupported=utilization))
    agent.wait_for(2)
    export = agent.exports()[-1]
    assert _values(export, "container.accelerator.duty_cycle") == {FIRST.uuid: 60}
    assert _values(export, "container.accelerator.memory.used") == {SECOND.uuid: 2 * GIB}
    assert _values(export, "container.gpu.access") == {FIRST.uuid: 1, SECOND.uuid: 1}
    agent.end()
    counts, passes = driver.counts(), driver.passes()
    assert passes >= 3
    assert counts["nvmlDeviceGetMemoryInfo"] == 1  # of FIRST, once
    assert counts["nvmlDeviceGetMemoryInfo_v2"] == 1 + passes
    assert counts["nvmlDeviceGetUtilizationRates"] == 1  # of SECOND, once
    assert agent.lines("warning") == []


def test_an_idle_gpu_without_samples_has_the_duty_cycle_of_its_rate(start: StartOnHost) -> None:
    agent = start(replace(FIRST, samples=Recorded()), SECOND)
    duty_cycles = {FIRST.uuid: FIRST.utilization, SECOND.uuid: 30}
    assert _values(agent.flushed(), "container.accelerator.duty_cycle") == duty_cycles
    assert agent.lines("warning") == []


def test_one_query_that_fails_costs_its_value_alone(start: StartOnHost) -> None:
    agent = start(replace(FIRST, errors={"nvmlDeviceGetMemoryInfo*": 999}), SECOND)
    export = agent.flushed()
    assert _values(export, "container.accelerator.memory.used") == {SECOND.uuid: 2 * GIB}
    assert _values(export, "container.accelerator.duty_cycle") == {FIRST.uuid: 60, SECOND.uuid: 30}
    assert _values(export, "container.gpu.access") == {FIRST.uuid: 1, SECOND.uuid: 1}
    assert agent.lines("warning", "stage=nvml", FIRST.uuid, "memory")


def test_values_that_mean_nothing_are_dropped(start: StartOnHost) -> None:
    sentinel = FakeMemory(total=80 * GIB, used=0xFFFFFFFFFFFFFFFF)
    export = start(replace(FIRST, memory=sentinel, utilization=250, samples=Steady((250,))), SECOND).flushed()
    assert _values(export, "container.accelerator.memory.used") == {SECOND.uuid: 2 * GIB}
    assert _values(export, "container.accelerator.memory.total") == {FIRST.uuid: 80 * GIB, SECOND.uuid: 80 * GIB}
    assert _values(export, "container.accelerator.duty_cycle") == {SECOND.uuid: 30}
    assert _values(export, "hw.gpu.utilization") == {SECOND.uuid: 0.3}


def test_gpus_come_go_and_are_replaced_while_the_agent_runs(start: StartOnHost, driver: Driver) -> None:
    access = "container.gpu.access"
    agent = start(FIRST)
    _wait_for(agent, access, {FIRST.uuid: 1})
    driver.set(World(gpus=(SECOND, FIRST)))
    export = _wait_for(agent, access, {FIRST.uuid: 1, SECOND.uuid: 1})
    assert export.value("gpu_cgroup.device.count", {"gpu_cgroup.device.source": "nvml"}) == 2
    assert _values(export, "container.accelerator.memory.used") == {FIRST.uuid: GIB, SECOND.uuid: 2 * GIB}
    successor = replace(FIRST, uuid="GPU-successor", memory=FakeMemory(used=5 * GIB))
    driver.set(World(gpus=(SECOND, successor)))
    _wait_for(agent, "hw.gpu.memory.usage", {SECOND.uuid: 2 * GIB, successor.uuid: 5 * GIB})
    driver.set(World(gpus=(successor,)))
    _wait_for(agent, access, {successor.uuid: 1})
