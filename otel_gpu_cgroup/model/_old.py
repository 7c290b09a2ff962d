# SPDX-License-Identifier: Apache-2.0
"""The values that travel through the package, from a cgroup path to a sealed cycle.

Everything here is frozen, but for `ContainerStats`, which lives inside one cycle alone. What the kernel or the
driver does not tell is `None`, never 0.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NewType

if TYPE_CHECKING:
    from collections.abc import Mapping

CgroupPath = NewType("CgroupPath", str)
"""A cgroup's path inside its hierarchy, beginning with "/"."""
GpuUuid = NewType("GpuUuid", str)
"""The driver's name of a GPU, `GPU-…`, as NVML spells it: the value of `hw.id`."""
PciAddress = NewType("PciAddress", str)
"""domain:bus:device.function in lower case with a domain of 4 digits, such as `0000:3b:00.0`."""


class DeviceType(enum.Enum):
    """The two kinds of device node that the kernel knows."""

    BLOCK = "b"
    CHAR = "c"


class Permission(enum.Flag):
    """What a request asks of a device node (BPF_DEVCG_ACC_* of linux/bpf.h)."""

    MKNOD = 1
    READ = 2
    WRITE = 4


READ_WRITE: Final = Permission.READ | Permission.WRITE
"""The one request that counts as access: NVIDIA's user space opens device nodes O_RDWR."""


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """One device node."""

    type: DeviceType
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.type.value} {self.major}:{self.minor}"


NVIDIA_MAJOR: Final = 195
"""Major number of every NVIDIA GPU node (nv-chardev-numbers.h of open-gpu-kernel-modules 595)."""


MOST_GPUS: Final = 32
"""A driver has no more (NV_MAX_DEVICES), and gives each the first free minor."""


def gpu_node(minor: int) -> DeviceNode:
    """The device node of the GPU with this minor number (never its NVML index)."""
    return DeviceNode(DeviceType.CHAR, NVIDIA_MAJOR, minor)


class Verdict(enum.Enum):
    """What a policy says of one request."""

    ALLOW = "allow"
    DENY = "deny"
    UNKNOWN = "unknown"

    def __and__(self, other: Verdict) -> Verdict:
        """Both must allow; one denial is enough; else nobody knows."""
        if Verdict.DENY in (self, other):
            return Verdict.DENY
        return self if self is other else Verdict.UNKNOWN


class AccessClass(enum.StrEnum):
    """What a container's policy means for the GPUs of this host."""

    EXPLICIT = "explicit"
    UNRESTRICTED = "unrestricted"
    NONE = "none"
    UNKNOWN = "unknown"
    EXCLUDED = "excluded"


class PolicySource(enum.StrEnum):
    """Who told what a container may open."""

    DEVICES_LIST = "devices.list"
    BPF = "bpf"
    DEVICES_LIST_AND_BPF = "devices.list+bpf"
    SYSTEMD = "systemd"
    OCI = "oci"
    NODES = "nodes"
    PROBE = "probe"
    NOBODY = "none"

    @property
    def is_kernel(self) -> bool:
        """Whether it is the kernel's own verdict; what a runtime asked for, or put into a /dev, may differ from it."""
        return self not in (PolicySource.SYSTEMD, PolicySource.OCI, PolicySource.NODES, PolicySource.NOBODY)


class Runtime(enum.StrEnum):
    """Who made a container, as far as its cgroup's name tells."""

    DOCKER = "docker"
    CONTAINERD = "containerd"
    CRIO = "cri-o"
    PODMAN = "podman"
    UNKNOWN = "unknown"


class CgroupMode(enum.StrEnum):
    """Which controllers decide on devices here."""

    V1 = "v1"
    V2 = "v2"
    HYBRID = "hybrid"


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


@dataclass(frozen=True, slots=True)
class Pod:
    """The Kubernetes pod of a container; names are None until something tells them."""

    uid: str
    name: str | None = None
    namespace: str | None = None
    container: str | None = None


@dataclass(frozen=True, slots=True)
class Container:
    """One container on this host."""

    cgroup: CgroupPath
    """Its cgroup in the hierarchy in which it was found."""
    runtime: Runtime
    id: str | None = None
    """The runtime's id; None where the runtime gives none."""
    name: str | None = None
    pod: Pod | None = None
    devices: str | None = None
    """The folder that speaks for it in the v1 `devices` hierarchy; None where that is not mounted."""
    unified: str | None = None
    """The folder that speaks for it in the cgroup2 hierarchy; None where that is not mounted, or has none for it."""
    is_hidden: bool = False
    """Whether there must be such a folder, but which one cannot be told from this process' namespaces."""

    @property
    def key(self) -> str:
        """What tells it from every other container of the host: its id, else its cgroup."""
        return self.id or self.cgroup


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, as far as it is known yet; everything in it holds until the device set changes."""

    minor: int
    uuid: GpuUuid | None = None
    """None until the driver has initialised the device once."""
    model: str | None = None
    address: PciAddress | None = None
    index: int | None = None
    """Its NVML index; None while NVML does not list it."""

    @property
    def node(self) -> DeviceNode:
        """The device node that a container must be able to open."""
        return gpu_node(self.minor)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What NVML said of one GPU at one instant; None for what it did not say."""

    memory_total: int | None = None
    """Bytes."""
    memory_used: int | None = None
    """Bytes in use by anybody, without the driver's own reserve where the driver can tell it apart."""
    duty_cycle: float | None = None
    """0..100: mean of the driver's utilization samples of the last 10 s."""
    utilization: float | None = None
    """0..1: mean of the driver's utilization samples since the previous reading."""


@dataclass(frozen=True, slots=True)
class GpuSnapshot:
    """All readings of one NVML pass."""

    taken_at: float
    """Monotonic seconds at the pass's start."""
    gpus: tuple[Gpu, ...] = ()
    readings: Mapping[GpuUuid, GpuReading] = field(default_factory=dict)
    driver_version: str | None = None
    problems: tuple[Problem, ...] = ()
    count: int | None = None
    """How many GPUs NVML counts, of which it may not name all; None when it did not answer."""


@dataclass(frozen=True, slots=True)
class DeviceInventory:
    """The GPUs of this host in one cycle, from every source that knows of them."""

    gpus: tuple[Gpu, ...] = ()
    readings: Mapping[GpuUuid, GpuReading] = field(default_factory=dict)
    driver_version: str | None = None
    pci_gpus: int = 0
    """NVIDIA GPUs on the PCI bus, bound to the nvidia driver or to none."""
    nvml_gpus: int | None = None
    """GPUs that NVML counts; None when it has not answered in this cycle."""
    nvml_finished_at: float | None = None
    """Monotonic seconds at which an NVML pass last ended; before the first end, at which the wait for it began."""
    problems: tuple[Problem, ...] = ()
    are_all: bool = True
    """Whether its GPUs are as many as NVML counted when it last did."""


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
    lost: bool = False
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
    """One GPU, its reading if there is one, and the containers that may open it."""

    gpu: Gpu
    reading: GpuReading
    containers: tuple[str, ...] = ()
    """Keys of the containers with a row on it."""
    complete: bool = True
    """Whether these are all: not while what some container may open is unknown, nor where only one is looked at."""


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
