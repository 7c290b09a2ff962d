# SPDX-License-Identifier: Apache-2.0
"""Pure: who a point is about, as OpenTelemetry attributes; what is not known is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.printable import printable

if TYPE_CHECKING:
    from otel_gpu_cgroup.model import AcceleratorStats, Account, Container, Gpu

VENDOR: Final = "NVIDIA"

Attributes = dict[str, str | int]
"""A plain dict: exporters copy it in ways that other mappings do not stand."""


def container_id(container: Container) -> str:
    """The value of `container.id`: the runtime's id, else the cgroup's path."""
    return printable(container.key)


def container_attributes(container: Container, accelerator: AcceleratorStats) -> Attributes:
    """The attribute set of every container metric: one container, one device."""
    pod, step = container.pod, container.slurm
    return _known(
        {
            "container.id": container_id(container),
            "container.name": container.name or (pod.container if pod else None),
            "hw.id": accelerator.id,
            "hw.model": accelerator.model,
            "hw.parent": accelerator.parent,
            "k8s.namespace.name": pod.namespace if pod else None,
            "k8s.pod.name": pod.name if pod else None,
            "k8s.pod.uid": pod.uid if pod else None,
            "k8s.container.name": pod.container if pod else None,
            "slurm.job.id": step.job if step else None,
        }
    )


def device_attributes(gpu: Gpu) -> Attributes:
    """The attribute set of every device metric; an instance has no name, its GPU's node is that of all of them."""
    return _known(
        {
            "hw.id": gpu.uuid,
            "hw.model": gpu.model,
            "hw.name": f"nvidia{gpu.minor}" if gpu.instance is None else None,
            "hw.parent": gpu.instance.parent if gpu.instance else None,
            "hw.vendor": VENDOR,
        }
    )


def kind_attributes(gpu: Gpu) -> Attributes:
    """What a device is to those who want to use it."""
    profile = gpu.instance.profile if gpu.instance else None
    return _known({"gpu_cgroup.device.kind": gpu.kind.value, "gpu_cgroup.mig.profile": profile})


def account_attributes(account: Account) -> Attributes:
    """On whose account the time of the devices of one model goes."""
    return _known(
        {
            "hw.model": account.model,
            "k8s.namespace.name": account.namespace,
            "slurm.job.uid": account.uid,
        }
    )


def _known(attributes: dict[str, str | int | None]) -> Attributes:
    return {
        key: printable(value) if isinstance(value, str) else value
        for key, value in attributes.items()
        if value is not None
    }
