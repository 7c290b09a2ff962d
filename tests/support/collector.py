# SPDX-License-Identifier: Apache-2.0
"""The real OpenTelemetry Collector as a process, by a configuration whose addresses come from the environment.

with Collector(collector_binary(), config, tmp_path) as collector:
    collector.http_url      # where to push
    collector.exports(...)  # what its file exporter has written, if the configuration has one
    collector.scrape()      # what its prometheus exporter shows, if it has one
"""

from __future__ import annotations

import http.client
import os
import random
import re
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.support.need import need
from tests.support.otlp import Export, parse_export

if TYPE_CHECKING:
    from collections.abc import Mapping

REPOSITORY: Final = Path(__file__).parents[2]
NODE_CONFIG: Final = REPOSITORY / "collector-config/agent.yaml"
SINK_CONFIG: Final = REPOSITORY / "tests/integration/sink.yaml"
"""Writes what arrives to the file that OTELCOL_FILE names."""
AGENT_KEY: Final = "test.agent"
"""The resource attribute by which exports of several agents are told apart."""

_PORTS: Final = range(20000, 32000)
"""Below those that the kernel gives to outgoing connections, one of which might take a port before the collector."""
_SAMPLE: Final = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)(?: \d+)?")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a scrape."""

    name: str
    labels: Mapping[str, str]
    value: float


def collector_binary() -> Path:
    """Built by tests/collector/build, or found where an earlier build left it; skips where that cannot be."""
    built = subprocess.run([REPOSITORY / "tests/collector/build"], capture_output=True, text=True, check=False)
    need(built.returncode == 0, f"there is no collector: {built.stderr.strip()[-400:]}")
    return Path(built.stdout.strip())


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


class Collector:
    """One collector; it can be stopped and started again at the same addresses."""

    def __init__(self, binary: Path, config: Path, folder: Path, gateway: Collector | None = None) -> None:
        """What the configuration sends to a gateway goes to that collector."""
        self._command = [os.fspath(binary), f"--config={config}"]
        self._file, self._log = folder / "exports.jsonl", folder / "collector.log"
        self._grpc, self._http, self._prometheus, self._health, telemetry = (free_port() for _ in range(5))
        self._variables = {
            "OTELCOL_OTLP_GRPC_ENDPOINT": f"127.0.0.1:{self._grpc}",
            "OTELCOL_OTLP_HTTP_ENDPOINT": f"127.0.0.1:{self._http}",
            "OTELCOL_PROMETHEUS_ENDPOINT": f"127.0.0.1:{self._prometheus}",
            "OTELCOL_HEALTH_ENDPOINT": f"127.0.0.1:{self._health}",
            "OTELCOL_TELEMETRY_PORT": str(telemetry),
            "OTELCOL_GATEWAY_ENDPOINT": gateway.grpc_url if gateway else "http://127.0.0.1:1",
            "OTELCOL_FILE": os.fspath(self._file),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._read = 0
        self._exports: list[Export] = []

    @property
    def grpc_url(self) -> str:
        """OTLP over gRPC."""
        return f"http://127.0.0.1:{self._grpc}"

    @property
    def http_url(self) -> str:
        """OTLP over HTTP, without the signal's path."""
        return f"http://127.0.0.1:{self._http}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it is ready."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=os.environ | self._variables)
        eventually(self._is_ready, self.log)

    def stop(self) -> None:
        """Let it end in its own way, with what it holds written out."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE_SECONDS)
            self._process = None

    def log(self) -> str:
        """What it has said."""
        return self._log.read_text()

    def exports(self, agent: str) -> list[Export]:
        """What one agent has sent, in the order of arrival; an export that is half written is not there yet."""
        *lines, rest = self._unread().split(b"\n")
        self._read -= len(rest)
        self._exports += map(parse_export, lines)
        return [export for export in self._exports if any(p.resource.get(AGENT_KEY) == agent for p in export.points)]

    def scrape(self) -> list[Sample]:
        """What Prometheus would get now."""
        _, text = _get(self._prometheus, "/metrics")
        return [_sample(line) for line in text.splitlines() if line and not line.startswith("#")]

    def _unread(self) -> bytes:
        if not self._file.exists():
            return b""
        with self._file.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        self._read += len(content)
        return content

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        try:
            return _get(self._health, "/")[0] == http.client.OK
        except OSError:
            return False


def _get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def _sample(line: str) -> Sample:
    match = _SAMPLE.fullmatch(line)
    assert match is not None, line
    return Sample(match["name"], dict(_LABEL.findall(match["labels"] or "")), float(match["value"]))
