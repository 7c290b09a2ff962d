# SPDX-License-Identifier: Apache-2.0
"""Pure: the join of the processes on each device with the containers that they are in.

What is a container's own is the sum over its processes; what is nobody's is the rest of the device's use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from otel_gpu_cgroup.model import OwnShare

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_gpu_cgroup.model import GpuProcess, GpuReading, GpuUuid, Ownership, ProcessOwner

T = TypeVar("T", int, float)

_TICK: Final = 0.01
"""Seconds in which the kernel counts when a process began."""
_NOTHING: Final = OwnShare(memory=0, utilization=0.0, processes=0)
_NOTHING_NOW: Final = OwnShare(memory=0, utilization=None, processes=0)
"""No process now; what others did since the previous cycle nobody can tell."""

_Owned = tuple["GpuProcess", "ProcessOwner"]


@dataclass(frozen=True, slots=True)
class _Device:
    """One device whose processes could be read."""

    shares: Mapping[str, OwnShare]
    """Of each container with a process on it, by the container's key."""
    nothing: OwnShare
    """Of every other container."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Who uses how much of which device, in one cycle."""

    _by_device: Mapping[GpuUuid, _Device] = field(default_factory=dict)
    _by_container: Mapping[str, frozenset[GpuUuid]] = field(default_factory=dict)

    def of(self, container: str, device: GpuUuid) -> OwnShare | None:
        """The share of the container with this key: 0 without a process there, None where nobody can tell."""
        read = self._by_device.get(device)
        return None if read is None else read.shares.get(container, read.nothing)

    def devices(self, container: str) -> frozenset[GpuUuid]:
        """The devices that a process of the container with this key is on."""
        return self._by_container.get(container, frozenset())


def own_shares(readings: Mapping[GpuUuid, GpuReading], ownership: Ownership) -> Shares:
    """Sum up, by container, the processes on every device whose process lists could be read.

    A process that has ended, or that this PID namespace does not show, is nobody's.
    """
    if not ownership.is_told:
        return Shares()
    by_device = {
        uuid: _device(_owned(reading.processes, ownership), is_told=_is_use_told(reading, ownership))
        for uuid, reading in readings.items()
        if reading.processes is not None
    }
    by_container: dict[str, set[GpuUuid]] = {}
    for uuid, device in by_device.items():
        for container in device.shares:
            by_container.setdefault(container, set()).add(uuid)
    return Shares(by_device, {container: frozenset(uuids) for container, uuids in by_container.items()})


def unattributed(used: int | None, shares: Iterable[OwnShare | None]) -> int | None:
    """Bytes in use that none of these shares holds; None where the use or a share is not told.

    None also where the shares exceed the use: then one of them is wrong, and who knows which.
    """
    if used is None:
        return None
    for share in shares:
        if share is None or share.memory is None:
            return None
        used -= share.memory
    return used if used >= 0 else None


def _is_use_told(reading: GpuReading, ownership: Ownership) -> bool:
    return ownership.are_samples_told and reading.covered is not None


def _owned(processes: Iterable[GpuProcess], ownership: Ownership) -> dict[str, list[_Owned]]:
    """The processes with their owners, by the owning container's key."""
    owned: dict[str, list[_Owned]] = {}
    for process in processes:
        owner = ownership.owners.get(process.pid)
        if owner is not None and owner.container is not None:
            owned.setdefault(owner.container, []).append((process, owner))
    return owned


def _device(owned: Mapping[str, Sequence[_Owned]], *, is_told: bool) -> _Device:
    shares = {
        container: OwnShare(
            memory=_sum([process.memory for process, _ in processes]),
            utilization=_utilization(processes) if is_told else None,
            processes=len(processes),
        )
        for container, processes in owned.items()
    }
    return _Device(shares, _NOTHING if is_told else _NOTHING_NOW)


def _utilization(processes: Sequence[_Owned]) -> float | None:
    """At most 1: the driver's samples of two processes need not be of the same time."""
    total = _sum([_own_utilization(process, owner) for process, owner in processes])
    return None if total is None else min(1.0, total)


def _own_utilization(process: GpuProcess, owner: ProcessOwner) -> float | None:
    """None where nobody can tell; 0 where the samples are of an earlier process that had this pid."""
    if process.sampled_at is not None and process.sampled_at < owner.started_at - _TICK:
        return 0.0
    return process.utilization


def _sum(values: Sequence[T | None]) -> T | int | None:
    """None where one of them is."""
    told = [value for value in values if value is not None]
    return sum(told) if len(told) == len(values) else None
