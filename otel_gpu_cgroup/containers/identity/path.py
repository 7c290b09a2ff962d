# SPDX-License-Identifier: Apache-2.0
"""Pure: a cgroup's path, and the container whose own cgroup it is.

A cgroup is a container's if its own name, as a whole, has the form that somebody gives to a container's cgroup,
below the folders that this somebody makes. What is below a container has other forms: a monitor's, a task's, a
unit's of the systemd inside; unless it is a container once more.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.containers.identity.engines import parse_engine
from otel_gpu_cgroup.containers.identity.machines import parse_machine
from otel_gpu_cgroup.containers.identity.platforms import parse_platform
from otel_gpu_cgroup.containers.identity.slurm import parse_step
from otel_gpu_cgroup.containers.identity.units import parse_unit
from otel_gpu_cgroup.model import CgroupPath, Container, Runtime

if TYPE_CHECKING:
    from collections.abc import Sequence

_PARSERS: Final = (parse_engine, parse_platform, parse_step, parse_machine, parse_unit)
_NAMESPACES: Final = frozenset({"buildkit", "default", "k8s.io", "moby", "nerdctl"})
"""Of containerd, where they usually are called so; ids in them are as people like (containerd's `identifiers`)."""
_CONTAINERD_ID: Final = re.compile(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*")
_LONGEST_ID: Final = 76


def parse_container(path: CgroupPath) -> Container | None:
    """The container whose own cgroup this is; None for every other cgroup."""
    names = path.split("/")
    for parse in _PARSERS:
        container = parse(path, names)
        if container is not None:
            return container
    return _parse_named(path, names)


def _parse_named(path: CgroupPath, names: Sequence[str]) -> Container | None:
    """A container of containerd whose id is no hash: `/NAMESPACE/ID` at the top, or at a container's."""
    if len(names) < 3 or names[-2] not in _NAMESPACES or len(names[-1]) > _LONGEST_ID:
        return None
    if _CONTAINERD_ID.fullmatch(names[-1]) is None:
        return None
    top = CgroupPath("/".join(names[:-2]))
    return Container(path, Runtime.CONTAINERD, names[-1]) if not top or parse_container(top) is not None else None
