# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a real collector that writes down what arrives, a fake driver, and agents between the two."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.integration.host_tree import write_host
from tests.support.agent import Agent, Driver
from tests.support.collector import SINK_CONFIG, Collector, collector_binary
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.otlp import Export


class PushingAgent(Agent):
    """An agent, and what of it has arrived."""

    sink: Collector

    def exports(self) -> list[Export]:
        """What has arrived, oldest first."""
        return self.sink.exports(self.id)

    def wait_for(self, count: int = 1) -> list[Export]:
        """That many exports, or more, of those that have not arrived yet."""
        before = len(self.exports())

        def arrived() -> list[Export] | None:
            new = self.exports()[before:]
            return new if len(new) >= count else None

        return eventually(arrived, self.log)

    def flushed(self) -> Export:
        """The last export, after it was told to end once its first one had arrived."""
        first = len(eventually(self.exports, self.log))
        self.end()
        return eventually(lambda: self.exports()[first:], self.log)[-1]


class StartAgent(Protocol):
    """Starts an agent; the keywords are environment variables."""

    def __call__(self, *options: str, **variables: str) -> PushingAgent: ...


@pytest.fixture(scope="session")
def otelcol() -> Path:
    return collector_binary()


@pytest.fixture(scope="session")
def sink(otelcol: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with Collector(otelcol, SINK_CONFIG, tmp_path_factory.mktemp("sink")) as collector:
        yield collector


@pytest.fixture
def driver(fake_library_dir: Path, tmp_path: Path) -> Driver:
    """A fake driver; it comes when a world is set."""
    return Driver(fake_library_dir, tmp_path / "world", tmp_path / "counts")


@pytest.fixture
def bare_host(tmp_path: Path) -> str:
    """A root without containers, for tests that must not hear of those that run on this machine."""
    return os.fspath(write_host(tmp_path / "bare-host", {}))


@pytest.fixture
def start_agent(sink: Collector, tmp_path: Path) -> Iterator[StartAgent]:
    """By default every second and over HTTP; what still runs in the end is killed."""
    started: list[PushingAgent] = []

    def start(*options: str, **variables: str) -> PushingAgent:
        chosen = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": sink.http_url,
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
            **variables,
        }
        agent = PushingAgent(tmp_path, options, chosen)
        agent.sink = sink
        started.append(agent)
        return agent

    yield start
    for agent in started:
        agent.kill()
