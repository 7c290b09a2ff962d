# SPDX-License-Identifier: Apache-2.0
"""A collector that answers 200 to every OTLP request, over one kept connection."""

from __future__ import annotations

import queue
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request."""

    at: float
    """Monotonic seconds."""
    body: bytes


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.arrivals: queue.SimpleQueue[Arrival] = queue.SimpleQueue()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.arrivals.put(Arrival(time.monotonic(), body))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@dataclass(frozen=True, slots=True)
class Sink:
    """Where to send to, and what has arrived."""

    url: str
    arrivals: queue.SimpleQueue[Arrival]


@contextmanager
def open_sink() -> Iterator[Sink]:
    """A sink on a free port of this machine."""
    with _Server() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield Sink(f"http://127.0.0.1:{server.server_port}", server.arrivals)
        finally:
            server.shutdown()
