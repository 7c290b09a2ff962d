# SPDX-License-Identifier: Apache-2.0
"""Pure: the cgroups of engines that name a container by a hash: Docker, containerd, CRI-O, podman, ECS.

Their own name tells the engine, or else the folder that it is in; the names above it tell the Kubernetes pod.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import CgroupPath, Container, Pod, Runtime

if TYPE_CHECKING:
    from collections.abc import Sequence

_PREFIXES: Final = {
    "docker": Runtime.DOCKER,
    "cri-containerd": Runtime.CONTAINERD,
    "nerdctl": Runtime.CONTAINERD,
    "crio": Runtime.CRIO,
    "libpod": Runtime.PODMAN,
    "libpod-payload": Runtime.PODMAN,
}
_PREFIX: Final = "(?P<prefix>" + "|".join(sorted(_PREFIXES, key=len, reverse=True)) + ")"
_HASH: Final = "(?P<id>[0-9a-f]{64})"
_PREFIXED: Final = re.compile(rf"{_PREFIX}-{_HASH}(?:\.scope)?")
_COLONS: Final = re.compile(rf"[^/:]+:{_PREFIX}:{_HASH}")
"""A systemd path given to the cgroupfs driver stays one name."""
_BARE: Final = re.compile(_HASH)
_FARGATE: Final = re.compile(r"[0-9a-f]{32}-[0-9]+")
_HYPERVISORS: Final = "kata_overhead"
"""What a virtual machine of Kata needs beside what its containers may use."""
_POD: Final = re.compile(
    r"(?:[^/]*-)?pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice(?::.*)?)?"
)


def parse_engine(path: CgroupPath, names: Sequence[str]) -> Container | None:
    """The container of an engine whose cgroup this is."""
    name = names[-1]
    if _HYPERVISORS in names:
        return None
    match = _PREFIXED.fullmatch(name) or _COLONS.fullmatch(name)
    if match is not None:
        return Container(path, _PREFIXES[match["prefix"]], match["id"], pod=_parse_pod(names))
    if _BARE.fullmatch(name) is not None:
        return Container(path, _parse_runtime(names), name, pod=_parse_pod(names))
    if _FARGATE.fullmatch(name) is not None and _is_ecs(names):
        return Container(path, Runtime.ECS, name)
    return None


def _parse_runtime(names: Sequence[str]) -> Runtime:
    """Whose bare hash it is, by the folder it is in; containerd is who uses them elsewhere."""
    if _is_ecs(names):
        return Runtime.ECS
    return Runtime.DOCKER if "docker" in names[-2:-1] else Runtime.CONTAINERD


def _is_ecs(names: Sequence[str]) -> bool:
    """Whether it is `ecs/TASK/ID` or `ecs/CLUSTER/TASK/ID`."""
    return "ecs" in names[-4:-2]


def _parse_pod(names: Sequence[str]) -> Pod | None:
    """The innermost pod above a container: a UID, or for a static pod the hash of its configuration."""
    for name in reversed(names):
        if (match := _POD.fullmatch(name)) is not None:
            return Pod(match["uid"].replace("_", "-"))
    return None
