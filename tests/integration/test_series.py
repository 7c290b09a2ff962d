# SPDX-License-Identifier: Apache-2.0
"""When the series of real cycles begin and end, as the collector gets them."""

from __future__ import annotations

import os
import shutil
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from tests.fakes.fake_nvml import FakeGpu, Steady, World
from tests.integration.host_tree import devices_list, write_host
from tests.support.eventually import eventually
from tests.support.name_host import ID, UID, NameHost
from tests.support.otlp import DELTA

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import StartAgent
    from tests.support.agent import Driver
    from tests.support.otlp import Export, Point

DOCKER: Final = "d0" * 32
POD: Final = f"/kubepods/burstable/pod{UID}/{ID}"
RULES: Final = "c 195:1 rw\n"
WORLD: Final = World(gpus=(FakeGpu(uuid="GPU-a", minor=1, samples=Steady((25,))),))
ACCESS: Final = "container.gpu.access"
TIME: Final = "container.gpu.time"


def unknown(exports: list[Export], container: str) -> list[Point]:
    """Nobody's processes are on the GPU; what the driver's samples do not cover is unknown."""
    having = {"container.id": container, "container.gpu.state": "unknown"}
    return [point for export in exports for point in export.of(TIME, having)]


@pytest.fixture
def root(driver: Driver, tmp_path: Path) -> Path:
    driver.set(WORLD)
    return write_host(tmp_path / "host", {f"/docker/{DOCKER}": RULES})


def test_a_container_that_has_ended_has_one_last_time(start_agent: StartAgent, driver: Driver, root: Path) -> None:
    agent = start_agent("--host-root", os.fspath(root), **driver.variables())
    agent.wait_for(2)
    shutil.rmtree(devices_list(root, f"/docker/{DOCKER}").parent)
    having = {"container.id": DOCKER}
    exports = eventually(lambda: found if not (found := agent.exports())[-1].of(TIME, having) else None, agent.log)
    without_access = [export for export in exports if not export.of(ACCESS, having)]
    [last] = [export for export in without_access if export.of(TIME, having)]
    assert last is without_access[0]
    totals = [sum(point.value for point in export.of(TIME, having)) for export in exports if export.of(TIME, having)]
    assert totals == sorted(totals)
    assert totals[-1] > totals[-2]
    begun = {point.started_at for export in exports for point in export.of(TIME, having)}
    assert begun == {exports[0].of(ACCESS, having)[0].taken_at}


def test_a_pod_waits_for_its_name_and_its_time_does_not(start_agent: StartAgent, driver: Driver, root: Path) -> None:
    NameHost(root).log_folder()  # kubelet is here, and has made no link yet
    agent = start_agent("--host-root", os.fspath(root), **driver.variables())
    agent.wait_for(1)
    devices_list(root, POD).parent.mkdir(parents=True)
    devices_list(root, POD).write_text(RULES)
    having = {"container.id": ID}
    points = eventually(lambda: [p for export in agent.exports() for p in export.of(TIME, having)], agent.log)
    exports = agent.exports()
    first = next(export for export in exports if export.of(ACCESS, having))
    began = points[0].started_at
    waited = [export for export in exports if began <= _taken_at(export) < _taken_at(first)]
    assert len(waited) == 2
    assert _taken_at(waited[0]) == began
    assert sum(point.value for point in points[:3]) == pytest.approx((_taken_at(first) - began) / 1e9, abs=0.1)
    assert {"k8s.pod.name", "k8s.namespace.name"}.isdisjoint(points[0].attributes)


def test_an_agent_that_is_asked_for_deltas_sends_them(start_agent: StartAgent, driver: Driver, root: Path) -> None:
    variables = {"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta", **driver.variables()}
    agent = start_agent("--host-root", os.fspath(root), **variables)
    agent.wait_for(3)
    agent.end()
    points = unknown(agent.exports(), DOCKER)
    assert {point.stream.temporality for point in points} == {DELTA}
    assert all(before.taken_at == after.started_at for before, after in pairwise(points))
    assert points[0].value == 0


def _taken_at(export: Export) -> int:
    """Of its cycle: device metrics bear that time."""
    [time] = {point.taken_at for point in export.of("hw.gpu.memory.limit")}
    return time
