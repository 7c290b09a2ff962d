# SPDX-License-Identifier: Apache-2.0
"""A host as files, for `--host-root`: containers and rules that no kernel here would give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MOUNTINFO: Final = "33 31 0:29 / /sys/fs/cgroup/devices rw,nosuid - cgroup cgroup rw,devices\n"


def write_host(root: Path, containers: Mapping[str, str], hostname: str = "") -> Path:
    """Write a v1 devices hierarchy with the devices.list of each cgroup; returns the root."""
    write(root / "proc/1/mountinfo", _MOUNTINFO)
    write(devices_list(root, ""), "a *:* rwm\n")
    for cgroup, rules in containers.items():
        write(devices_list(root, cgroup), rules)
    if hostname:
        write(root / "etc/hostname", f"{hostname}\n")
    return root


def devices_list(root: Path, cgroup: str) -> Path:
    """The file with the rules of a cgroup."""
    return root / f"sys/fs/cgroup/devices{cgroup}/devices.list"


def write(path: Path, text: str) -> None:
    """Write a file in a folder that need not be there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
