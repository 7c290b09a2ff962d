# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from otel_gpu_cgroup.cli.logs import LineFormatter, ProblemLog
from otel_gpu_cgroup.model import Problem, Stage
from tests.support.stats import node

if TYPE_CHECKING:
    import pytest


def test_a_record_is_one_line_whatever_it_holds() -> None:
    record = logging.LogRecord("x", logging.WARNING, "f", 1, "read %s", ("a\nb\x1b[2J",), None)
    record.created = 0.5
    assert LineFormatter().format(record) == r"1970-01-01T00:00:00.500+00:00 warning read a\nb\x1b[2J"


def test_a_problem_is_logged_when_it_comes_and_when_it_has_gone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log, down = ProblemLog(), Problem(Stage.NVML, "NVML", "no driver")
    said = []
    for problems in ([down], [down], [], [down]):
        caplog.clear()
        log.note(node(problems=problems))
        said.append([record.getMessage() for record in caplog.records])
    assert said == [
        ["no driver stage=nvml subject='NVML'"],
        [],
        ["solved: no driver stage=nvml subject='NVML'"],
        ["no driver stage=nvml subject='NVML'"],
    ]
