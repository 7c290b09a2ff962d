# SPDX-License-Identifier: Apache-2.0
"""Pure: what containers and devices are called in what a person reads; no name breaks a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cli.table import UNKNOWN
from otel_gpu_cgroup.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_gpu_cgroup.model import Container, DeviceNode, Gpu

_DIGITS: Final = 12
"""Of an id, as engines show it."""
_MAKE: Final = "NVIDIA "
_NODE: Final = "nvidia"


def container_label(container: Container) -> str:
    """namespace/pod/container, else its name, else the first digits of its id, else its cgroup."""
    pod = container.pod
    if pod is not None and pod.namespace is not None and pod.name is not None:
        last = pod.container or short_id(container)
        return printable(f"{pod.namespace}/{pod.name}/{last}")
    if container.name is not None:
        return printable(container.name)
    return printable(container.cgroup) if container.id is None else short_id(container)


def short_id(container: Container) -> str:
    """The first digits of its id, if it has one."""
    return UNKNOWN if container.id is None else printable(container.id[:_DIGITS])


def device_label(gpu: Gpu) -> str:
    """A GPU by its node below /dev, an instance by the ids that the driver's files have for it, such as nvidia5/gi2."""
    name = f"{_NODE}{gpu.minor}"
    if gpu.instance is None:
        return name
    compute = f"/ci{gpu.instance.compute_instance}" if gpu.instance.compute_instance else ""
    return f"{name}/gi{gpu.instance.gpu_instance}{compute}"


def model_label(gpu: Gpu) -> str:
    """A GPU's model without its maker, an instance's profile."""
    kind = gpu.model if gpu.instance is None else gpu.instance.profile
    return UNKNOWN if kind is None else printable(kind.removeprefix(_MAKE), limit=40)


def capability_label(node: DeviceNode) -> str:
    """A capability's node as it is called below /dev/nvidia-caps."""
    return f"nvidia-cap{node.minor}"


def joined(devices: Sequence[str]) -> str:
    """Several labels as one word, such as nvidia0,1,5/gi2."""
    return ",".join((*devices[:1], *(device.removeprefix(_NODE) for device in devices[1:])))
