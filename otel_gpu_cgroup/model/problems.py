# SPDX-License-Identifier: Apache-2.0
"""What failed inside a cycle that went on."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Stage(enum.StrEnum):
    """Where in a cycle a Problem arose."""

    DISCOVERY = "discovery"
    POLICY = "policy"
    NVML = "nvml"
    SHARE = "share"
    NAMES = "names"
    CYCLE = "cycle"


@dataclass(frozen=True, slots=True)
class Problem:
    """One failure inside a cycle that goes on without what failed."""

    stage: Stage
    subject: str
    """What it concerns: a cgroup path, a GPU's UUID, a library."""
    message: str
