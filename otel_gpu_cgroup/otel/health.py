# SPDX-License-Identifier: Apache-2.0
"""Pure: what this software reports of itself, out of the last cycles."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from otel_gpu_cgroup.model import AccessClass, NodeStats, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Health:
    """What the self-metrics say in one collection; what is not known is missing."""

    up: Mapping[Stage, bool] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    containers: Mapping[str, int] = field(default_factory=dict)
    duration: float | None = None
    ages: Mapping[Stage, float] = field(default_factory=dict)
    problems: Mapping[Stage, int] = field(default_factory=dict)


def observe_health(
    stats: NodeStats | None, last: NodeStats | None, problems: Mapping[Stage, int], now: float
) -> Health:
    """Health from this collection's cycle (None: there is none), the last one, and all problems so far.

    `now` is monotonic seconds. Ages go on while cycles fail to come.
    """
    counted = {stage: problems.get(stage, 0) for stage in Stage}
    if stats is None:
        return Health(ages=_ages(last, now), problems=counted)
    return Health(
        up=stats.up,
        devices=_devices(stats),
        containers=_containers(stats),
        duration=stats.duration,
        ages=_ages(stats, now),
        problems=counted,
    )


def _devices(stats: NodeStats) -> dict[str, int]:
    counts = {"pci": stats.inventory.pci_gpus, "nvml": stats.inventory.nvml_gpus}
    return {source: count for source, count in counts.items() if count is not None}


def _containers(stats: NodeStats) -> dict[str, int]:
    """By class; nothing where containers could not be looked for."""
    if not stats.up.get(Stage.DISCOVERY, False):
        return {}
    counts = Counter(report.access for report in stats.containers)
    return {access.value: counts[access] for access in AccessClass}


def _ages(stats: NodeStats | None, now: float) -> dict[Stage, float]:
    if stats is None:
        return {}
    ages = {Stage.POLICY: now - stats.sealed_at}
    if stats.inventory.nvml_finished_at is not None:
        ages[Stage.NVML] = now - stats.inventory.nvml_finished_at
    return ages
