# SPDX-License-Identifier: Apache-2.0
"""A measurement in a process of its own, which says what it found as JSON on its last line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

REPOSITORY: Final = Path(__file__).resolve().parent.parent
_PATIENCE: Final = 120.0
"""Seconds."""


def ask_child(module: str, *arguments: str, environment: Mapping[str, str]) -> Any:
    """What `python -m benchmarks.MODULE` found; its stderr is shown, a failure raises CalledProcessError."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=_PATIENCE, check=True, cwd=REPOSITORY, env=dict(environment)
    )
    return json.loads(done.stdout.splitlines()[-1])
