# SPDX-License-Identifier: Apache-2.0
"""`once`: what is true now, printed: one cycle, or as many as it takes to tell (see looks.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cli.looks import look
from otel_gpu_cgroup.cli.overview import render_table
from otel_gpu_cgroup.cli.render import render_json
from otel_gpu_cgroup.compose import open_cycle, open_host
from otel_gpu_cgroup.settings import OutputFormat

if TYPE_CHECKING:
    from otel_gpu_cgroup.settings import Settings

_DRIVER_TIMEOUT: Final = 60.0
"""Seconds: eight GPUs without persistence mode take up to 3 each to initialise."""


def run_once(settings: Settings) -> int:
    """Print what the last look found; 0 whatever that is."""
    with open_host(settings) as host, open_cycle(settings, host, _DRIVER_TIMEOUT) as cycle:
        stats = look(cycle.collect)
    if settings.format is OutputFormat.JSON:
        print(render_json(stats, simulated=settings.simulate is not None))
    else:
        print(render_table(stats))
    return 0
