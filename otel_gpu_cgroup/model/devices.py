# SPDX-License-Identifier: Apache-2.0
"""Device nodes, requests, and what policies say of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


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
