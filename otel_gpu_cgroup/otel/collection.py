# SPDX-License-Identifier: Apache-2.0
"""What one collection of an OpenTelemetry reader sees: one cycle, fixed by its first callback, the same for all."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.otel.health import Health, observe_health
from otel_gpu_cgroup.otel.observe import Callbacks, Observed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_gpu_cgroup.freshness import StatsSource
    from otel_gpu_cgroup.model import NodeStats, Problem, Stage
    from otel_gpu_cgroup.otel.rows import Instrument
    from otel_gpu_cgroup.otel.series import Point

_log: Final = logging.getLogger(__name__)


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
        self._left_out: frozenset[Problem] = frozenset()
        self._newest: Observed | None = None

    @property
    def observed(self) -> Observed | None:
        """The cycle of this thread's collection; None when there is none."""
        observed: Observed | None = getattr(self._fixed, "observed", None)
        return observed

    def begin(self, timeout: float) -> None:
        """Fix the cycle of the collection that begins, waiting no longer than half of its own timeout (seconds)."""
        stats = self._source.latest(min(self._patience, timeout / 2))
        with self._lock:
            self._fixed.observed = None if stats is None else self._observe(stats)

    def health(self) -> Health:
        """What the self-metrics say."""
        observed = self.observed
        stats = None if observed is None else observed.stats
        with self._lock:
            return observe_health(stats, self._source.last, self._problems, time.monotonic())

    def points(self, instrument: Instrument) -> Sequence[Point]:
        """The points of one metric that cycles fill."""
        observed = self.observed
        return () if observed is None else observed.points(instrument)

    def _observe(self, stats: NodeStats) -> Observed:
        """The cycle's points, made once; what a newer cycle has ended does not begin again."""
        newest = self._newest
        if newest is None or (stats is not newest.stats and stats.sealed_at >= newest.stats.sealed_at):
            newest = self._newest = self._callbacks.observe(stats)
            self._problems.update(problem.stage for problem in (*stats.problems, *newest.problems))
            self._note(frozenset(newest.problems))
        return newest

    def _note(self, left_out: frozenset[Problem]) -> None:
        for problem in left_out - self._left_out:
            _log.warning("%s stage=%s subject=%a", problem.message, problem.stage, problem.subject)
        self._left_out = left_out
