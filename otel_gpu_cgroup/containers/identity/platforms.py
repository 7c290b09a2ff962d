# SPDX-License-Identifier: Apache-2.0
"""Pure: the cgroups that Nomad, Garden (Cloud Foundry) and Apptainer make without an engine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import CgroupPath, Container, Runtime

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOMAD: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.(?P<task>.+)\.scope", re.DOTALL)
_GARDEN: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-(?:[0-9a-f]{12}|[0-9a-f]{4})")
_GARDEN_FOLDERS: Final = (["garden"], ["garden", "good"], ["garden", "bad"])
"""Garden moves what uses more CPU than it is entitled to from `good` to `bad`."""
_APPTAINER: Final = re.compile(r"(?:apptainer|singularity)-(?P<pid>[0-9]+)\.scope")
_APPTAINER_FOLDERS: Final = frozenset({"apptainer", "singularity"})
_PID: Final = re.compile(r"[0-9]+")


def parse_platform(path: CgroupPath, names: Sequence[str]) -> Container | None:
    """The container of one of them whose cgroup this is."""
    *above, name = names
    if (nomad := _NOMAD.fullmatch(name)) is not None:
        return Container(path, Runtime.NOMAD, name=nomad["task"])
    if _GARDEN.fullmatch(name) is not None:
        is_garden = above[-1:] == _GARDEN_FOLDERS[0] or above[-2:] in _GARDEN_FOLDERS
        return Container(path, Runtime.GARDEN, name) if is_garden else None
    pid = _parse_pid(above, name)
    return None if pid is None else Container(path, Runtime.APPTAINER, name=f"apptainer-{pid}")


def _parse_pid(above: Sequence[str], name: str) -> str | None:
    """The process for which Apptainer, or Singularity as it was called, made a cgroup."""
    if (scope := _APPTAINER.fullmatch(name)) is not None:
        return scope["pid"]
    return name if _PID.fullmatch(name) is not None and _APPTAINER_FOLDERS.intersection(above[-1:]) else None
