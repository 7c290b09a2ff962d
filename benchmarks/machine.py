# SPDX-License-Identifier: Apache-2.0
"""Which machine measured: figures from another one are not comparable."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("opentelemetry-sdk", "nvidia-ml-py", "nvitop-exporter")


def describe_machine() -> str:
    """Name, processor, kernel, Python and load of this machine, and the versions of what is measured along."""
    cpus = os.sched_getaffinity(0)
    load = " ".join(f"{load:.1f}" for load in os.getloadavg())
    return "\n".join(
        (
            f"machine  {platform.node()}, {_processor()}, {len(cpus)} CPUs, load {load}",
            f"kernel   {platform.release()}",
            f"python   {platform.python_implementation()} {platform.python_version()}, "
            + ", ".join(f"{package} {_version(package)}" for package in _PACKAGES),
        )
    )


def _processor() -> str:
    named = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return named[1] if named else platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
