# SPDX-License-Identifier: Apache-2.0
"""Pure: who a point is about, as OpenTelemetry attributes; what is not known is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.printable import printable

if TYPE_CHECKING:
    from otel_gpu_cgroup.model import AcceleratorStats, Container, Gpu

VENDOR: Final = "NVIDIA"

Attributes = dict[str, str]
"""A plain dict: exporters copy it in ways that other mappings do not stand."""


def container_attributes(container: Container, accelerator: AcceleratorStats) -> Attributes:
    """The attribute set of every container metric: one container, one GPU."""
    pod = container.pod
    return _known(
        {
            "container.id": printable(container.key),
            "container.name": container.name or (pod.container if pod else None),
            "hw.id": accelerator.id,
            "hw.model": accelerator.model,
            "k8s.namespace.name": pod.namespace if pod else None,
            "k8s.pod.name": pod.name if pod else None,
            "k8s.pod.uid": pod.uid if pod else None,
            "k8s.container.name": pod.container if pod else None,
        }
    )


def gpu_attributes(gpu: Gpu) -> Attributes:
    """The attribute set of every metric of a physical GPU."""
    return _known(
        {
            "hw.id": gpu.uuid,
            "hw.model": gpu.model,
            "hw.name": f"nvidia{gpu.minor}",
            "hw.vendor": VENDOR,
        }
    )


def _known(attributes: dict[str, str | None]) -> Attributes:
    return {key: value for key, value in attributes.items() if value is not None}
