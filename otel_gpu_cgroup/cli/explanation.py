# SPDX-License-Identifier: Apache-2.0
"""Pure: what is known about one container's access, as text for a person."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cli.reasons import voices
from otel_gpu_cgroup.cli.table import aligned
from otel_gpu_cgroup.cli.verdicts import PROBES, node_subjects, verdict_lines
from otel_gpu_cgroup.cli.who import who_rows
from otel_gpu_cgroup.model import READ_WRITE, DeviceInventory, Gpu, Verdict
from otel_gpu_cgroup.nvidia.share import Shares
from otel_gpu_cgroup.settings import Unrestricted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_gpu_cgroup.cgroup.policy import DevicePolicy
    from otel_gpu_cgroup.cli.reasons import Subject
    from otel_gpu_cgroup.model import Container, ContainerReport
    from otel_gpu_cgroup.nvidia.judgement import Judgement

_POSSIBLE_MINORS: Final = range(32)
"""Of the GPUs that a driver may have."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """The cgroup that the kernel asks in one hierarchy."""

    hierarchy: str
    folder: str
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that an explanation is made of, read at one time."""

    report: ContainerReport
    policy: DevicePolicy
    judgement: Judgement
    speakers: tuple[Speaker, ...] = ()
    inventory: DeviceInventory = field(default_factory=DeviceInventory)
    shares: Shares = field(default_factory=Shares)
    """What the processes of containers use of each device."""
    share_trouble: str | None = None
    """Why that is not all told."""
    name_trouble: str | None = None
    """Why its names are not all told."""
    outer: Container | None = None
    """The container that it is in."""
    exclusion: str | None = None
    """Why it is left out of all metrics; None where it is not."""
    is_reported: bool = True
    """Whether it counts as a container, which a systemd unit may not."""
    unrestricted: Unrestricted = Unrestricted.USING
    """Which rows it gets if it may open every device."""

    @property
    def container(self) -> Container:
        """Who is explained."""
        return self.report.container


def render_explanation(it: Explanation) -> str:
    """Who it is, what it may open and uses, and who says so: verdicts first, then each list or program with a say."""
    heard = voices(it.policy)
    gpus = it.inventory.gpus or _possible_gpus(it.policy)
    subjects = node_subjects(gpus)
    everything = [*subjects, *(subject for subject, _ in PROBES)]
    shown = _shown(it, subjects)
    lines = [*aligned(list(who_rows(it))), "", *verdict_lines(it, gpus, heard)]
    for voice in heard:
        lines += ["", *voice.lines(everything, shown)]
    return "\n".join(lines)


def _possible_gpus(policy: DevicePolicy) -> tuple[Gpu, ...]:
    """Where no GPU is known: those that a driver may have and the container may open, or the first."""
    every = (Gpu(minor) for minor in _POSSIBLE_MINORS)
    allowed = (gpu for gpu in every if policy.allows(gpu.node, READ_WRITE) is Verdict.ALLOW)
    return tuple(allowed) or (Gpu(0),)


def _shown(it: Explanation, subjects: Sequence[Subject]) -> Subject:
    """The node whose way through a program is shown: one that keeps a lost device, else one that may be opened."""
    verdicts = {subject: it.policy.allows(subject.node, READ_WRITE) for subject in subjects}
    lost = {row.id for row in it.report.accelerators if row.lost}
    missed = {node for gpu in it.inventory.gpus if gpu.uuid in lost for node in gpu.nodes or ()}
    denied = (one for one, verdict in verdicts.items() if one.node in missed and verdict is Verdict.DENY)
    allowed = (one for one, verdict in verdicts.items() if verdict is Verdict.ALLOW)
    return next(denied, None) or next(allowed, subjects[0])
