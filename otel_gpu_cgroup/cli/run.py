# SPDX-License-Identifier: Apache-2.0
"""`run`: the agent, until it is told to end."""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cli.logs import ProblemLog
from otel_gpu_cgroup.compose import open_cycle, open_host, with_scope
from otel_gpu_cgroup.errors import MissingExtra
from otel_gpu_cgroup.freshness import Freshness

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_gpu_cgroup.cycle import Cycle
    from otel_gpu_cgroup.host import HostPaths
    from otel_gpu_cgroup.model import NodeStats
    from otel_gpu_cgroup.settings import Settings

_log: Final = logging.getLogger(__name__)
_DRIVER_TIMEOUT: Final = 4.0
"""Seconds that a cycle waits for the driver at most; a collection waits 5 for the cycle."""
_OPEN_FILES: Final = 65_536
"""More than an agent has use for on any node."""


def run_agent(settings: Settings) -> int:
    """Collect and push until SIGTERM or SIGINT, then push once more and end the process with 0."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        _log.info("OTEL_SDK_DISABLED is true: nothing to do")
        return 0
    _let_files_be_held()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with open_host(settings) as host:
        settings = with_scope(settings, host)
        with open_cycle(settings, host, _driver_timeout(settings)) as cycle:
            _push(settings, host, cycle, ended)
    return _end_process()


def _let_files_be_held() -> None:
    """Raise this process' own limit of open files as far as its user may: a cycle is cheaper while it holds them.

    The usual limit, 1024, is there for programs that wait by select(2), which nothing here does.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _end_process() -> int:
    """End with status 0 at once: a thread that hangs in the driver or in gRPC can keep an interpreter from ending."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


def _push(settings: Settings, host: HostPaths, cycle: Cycle, ended: threading.Event) -> None:
    try:
        from otel_gpu_cgroup.otel.agent import Agent
    except ImportError as error:
        raise MissingExtra("run", "agent") from error
    freshness = Freshness(_logged(cycle), max_age=settings.interval / 2)
    agent = Agent(settings, host, freshness)
    _log.info("started interval=%gs exporter=%s", settings.interval, ",".join(settings.exporter))
    ended.wait()
    cycle.hurry()
    agent.shutdown(settings.flush_timeout)
    _log.info("ended")


def _driver_timeout(settings: Settings) -> float:
    """A hanging driver must not cost a whole interval its access."""
    return min(_DRIVER_TIMEOUT, settings.interval / 4)


def _logged(cycle: Cycle) -> Callable[[], NodeStats]:
    """The cycle's collect, whose problems go to the log when they change."""
    problems = ProblemLog()

    def collect() -> NodeStats:
        stats = cycle.collect()
        problems.note(stats)
        return stats

    return collect
