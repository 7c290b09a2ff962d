# SPDX-License-Identifier: Apache-2.0
"""OTLP as it arrives: exports in the JSON of the collector's file exporter, and a receiver that answers as it is told.

    export.value("hw.gpu.memory.usage", {"hw.id": "GPU-a"})

Parsed by the words of opentelemetry-proto's JSON mapping (64-bit integers are strings), not by the SDK.
"""

from __future__ import annotations

import gzip
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CUMULATIVE: Final = 2
DELTA: Final = 1
"""AggregationTemporality of metrics.proto."""


@dataclass(frozen=True, slots=True)
class Stream:
    """What OTLP says of a metric beside its points."""

    name: str
    unit: str
    description: str
    shape: str
    """`sum` or `gauge`."""
    monotonic: bool
    temporality: int | None
    """None for a gauge."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point, and what it came in."""

    stream: Stream
    attributes: Mapping[str, Any]
    value: int | float
    """An int or a float, as it was sent."""
    started_at: int
    """Nanoseconds since the epoch; 0 is none."""
    taken_at: int
    resource: Mapping[str, Any]
    scope: tuple[str, str, str]
    """Name, version and schema URL."""


@dataclass(frozen=True, slots=True)
class Export:
    """One request."""

    points: tuple[Point, ...]

    def of(self, metric: str, having: Mapping[str, str] | None = None) -> list[Point]:
        """The points of a metric that bear these attributes, on themselves or on their resource."""
        wanted = (having or {}).items()
        return [
            point
            for point in self.points
            if point.stream.name == metric and wanted <= {**point.resource, **point.attributes}.items()
        ]

    def value(self, metric: str, having: Mapping[str, str] | None = None) -> int | float | None:
        """The value of the one point there is, None when there is none."""
        points = self.of(metric, having)
        assert len(points) <= 1, points
        return points[0].value if points else None


def parse_export(line: bytes) -> Export:
    """One line of the file exporter."""
    return Export(tuple(_points(json.loads(line))))


def _points(request: Mapping[str, Any]) -> Iterator[Point]:
    for part in request["resourceMetrics"]:
        resource = _attributes(part.get("resource", {}))
        for scope_part in part["scopeMetrics"]:
            named = scope_part.get("scope", {})
            scope = (named.get("name", ""), named.get("version", ""), scope_part.get("schemaUrl", ""))
            for metric in scope_part["metrics"]:
                yield from _metric_points(metric, resource, scope)


def _metric_points(
    metric: Mapping[str, Any], resource: Mapping[str, Any], scope: tuple[str, str, str]
) -> Iterator[Point]:
    shape = "sum" if "sum" in metric else "gauge"
    data = metric[shape]
    stream = Stream(
        name=metric["name"],
        unit=metric["unit"],
        description=metric["description"],
        shape=shape,
        monotonic=data.get("isMonotonic", False),
        temporality=data.get("aggregationTemporality"),
    )
    for point in data["dataPoints"]:
        value = int(point["asInt"]) if "asInt" in point else float(point["asDouble"])
        started_at, taken_at = (int(point.get(name, 0)) for name in ("startTimeUnixNano", "timeUnixNano"))
        yield Point(stream, _attributes(point), value, started_at, taken_at, resource, scope)


def _attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes by key; each value is an object with its type as its only key."""
    return {item["key"]: next(iter(item["value"].values())) for item in holder.get("attributes", ())}


@dataclass(frozen=True, slots=True)
class Request:
    """One request, its body decompressed."""

    path: str
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes


@dataclass
class Receiver:
    """An HTTP server in OTLP's place that keeps what it gets and answers every request with `status`."""

    status: int = 200
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        """Its root, without a slash at the end."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers["content-length"]))
            if headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.requests.append(Request(self.path, headers, body))
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is said: pytest shows what the test asserts."""

    return Handler
