# SPDX-License-Identifier: Apache-2.0
"""Reads in which cgroups this process is itself, so that an agent does not report its own container."""

from __future__ import annotations

from pathlib import PurePosixPath

from otel_gpu_cgroup.errors import HostUnreadable
from otel_gpu_cgroup.host import read_text


def parse_own_cgroups(text: str) -> frozenset[str]:
    """The cgroups that a /proc/PID/cgroup names (lines `ID:CONTROLLERS:PATH`), and all cgroups above them."""
    paths = (PurePosixPath(line.split(":", 2)[2]) for line in text.split("\n") if line.count(":") >= 2)
    return frozenset(str(path) for own in paths for path in (own, *own.parents) if str(path) != "/")


def read_own_cgroups() -> frozenset[str]:
    """Of this process; empty inside a cgroup namespace, which shows every path as /."""
    try:
        return parse_own_cgroups(read_text("/proc/self/cgroup"))
    except HostUnreadable:
        return frozenset()
