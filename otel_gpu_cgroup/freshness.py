# SPDX-License-Identifier: Apache-2.0
"""Answers from one cycle for everybody who asks within its age, and from none rather than from an old one."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

from otel_gpu_cgroup.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_gpu_cgroup.model import NodeStats

_log: Final = logging.getLogger(__name__)


class StatsSource(Protocol):
    """Where sealed cycles come from."""

    @property
    def last(self) -> NodeStats | None:
        """The last sealed cycle, however old; None before the first."""
        ...

    def expire(self) -> None:
        """Let the last cycle serve nobody from now on, however young it is."""
        ...

    def latest(self, timeout: float) -> NodeStats | None:
        """A cycle that is fresh enough, waiting for at most `timeout` seconds; None when there is none by then."""
        ...


class Freshness:
    """Runs cycles on a thread of their own, at most one in each `max_age` seconds."""

    def __init__(self, collect: Callable[[], NodeStats], max_age: float) -> None:
        self._collect = collect
        self._max_age = max_age
        self._worker: Worker[NodeStats] = Worker("gpu-cgroup-cycle")
        self._last: NodeStats | None = None
        self._expired: NodeStats | None = None
        self._late = False

    @property
    def last(self) -> NodeStats | None:
        """The last sealed cycle, however old; None before the first."""
        return self._last

    def expire(self) -> None:
        """Let the last cycle serve nobody from now on, however young it is."""
        self._expired = self._last

    def latest(self, timeout: float) -> NodeStats | None:
        """The last cycle if it is young enough, else the next one, unless that takes longer than `timeout` seconds."""
        last = self._last
        if last is not None and last is not self._expired and time.monotonic() - last.sealed_at <= self._max_age:
            return last
        stats = self._worker.ask(self._collect, timeout)
        self._note(late=stats is None)
        if stats is not None:
            self._last = stats
        return stats

    def _note(self, *, late: bool) -> None:
        """Say it when cycles cease to end, and when they end again."""
        if late is not self._late:
            self._late = late
            if late:
                _log.warning("a cycle has not ended in time: nothing but its age is reported until one does")
            else:
                _log.info("cycles end in time")
