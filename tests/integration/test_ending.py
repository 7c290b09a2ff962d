# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and SIGINT: the last values are pushed, the status is 0, and no collector can hold the agent back."""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING, Final

import pytest

from tests.fakes.fake_nvml import FakeGpu, FakeMemory, World
from tests.support.collector import free_port
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import StartAgent
    from tests.support.agent import Driver
    from tests.support.collector import Collector

HOUR: Final = "3600000"
FACTOR: Final = 3
"""What a busy machine may add to a promised time."""


def _world(used: int) -> World:
    return World(gpus=(FakeGpu(uuid="GPU-a", minor=0, memory=FakeMemory(used=used)),))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_the_values_of_the_last_moment_are_pushed(
    start_agent: StartAgent, sink: Collector, driver: Driver, protocol: str, number: signal.Signals
) -> None:
    driver.set(_world(1))
    variables = {"OTEL_METRIC_EXPORT_INTERVAL": HOUR, **driver.variables()}
    if protocol == "grpc":
        variables |= {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT": sink.grpc_url}
    agent = start_agent(**variables)
    usage = "hw.gpu.memory.usage", {"hw.id": "GPU-a"}
    eventually(lambda: [export.value(*usage) for export in agent.exports()] == [1], agent.log)
    driver.set(_world(2))
    agent.end(number)
    eventually(lambda: [export.value(*usage) for export in agent.exports()] == [1, 2], agent.log)
    assert driver.counts()["references"] == 0  # the driver is let go of
    assert driver.counts()["shutdown_while_in_flight"] == 0
    assert agent.log().splitlines()[-1].endswith("info ended")


@pytest.fixture(params=["refuses", "is silent"])
def dead_address(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where nobody listens, or where somebody takes connections and never answers."""
    if request.param == "refuses":
        yield f"http://127.0.0.1:{free_port()}"
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_dead_collector_delays_the_end_by_no_more_than_the_flush_timeout(
    start_agent: StartAgent, dead_address: str, protocol: str
) -> None:
    agent = start_agent(
        "--simulate",
        "--flush-timeout",
        "1",
        OTEL_METRIC_EXPORT_INTERVAL=HOUR,
        OTEL_EXPORTER_OTLP_ENDPOINT=dead_address,
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
    )
    agent.wait_until_started()
    assert agent.end() < 1 * FACTOR
    assert "Traceback" not in agent.log()


def test_a_dead_collector_in_the_middle_of_an_export_does_so_neither(
    start_agent: StartAgent, driver: Driver, dead_address: str
) -> None:
    driver.set(_world(1))
    agent = start_agent("--flush-timeout", "1", OTEL_EXPORTER_OTLP_ENDPOINT=dead_address, **driver.variables())
    eventually(lambda: driver.passes() >= 2, agent.log)  # the first is made at the start, the next for an export
    assert agent.end() < 1 * FACTOR
    assert "Traceback" not in agent.log()


def test_without_an_exporter_the_agent_ends_all_the_same(start_agent: StartAgent) -> None:
    agent = start_agent("--simulate", "--exporter", "none")
    agent.wait_until_started()
    agent.end()
    assert agent.exports() == []
