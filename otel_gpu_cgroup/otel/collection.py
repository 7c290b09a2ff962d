# SPDX-License-Identifier: Apache-2.0
"""What one collection of an OpenTelemetry reader sees: one cycle, fixed by its first callback, the same for all."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from otel_gpu_cgroup.otel.health import Health, observe_health
from otel_gpu_cgroup.otel.observe import Callbacks, Point

if TYPE_CHECKING:
    from otel_gpu_cgroup.freshness import StatsSource
    from otel_gpu_cgroup.model import NodeStats, Stage
    from otel_gpu_cgroup.otel.instruments import ContainerInstrument, DeviceInstrument


class Collection:
    """The current collection. Only `begin` waits; no method raises because of the host or the driver."""

    def __init__(self, source: StatsSource, patience: float) -> None:
        """Wait for a cycle for at most `patience` seconds a collection."""
        self._source = source
        self._patience = patience
        self._lock = threading.Lock()
        self._callbacks = Callbacks()
        self._problems: Counter[Stage] = Counter()
        self._stats: NodeStats | None = None
        self._counted: NodeStats | None = None

    @property
    def taken_at(self) -> float | None:
        """When this collection's cycle began, in seconds since the epoch; None when there is no cycle."""
        stats = self._stats
        return None if stats is None else stats.taken_at

    def begin(self, timeout: float) -> None:
        """Fix the cycle of the collection that begins, waiting no longer than half of its own timeout (seconds)."""
        stats = self._source.latest(min(self._patience, timeout / 2))
        with self._lock:
            self._stats = stats
            if stats is None:
                self._callbacks.clear()
                return
            self._callbacks.update(stats)
            if stats is not self._counted:
                self._problems.update(problem.stage for problem in stats.problems)
                self._counted = stats

    def health(self) -> Health:
        """What the self-metrics say."""
        with self._lock:
            return observe_health(self._stats, self._source.last, self._problems, time.monotonic())

    def observe_containers(self, instrument: ContainerInstrument) -> list[Point]:
        """The points of one container metric."""
        with self._lock:
            return list(self._callbacks.observe_containers(instrument))

    def observe_gpus(self, instrument: DeviceInstrument) -> list[Point]:
        """The points of one device metric."""
        with self._lock:
            return list(self._callbacks.observe_gpus(instrument))
