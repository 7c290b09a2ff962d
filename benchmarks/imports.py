# SPDX-License-Identifier: Apache-2.0
"""What `import otel_gpu_cgroup` adds to a bare interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from benchmarks.children import REPOSITORY
from benchmarks.table import Section, typical

_PROGRAM: Final = """
import sys, time
before, began = len(sys.modules), time.process_time()
import {module}
print((time.process_time() - began) * 1000, len(sys.modules) - before)
"""
_REPEATS: Final = 15
_MODULES: Final = (("otel_gpu_cgroup", 5.0), ("otel_gpu_cgroup.cli.once", None), ("otel_gpu_cgroup.otel.agent", None))
"""What is imported, and the milliseconds that it may take."""


def measure_imports() -> Section:
    """CPU time of the import statement alone, each time in a new interpreter with compiled files."""
    rows = []
    for module, most in _MODULES:
        _import(module)  # compiles what was not compiled
        times, modules = zip(*(_import(module) for _ in range(_REPEATS)), strict=True)
        rows.append(typical(f"import {module}, {modules[0]:.0f} modules", times, "ms", most))
    return Section(f"CPU time of an import over a bare interpreter, median of {_REPEATS}", tuple(rows))


def _import(module: str) -> tuple[float, float]:
    environment = {**os.environ, "PYTHONPATH": os.fspath(REPOSITORY)}
    command = [sys.executable, "-c", _PROGRAM.format(module=module)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    milliseconds, modules = said.split()
    return float(milliseconds), float(modules)
