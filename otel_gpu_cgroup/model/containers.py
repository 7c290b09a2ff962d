# SPDX-License-Identifier: Apache-2.0
"""Who is on a host, and where the kernel keeps the device rules."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import NewType

CgroupPath = NewType("CgroupPath", str)
"""A cgroup's path inside its hierarchy, beginning with "/"."""


class Runtime(enum.StrEnum):
    """Who made a container, as far as its cgroup's name tells."""

    DOCKER = "docker"
    CONTAINERD = "containerd"
    CRIO = "cri-o"
    PODMAN = "podman"
    LXC = "lxc"
    """LXC, LXD or Incus."""
    NSPAWN = "nspawn"
    SLURM = "slurm"
    APPTAINER = "apptainer"
    ECS = "ecs"
    NOMAD = "nomad"
    GARDEN = "garden"
    SYSTEMD = "systemd"
    """A unit: it is reported where its access is explicit or lost, or a process of it uses a GPU."""
    UNKNOWN = "unknown"


class CgroupMode(enum.StrEnum):
    """Which controllers decide on devices here."""

    V1 = "v1"
    V2 = "v2"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class Pod:
    """The Kubernetes pod of a container; names are None until something tells them."""

    uid: str
    name: str | None = None
    namespace: str | None = None
    container: str | None = None


@dataclass(frozen=True, slots=True)
class SlurmStep:
    """Which step of which job a container is; its tasks are one."""

    step: str
    """Its number, or `batch` or `interactive`."""
    job: str | None = None
    """The job's number; None where a path has the SLUID alone and nothing else tells."""
    uid: int | None = None
    """The user whose job it is; None where nothing tells."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container on this host."""

    cgroup: CgroupPath
    """Its cgroup in the hierarchy in which it was found."""
    runtime: Runtime
    id: str | None = None
    """The runtime's id; None where the runtime gives none."""
    name: str | None = None
    """What people call it: Kubernetes' or Docker's name, the unit's, `slurm-JOB.STEP`; None until something tells."""
    pod: Pod | None = None
    slurm: SlurmStep | None = None
    devices: str | None = None
    """The folder that speaks for it in the v1 `devices` hierarchy; None where that is not mounted."""
    unified: str | None = None
    """The folder that speaks for it in the cgroup2 hierarchy; None where that is not mounted, or has none for it."""
    is_hidden: bool = False
    """Whether there must be such a folder, but which one cannot be told from this process' namespaces."""

    inode: int | None = None
    """Of its cgroup's folder: a cgroup that was removed and made again under the same path has another."""
    is_named: bool = True
    """Whether its names are final: something told them, or nothing did for long enough."""

    @property
    def key(self) -> str:
        """What tells it from every other container of the host: its id, else its cgroup."""
        return self.id or self.cgroup

    @property
    def is_unit(self) -> bool:
        """Whether it is a systemd unit, which is a container for who gives it GPUs alone."""
        return self.runtime is Runtime.SYSTEMD


@dataclass(frozen=True, slots=True)
class CgroupLayout:
    """Where the cgroup hierarchies that decide on devices are mounted."""

    devices: Path | None = None
    """The v1 `devices` hierarchy."""
    unified: Path | None = None
    """The cgroup2 hierarchy."""

    @property
    def mode(self) -> CgroupMode | None:
        """None when neither is mounted."""
        if self.devices is not None:
            return CgroupMode.HYBRID if self.unified is not None else CgroupMode.V1
        return CgroupMode.V2 if self.unified is not None else None
