# SPDX-License-Identifier: Apache-2.0
"""What one cycle finds out, from one row to the sealed whole."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from otel_gpu_cgroup.model.containers import CgroupMode, Container
from otel_gpu_cgroup.model.devices import AccessClass, PolicySource
from otel_gpu_cgroup.model.gpus import DeviceInventory, Gpu, GpuReading, GpuUuid
from otel_gpu_cgroup.model.problems import Problem, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ProcessOwner:
    """The container that one process is in."""

    container: str | None
    """The container's key; None for a process outside of all."""
    started_at: float
    """CLOCK_BOOTTIME seconds; samples that are older are of another process that had the same pid."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Whose the processes on the GPUs are, in one cycle."""

    owners: Mapping[int, ProcessOwner] = field(default_factory=dict)
    """By pid; one that is not here has ended, began after it was listed, or is none of this PID namespace."""
    is_told: bool = True
    """Whether pids mean anything here: not where the PID namespace hides the host's processes."""
    are_samples_told: bool = True
    """Whether the pids of utilization samples do, which drivers translate only since 575.57."""
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnShare:
    """What a container's own processes use of one device."""

    memory: int | None
    """Bytes; None where the driver does not tell it of one of them."""
    utilization: float | None
    """0..1 of the time since the previous cycle; None where nobody can tell."""
    processes: int


class TimeState(enum.StrEnum):
    """What a container did with a device while it held it."""

    ACTIVE = "active"
    IDLE = "idle"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class HeldTime:
    """Seconds for which a container has held a device so far; the three add up to all of it."""

    active: float = 0.0
    idle: float = 0.0
    unknown: float = 0.0


class RowKey(NamedTuple):
    """One container and one device."""

    container: str
    device: GpuUuid


class Account(NamedTuple):
    """On whose account a device's time goes, for as long as the agent lives."""

    namespace: str | None
    """Of Kubernetes."""
    uid: int | None
    """Of the owner of a Slurm step."""
    model: str | None


@dataclass(frozen=True, slots=True)
class AcceleratorStats:
    """What one container has of one GPU: the six fields of cAdvisor's type of this name, and our own.

    Memory and duty cycle are the whole device's, not the container's share.
    """

    make: str
    model: str | None
    id: GpuUuid
    memory_total: int | None
    memory_used: int | None
    duty_cycle: float | None
    parent: GpuUuid | None = None
    """The GPU of a MIG instance."""
    own: OwnShare | None = None
    """What its own processes use; None where nobody can tell."""
    lost: bool = False
    """Whether it should be able to open it, and is denied."""
    reason: str | None = None
    """Why it should, where it is lost."""
    certain: bool = True
    """Whether the kernel said that the container may open it (or may not: `lost`); else a fallback did."""


@dataclass(slots=True)
class ContainerStats:
    """What one cycle finds out about one container; collectors fill it, `sealed` ends that."""

    container: Container
    access: AccessClass = AccessClass.UNKNOWN
    source: PolicySource = PolicySource.NOBODY
    accelerators: list[AcceleratorStats] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def sealed(self) -> ContainerReport:
        """The same, for good."""
        return ContainerReport(self.container, self.access, self.source, tuple(self.accelerators))


@dataclass(frozen=True, slots=True)
class ContainerReport:
    """What one cycle found out about one container."""

    container: Container
    access: AccessClass
    source: PolicySource
    accelerators: tuple[AcceleratorStats, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuReport:
    """One device, its reading if there is one, and the containers that may open it."""

    gpu: Gpu
    reading: GpuReading
    containers: tuple[str, ...] = ()
    """Keys of the containers with a row on it that is not lost; of a partitioned GPU, with one on an instance."""
    complete: bool = True
    """Whether these are all: not while what some container may open is unknown, nor where only one is looked at."""
    unattributed: int | None = None
    """Bytes in use on it by no container; None where the use is not known, or what some container uses of it."""


@dataclass(frozen=True, slots=True)
class NodeStats:
    """One sealed cycle."""

    taken_at: float
    """Seconds since the epoch at the cycle's start."""
    duration: float
    """Seconds."""
    sealed_at: float
    """Monotonic seconds at the cycle's end."""
    cgroup_mode: CgroupMode | None
    """None when no cgroup hierarchy was found."""
    inventory: DeviceInventory
    gpus: tuple[GpuReport, ...] = ()
    containers: tuple[ContainerReport, ...] = ()
    problems: tuple[Problem, ...] = ()
    up: Mapping[Stage, bool] = field(default_factory=dict)
    """Whether a stage works; a stage that does not apply here is absent."""
    held: Mapping[RowKey, HeldTime] = field(default_factory=dict)
    """Of every row that is not lost, and once more of those that have ended since the cycle before."""
    usage: Mapping[Account, HeldTime] = field(default_factory=dict)
    """Of all rows that ever were."""
    is_provisional: bool = False
    """Whether another cycle may tell more: a name is awaited, or a loss is to be confirmed."""

    @property
    def is_blind(self) -> bool:
        """Whether nobody could say which containers there are: those of the cycle before may live on."""
        return not self.containers and not self.up.get(Stage.DISCOVERY, False)
