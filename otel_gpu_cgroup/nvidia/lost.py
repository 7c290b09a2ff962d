# SPDX-License-Identifier: Apache-2.0
"""Pure: which devices containers have lost, told cycle by cycle: each should be able to open them, and is denied.

A device is lost when the kernel denies it in two cycles running and the container should have it in both: it could
open it before, by a policy that granted it explicitly in two cycles running (runtimes pass through allow-all and
deny-all while they set a container up), or there is other evidence. It is lost until the kernel allows it again, or
either of them is gone. A cycle in which the kernel does not tell neither confirms a loss nor ends it, and shows none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from otel_gpu_cgroup.model import AccessClass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_gpu_cgroup.cgroup.policy import DevicePolicy
    from otel_gpu_cgroup.model import Container, Gpu
    from otel_gpu_cgroup.nvidia.judgement import Judgement

_ENOUGH: Final = 2
"""Cycles running."""
_BEFORE: Final = "it could open it before"
_ALLOWED: Final = "it may open it again"
_NO_DEVICE: Final = "the device is gone"
_NO_CONTAINER: Final = "the container has ended"


class EvidenceReading(Protocol):
    """Who looks for what shows that a container should have a device."""

    def find(self, container: Container, policy: DevicePolicy, gpus: Sequence[Gpu]) -> Mapping[Gpu, str]:
        """Why it should have these devices, which the policy denies; those without a reason are left out."""
        ...


@dataclass(frozen=True, slots=True)
class Lost:
    """A device that a container has lost."""

    gpu: Gpu
    reason: str
    """Why it should be able to open it, in words for a person."""


@dataclass(frozen=True, slots=True)
class Change:
    """The beginning or the end of a loss."""

    container: Container
    lost: Lost
    end: str | None = None
    """Why it is over, in words; None where it begins."""


_Life = tuple[str, int | None]
"""A container's key and inode: one that was made again under the same name has another inode."""
_Device = str | int
"""A device's UUID; its minor until that is known."""


class LostWatch:
    """Remembers of each container what it could open, and what it is denied although it should have it."""

    def __init__(self, evidence: EvidenceReading) -> None:
        self._evidence = evidence
        self._records: dict[_Life, _Record] = {}
        self._changes: list[Change] = []
        self._is_suspecting = False

    @property
    def is_suspecting(self) -> bool:
        """Whether a device has been denied in this cycle alone that its container should have."""
        return self._is_suspecting

    def begin_cycle(self) -> None:
        """Forget the containers that two cycles did not watch: in one they may not have been looked for at all."""
        self._is_suspecting = False
        for life, record in list(self._records.items()):
            record.unwatched += 1
            if record.unwatched > _ENOUGH:
                del self._records[life]
                self._changes += (Change(record.container, loss, _NO_CONTAINER) for loss in record.losses)

    def watch(self, container: Container, policy: DevicePolicy, judgement: Judgement) -> tuple[Lost, ...]:
        """The devices that the container has lost, after what its policy means in this cycle."""
        record = self._record(container)
        if not judgement.source.is_kernel:
            return ()
        if not record.is_settled_by(policy, judgement):
            self._changes += record.note(policy, judgement)
            if unproved := record.unproved():
                record.learn(unproved, self._evidence.find(container, policy, unproved))
            self._changes += record.conclude()
        self._is_suspecting |= record.is_suspecting
        return record.losses

    def take_changes(self) -> tuple[Change, ...]:
        """The losses that have begun or ended since this was last asked."""
        if not self._changes:
            return ()
        changes, self._changes = self._changes, []
        return tuple(changes)

    def _record(self, container: Container) -> _Record:
        life = container.key, container.inode
        record = self._records.get(life)
        if record is None:
            self._records[life] = record = _Record(container)
        record.container, record.unwatched = container, 0
        return record


@dataclass(slots=True)
class _Record:
    """What is known of one container, by device."""

    container: Container
    unwatched: int = 0
    """Cycles since it was last watched."""
    granted: dict[_Device, int] = field(default_factory=dict)
    """Cycles running in which its policy granted it explicitly; what was granted in enough of them stays here."""
    denied: dict[_Device, Gpu] = field(default_factory=dict)
    """What the last policy denies."""
    sought: set[_Device] = field(default_factory=set)
    """Those for which evidence was looked for under the last policy."""
    reasons: dict[_Device, str] = field(default_factory=dict)
    """What was found."""
    suspected: dict[_Device, int] = field(default_factory=dict)
    """Cycles running in which it was denied and should not have been."""
    lost: dict[_Device, Lost] = field(default_factory=dict)
    losses: tuple[Lost, ...] = ()
    policy: DevicePolicy | None = None
    judgement: Judgement | None = None
    """What the last cycle was told."""
    is_settled: bool = False
    """Whether another cycle that is told the same changes nothing."""

    @property
    def is_suspecting(self) -> bool:
        """Whether a loss awaits its second cycle."""
        return len(self.suspected) > len(self.lost)

    def is_settled_by(self, policy: DevicePolicy, judgement: Judgement) -> bool:
        """Whether there is nothing new in this, which is so of nearly every container in nearly every cycle."""
        return self.is_settled and judgement is self.judgement and policy is self.policy

    def note(self, policy: DevicePolicy, judgement: Judgement) -> list[Change]:
        """Take in what the policy grants and denies; the losses that are over."""
        if policy is not self.policy:
            self.sought, self.reasons = set(), {}
        self.policy, self.judgement = policy, judgement
        allowed = {_device(gpu) for gpu in judgement.gpus}
        self.denied = {_device(gpu): gpu for gpu in judgement.denied}
        kept = {device: cycles for device, cycles in self.granted.items() if cycles >= _ENOUGH}
        explicit = allowed if judgement.access is AccessClass.EXPLICIT else ()
        self.granted = kept | {device: min(self.granted.get(device, 0) + 1, _ENOUGH) for device in explicit}
        over = {device: loss for device, loss in self.lost.items() if device not in self.denied}
        self.lost = {device: loss for device, loss in self.lost.items() if device in self.denied}
        ends = ((loss, _ALLOWED if device in allowed else _NO_DEVICE) for device, loss in over.items())
        return [Change(self.container, loss, end) for loss, end in ends]

    def unproved(self) -> list[Gpu]:
        """The denied devices for which evidence is still to be looked for."""
        return [gpu for device, gpu in self.denied.items() if device not in self.sought and device not in self.lost]

    def learn(self, sought: Sequence[Gpu], reasons: Mapping[Gpu, str]) -> None:
        """Take in what was looked for, and what was found."""
        self.sought |= {_device(gpu) for gpu in sought}
        self.reasons |= {_device(gpu): reason for gpu, reason in reasons.items()}

    def conclude(self) -> list[Change]:
        """Decide what is lost; the losses that begin."""
        grounds = {device: self._ground(device) for device in self.denied}
        before = self.suspected
        self.suspected = {device: min(before.get(device, 0) + 1, _ENOUGH) for device, why in grounds.items() if why}
        begun = {
            device: Lost(self.denied[device], grounds[device])
            for device, cycles in self.suspected.items()
            if cycles >= _ENOUGH and device not in self.lost
        }
        self.lost |= begun
        self.losses = tuple(self.lost[device] for device in self.denied if device in self.lost)
        self.is_settled = not self.is_suspecting and all(cycles >= _ENOUGH for cycles in self.granted.values())
        return [Change(self.container, loss) for loss in begun.values()]

    def _ground(self, device: _Device) -> str:
        """Why it should have the device; empty where nothing says so."""
        if device in self.lost:
            return self.lost[device].reason  # whatever the evidence has become
        before = _BEFORE if self.granted.get(device, 0) >= _ENOUGH else None
        return "; ".join(filter(None, (before, self.reasons.get(device))))


def _device(gpu: Gpu) -> _Device:
    return gpu.uuid or gpu.minor
