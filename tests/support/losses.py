# SPDX-License-Identifier: Apache-2.0
"""Cycles that look at containers for lost GPUs alone: real rules and real evidence, without a driver.

watcher = Watcher(minors=(0, 1))
watcher.cycle([container])   # minors and reasons of what each has lost, by its key
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.syscall import Bpf
from otel_gpu_cgroup.cgroup.evidence import Evidence
from otel_gpu_cgroup.cgroup.reader import PolicyReader
from otel_gpu_cgroup.errors import Gone
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import Gpu, GpuUuid
from otel_gpu_cgroup.nvidia.judgement import judge
from otel_gpu_cgroup.nvidia.lost import LostWatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from otel_gpu_cgroup.model import Container

Losses = dict[int, str]
"""Reasons by minor."""
_MAJORS: Final = (1, 4, 5, 10, 136, 195, 236)


class Watcher:
    """One agent's memory of the containers that it has watched."""

    def __init__(self, minors: Sequence[int], host: HostPaths | None = None) -> None:
        """The host has GPUs of these minors."""
        host = host or HostPaths()
        self.gpus = tuple(Gpu(minor, GpuUuid(f"GPU-{minor}")) for minor in minors)
        self.watch = LostWatch(Evidence(host, Bpf()))
        self.watched: set[str] = set()
        """The keys of all that were ever watched."""
        self.denials: set[str] = set()
        """The keys of those that were ever denied a GPU."""
        self._policies = PolicyReader(host)

    def cycle(self, containers: Iterable[Container]) -> dict[str, Losses]:
        """Only containers that have lost something are in it."""
        self._policies.begin_cycle()
        self.watch.begin_cycle()
        losses = {}
        for container in containers:
            if lost := self._losses(container):
                losses[container.key] = lost
        return losses

    def cycles(self, count: int, container: Container) -> list[Losses]:
        """What this container has lost in each of so many cycles."""
        return [self.cycle([container]).get(container.key, {}) for _ in range(count)]

    def _losses(self, container: Container) -> Losses:
        try:
            policy = self._policies.read(container)
        except Gone:
            return {}
        judgement = judge(policy, self.gpus)
        self.watched.add(container.key)
        if judgement.denied:
            self.denials.add(container.key)
        return {loss.gpu.minor: loss.reason for loss in self.watch.watch(container, policy, judgement)}


def as_systemd_rewrites(rules: str, *, expanded: bool = False) -> list[str]:
    """What a systemd that reloads its units puts in place of a list that a hook has added GPUs to.

    `expanded` as systemd 239 does it, which spells a rule for every character device as one for each major.
    """
    kept = [rule for rule in rules.splitlines() if not rule.startswith(("c 195:", "c *:*"))]
    return [*kept, *(f"c {major}:* m" for major in (_MAJORS if expanded else (195,)))]


def reload(cgroup: Path, rules: Sequence[str]) -> None:
    """Write a v1 cgroup's rules anew."""
    (cgroup / "devices.deny").write_text("a")
    for rule in rules:
        (cgroup / "devices.allow").write_text(rule)
