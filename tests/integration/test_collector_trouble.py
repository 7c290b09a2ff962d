# SPDX-License-Identifier: Apache-2.0
"""A collector that is down, refuses or fails costs the metrics of that time, one line, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.fakes.fake_nvml import FakeGpu, World
from tests.support.collector import SINK_CONFIG, Collector
from tests.support.eventually import eventually
from tests.support.otlp import Receiver

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import PushingAgent, StartAgent
    from tests.support.agent import Driver

FAILED: Final = ("warning", "export failed")
WORKS: Final = ("info", "exporting")


def _wait_for_another_pass(agent: PushingAgent, driver: Driver) -> None:
    """A cycle goes by; an export follows it."""
    before = driver.passes()
    eventually(lambda: driver.passes() > before, agent.log)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_metrics_come_again_when_the_collector_does(
    start_agent: StartAgent, driver: Driver, bare_host: str, otelcol: Path, tmp_path: Path, protocol: str
) -> None:
    driver.set(World(gpus=(FakeGpu(uuid="GPU-a", minor=0),)))
    with Collector(otelcol, SINK_CONFIG, tmp_path) as collector:
        agent = start_agent(
            "--host-root",
            bare_host,
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.http_url if protocol == "http/protobuf" else collector.grpc_url,
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            OTEL_EXPORTER_OTLP_TIMEOUT="2",  # time for a retry
            **driver.variables(),
        )
        agent.sink = collector
        agent.wait_for(1)
        collector.stop()
        eventually(lambda: agent.lines(*FAILED), agent.log)
        _wait_for_another_pass(agent, driver)
        collector.start()
        assert agent.wait_for(1)[0].value("hw.gpu.memory.usage", {"hw.id": "GPU-a"}) == 0
        agent.end()
    [works, failed, works_again] = agent.lines(f"protocol={protocol}")
    assert all(words in works and words in works_again for words in WORKS)
    assert all(words in failed for words in FAILED)
    assert "Connection refused" in failed
    assert len(agent.log().splitlines()) == 5  # these, and those of its start and its end


@pytest.mark.parametrize(("status", "word"), [(400, "Bad Request"), (503, "Service Unavailable")])
def test_a_receiver_that_refuses_is_logged_once_with_its_answer(
    start_agent: StartAgent, driver: Driver, bare_host: str, status: int, word: str
) -> None:
    driver.set(World(gpus=(FakeGpu(uuid="GPU-a", minor=0),)))
    with Receiver(status) as receiver:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_EXPORTER_OTLP_TIMEOUT": "2"}
        agent = start_agent("--host-root", bare_host, **variables, **driver.variables())
        eventually(lambda: agent.lines(*FAILED), agent.log)
        _wait_for_another_pass(agent, driver)
        [line] = agent.lines(*FAILED)
        assert word in line
        receiver.status = 200
        eventually(lambda: agent.lines(*WORKS), agent.log)
        agent.end()
    assert len(agent.lines(*WORKS)) == 1
    assert len(agent.log().splitlines()) == len(agent.lines("info")) + 1
