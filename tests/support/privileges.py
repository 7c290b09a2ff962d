# SPDX-License-Identifier: Apache-2.0
"""A command of the product, run by a process that has lost some capabilities."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import otel_gpu_cgroup
from tests.support.need import need


def run_without(capabilities: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it as root without these capabilities, such as sys_admin."""
    need(os.geteuid() == 0, "giving up capabilities needs some")
    need(shutil.which("setpriv"), "setpriv (of util-linux) is not installed")
    lost = ",".join(f"-{name}" for name in capabilities)
    command = ["setpriv", f"--bounding-set={lost}", f"--inh-caps={lost}", sys.executable, "-m", "otel_gpu_cgroup"]
    environment = {**os.environ, "PYTHONPATH": os.fspath(Path(otel_gpu_cgroup.__file__).parents[1])}
    return subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
