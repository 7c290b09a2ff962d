# SPDX-License-Identifier: Apache-2.0
"""Writes the files in which kubelet and the engines of the simulated host leave their containers' names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from otel_gpu_cgroup.simulate.containers import SimulatedContainer, SimulatedPod

_LOGS: Final = "var/log/containers"
_PODS: Final = "var/log/pods"
_DOCKER: Final = "var/lib/docker/containers"
_PODMAN: Final = "var/lib/containers/storage/overlay-containers"


def write_names(root: Path, containers: Iterable[SimulatedContainer]) -> None:
    """Logs' names for pods, Docker's file for its containers, podman's list for all of its."""
    podmans = []
    for container in containers:
        if container.pod is not None:
            _write_log(root, container.id, container.pod)
        if container.docker_name is not None:
            folder = root / _DOCKER / container.id
            folder.mkdir(parents=True)
            (folder / "config.v2.json").write_text(
                json.dumps({"ID": container.id, "Name": f"/{container.docker_name}"})
            )
        if container.podman_name is not None:
            podmans.append({"id": container.id, "names": [container.podman_name]})
    (root / _PODMAN).mkdir(parents=True)
    (root / _PODMAN / "containers.json").write_text(json.dumps(podmans))


def _write_log(root: Path, identifier: str, pod: SimulatedPod) -> None:
    """A link that only its name and its target's are read of."""
    folder = f"{_PODS}/{pod.namespace}_{pod.name}_{pod.uid}/{pod.container}"
    (root / folder).mkdir(parents=True)
    (root / folder / "0.log").touch()
    (root / _LOGS).mkdir(parents=True, exist_ok=True)
    (root / _LOGS / f"{pod.name}_{pod.namespace}_{pod.container}-{identifier}.log").symlink_to(f"/{folder}/0.log")
