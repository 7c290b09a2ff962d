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
    """The collections of all readers, each on a thread of its own, which sees its own cycle from begin to begin.

    Only `begin` waits; no method raises because of the host or the driver.
    """

    def __init__(self, source: StatsSource, patience: float) -> None:
        """Wait for a cycle for at most `patience` seconds a collection."""
        self._source = source
        self._patience = patience
        self._fixed = threading.local()
        self._lock = threading.Lock()
        self._callbacks = Callbacks()
        self._problems: Counter[Stage] = Counter()
        self._noted: NodeStats | None = None

    @property
    def stats(self) -> NodeStats | None:
        """The cycle of this thread's collection; None when there is none."""
        stats: NodeStats | None = getattr(self._fixed, "stats", None)
        return stats

    def begin(self, timeout: float) -> None:
        """Fix the cycle of the collection that begins, waiting no longer than half of its own timeout (seconds)."""
        stats = self._source.latest(min(self._patience, timeout / 2))
        self._fixed.stats = stats
        with self._lock:
            if stats is not None and stats is not self._noted:
                self._callbacks.update(stats)
                self._problems.update(problem.stage for problem in stats.problems)
                self._noted = stats

    def health(self) -> Health:
        """What the self-metrics say."""
        with self._lock:
            return observe_health(self.stats, self._source.last, self._problems, time.monotonic())

    def observe_containers(self, instrument: ContainerInstrument) -> list[Point]:
        """The points of one container metric."""
        stats = self.stats
        with self._lock:
            return [] if stats is None else list(self._callbacks.observe_containers(instrument, stats))

    def observe_gpus(self, instrument: DeviceInstrument) -> list[Point]:
        """The points of one device metric."""
        stats = self.stats
        with self._lock:
            return [] if stats is None else list(self._callbacks.observe_gpus(instrument, stats))
