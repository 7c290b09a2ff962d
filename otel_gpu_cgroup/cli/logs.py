# SPDX-License-Identifier: Apache-2.0
"""How this program logs: to stderr, one line each, and a cycle's problems only when they change."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.printable import printable

if TYPE_CHECKING:
    from otel_gpu_cgroup.model import NodeStats, Problem

_log: Final = logging.getLogger(__name__)
_FINDINGS: Final = "otel_gpu_cgroup.nvidia.manager"
"""Whose log tells which containers have lost a GPU."""


class LineFormatter(logging.Formatter):
    """`time level message key=value`, in UTC; whatever a message holds, it stays one line."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, with the traceback, if there is one, escaped at its end."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        text = record.getMessage()
        if record.exc_info:
            text += f" traceback={self.formatException(record.exc_info)!a}"
        return f"{time} {record.levelname.lower()} {printable(text, limit=8192)}"


def configure_logging(level: str, *, prints_findings: bool = False) -> None:
    """Send this program's log to stderr; libraries speak from the level warning on.

    Of a command that prints its findings the log does not tell them again.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("otel_gpu_cgroup").setLevel(level.upper())
    if prints_findings:
        logging.getLogger(_FINDINGS).setLevel(logging.ERROR)


class ProblemLog:
    """Logs each problem when it appears and when it has gone, not while it lasts."""

    def __init__(self) -> None:
        self._known: frozenset[Problem] = frozenset()

    def note(self, stats: NodeStats) -> None:
        """Compare this cycle's problems with those of the one before."""
        now = frozenset(stats.problems)
        for problem in stats.problems:
            if problem not in self._known:
                _log.warning("%s stage=%s subject=%a", problem.message, problem.stage, problem.subject)
        for problem in self._known - now:
            _log.info("solved: %s stage=%s subject=%a", problem.message, problem.stage, problem.subject)
        self._known = now
