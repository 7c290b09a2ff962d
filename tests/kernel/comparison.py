# SPDX-License-Identifier: Apache-2.0
"""Compares what we read in a devices.list with what the kernel does, and counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.devices_list import parse_devices_list
from otel_gpu_cgroup.model import DeviceNode, DeviceType, Verdict, gpu_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_gpu_cgroup.model import Permission
    from tests.support.devices_cgroup import Answer

DEFAULT_ALLOW: Final = "a *:* rwm\n"
GPU_NODES: Final = tuple(gpu_node(minor) for minor in (*range(20), 255))
OTHER_NODES: Final = (
    *(DeviceNode(DeviceType.CHAR, 1, minor) for minor in (1, 3, 5)),
    *(DeviceNode(DeviceType.CHAR, major, 0) for major in (195, 507)),
    *(DeviceNode(DeviceType.BLOCK, major, 0) for major in (1, 7, 195)),
)
NODES: Final = tuple(dict.fromkeys((*GPU_NODES, *OTHER_NODES)))


@dataclass(slots=True)
class Comparison:
    """Totals of one run."""

    seed: int
    rule_sets: int = 0
    containers: int = 0
    allowed: int = 0
    denied: int = 0
    holes: int = 0
    """Denials that a list which allows by default keeps to itself."""
    disagreements: list[str] = field(default_factory=list)

    @property
    def comparisons(self) -> int:
        """Questions that were put to the kernel and to us, without the holes."""
        return self.allowed + self.denied + len(self.disagreements)

    def add(self, text: str, answers: Mapping[tuple[DeviceNode, Permission], Answer]) -> int:
        """Compare each answer of the kernel with ours; how many holes there were."""
        policy, holes = parse_devices_list(text), 0
        for (node, permission), answer in answers.items():
            assert answer.agree, f"access(2) and open(2) differ for {node} {permission}: {answer}"
            ours = policy.allows(node, permission) is Verdict.ALLOW
            if ours is answer.allowed:
                self.allowed += ours
                self.denied += not ours
            elif text == DEFAULT_ALLOW and ours:
                holes += 1
            else:
                self.disagreements.append(f"{node} {permission}: the kernel says {answer}, we read {text!r}")
        self.holes += holes
        return holes

    def lines(self) -> list[str]:
        """For the terminal."""
        verdicts = f"{self.allowed} allowed, {self.denied} denied"
        return [
            f"seed {self.seed}; {self.rule_sets} random rule sets, {self.containers} rule sets of runc containers",
            f"{self.comparisons} comparisons ({verdicts}), {len(self.disagreements)} disagreements",
            f"{self.holes} denials hidden by lists that allow by default (devices.list does not show them)",
        ]
