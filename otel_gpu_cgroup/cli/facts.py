# SPDX-License-Identifier: Apache-2.0
"""Pure: what `doctor` found, and the form of its checks.

A check fails when answers are wrong or missing for it; it warns when something less is lost. A host without a GPU is
no failure.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from otel_gpu_cgroup.model import CgroupLayout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_gpu_cgroup.model import NodeStats, Stage


class Result(enum.StrEnum):
    """What a check came to."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    NOT_APPLICABLE = "does not apply"


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was checked, what that means, and what to do; no cure where nothing is to do."""

    check: str
    result: Result
    message: str
    cure: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found on the host and in this process."""

    stats: NodeStats
    """One cycle."""
    layout: CgroupLayout = field(default_factory=CgroupLayout)
    layout_trouble: str | None = None
    simulated: bool = False
    capabilities: frozenset[str] = frozenset()
    """The effective ones of this process, such as CAP_SYS_ADMIN, if its user namespace is the host's."""
    root_programs: int | None = None
    """Device programs in effect on the root of cgroup2; None when the kernel was not asked, or refused."""
    programs_trouble: str | None = None
    jit_harden: int | None = None
    kptr_restrict: int | None = None
    gpu_files: int = 0
    """GPUs under the host's /proc/driver/nvidia."""
    missing_nodes: tuple[str, ...] = ()
    """Of the device nodes that the known GPUs and instances need."""
    name_places: tuple[str, ...] = ()
    """The folders of this host in which kubelet and engines leave the names of containers."""
    in_host_pid_namespace: bool = True
    packages: Mapping[str, str | None] = field(default_factory=dict)
    """Versions of what the agent needs; None for what is not installed."""


def problems_of(stats: NodeStats, stage: Stage) -> str:
    """The first problem of a stage, and how many more there are; empty without one."""
    found = [problem for problem in stats.problems if problem.stage is stage]
    if not found:
        return ""
    about = "" if found[0].subject == stage.upper() else f"{found[0].subject}: "
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{about}{found[0].message}{more}"
