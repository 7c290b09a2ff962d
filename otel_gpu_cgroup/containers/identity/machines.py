# SPDX-License-Identifier: Apache-2.0
"""Pure: the cgroups of system containers: LXC (LXD, Incus, libvirt's) and systemd-nspawn.

LXC's monitors have cgroups of their own. Where a machine is a unit of systemd, the unit is it, with what watches it
and what runs in it. libvirt's virtual machines are units, no containers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import CgroupPath, Container, Runtime

if TYPE_CHECKING:
    from collections.abc import Sequence

_LXC: Final = re.compile(r"lxc\.payload\.(?P<name>.+)", re.DOTALL)
_LXC_FOLDERS: Final = frozenset({"lxc", "lxc.payload"})
_NSPAWN: Final = re.compile(r"systemd-nspawn@(?P<name>.+)\.service", re.DOTALL)
_SCOPE: Final = re.compile(r"machine-(?P<name>.+)\.scope", re.DOTALL)
_SLICE: Final = re.compile(r"machine(?:-.+)?\.slice", re.DOTALL)
_LIBVIRT: Final = re.compile(r"(?P<driver>qemu|ch|xen|lxc)-(?:[0-9]+-)?(?P<name>.+)", re.DOTALL)


def parse_machine(path: CgroupPath, names: Sequence[str]) -> Container | None:
    """The system container whose cgroup this is."""
    name, folder = names[-1], names[-2] if len(names) > 1 else ""
    if (lxc := _LXC.fullmatch(name)) is not None:
        return Container(path, Runtime.LXC, name=lxc["name"])
    if folder in _LXC_FOLDERS and name:
        return Container(path, Runtime.LXC, name=name)
    if (service := _NSPAWN.fullmatch(name)) is not None:
        return Container(path, Runtime.NSPAWN, name=_unescape(service["name"]))
    scope = _SCOPE.fullmatch(name)
    if scope is None or _SLICE.fullmatch(folder) is None:
        return None
    return _parse_registered(path, _unescape(scope["name"]))


def _parse_registered(path: CgroupPath, name: str) -> Container | None:
    """A machine that systemd-machined made a scope for, on behalf of nspawn or libvirt."""
    libvirt = _LIBVIRT.fullmatch(name)
    if libvirt is None:
        return Container(path, Runtime.NSPAWN, name=name)
    return Container(path, Runtime.LXC, name=libvirt["name"]) if libvirt["driver"] == "lxc" else None


def _unescape(name: str) -> str:
    """Of what systemd escapes in a unit's name, a machine's name (one of a host) can hold the dash alone."""
    return name.replace(r"\x2d", "-")
