# SPDX-License-Identifier: Apache-2.0
"""Reads the device nodes in a container's own /dev, and never opens one.

What a container has in its /dev is written by the container, too: no link in it is followed, and nothing but its
first entries is looked at.
"""

from __future__ import annotations

import os
import stat
from itertools import islice
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.host import read_text, unreadable
from otel_gpu_cgroup.model import DeviceNode, DeviceType

if TYPE_CHECKING:
    from otel_gpu_cgroup.host import HostPaths

_MOST_ENTRIES: Final = 10_000
_PREFIX: Final = "nvidia"
_MEMORY: Final = "mem"
_CAPABILITIES: Final = "nvidia-caps"
"""The folder of the nodes that MIG instances need beside their GPU's."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def read_nodes(folder: str) -> dict[str, DeviceNode]:
    """NVIDIA's character devices and /dev/mem by their paths below a /dev; raises HostUnreadable."""
    descriptor = _opened(folder)
    try:
        return _named(descriptor)
    except OSError as error:
        raise unreadable(folder, error) from error
    finally:
        os.close(descriptor)


def read_node(path: str) -> DeviceNode | None:
    """The device node at a path; None where there is none."""
    try:
        return _node(os.lstat(path))
    except OSError:
        return None


def read_container_nodes(host: HostPaths, cgroup: str) -> frozenset[DeviceNode] | None:
    """The device nodes of a container with a process in this cgroup folder.

    None without a process, or where its /dev is the host's, which proves nothing. Raises HostUnreadable.
    """
    process = read_process(cgroup)
    hosts = _device_of(os.fspath(host.proc / "1/root/dev"), os.fspath(host.under_root("/dev")))
    if process is None or hosts is None:
        return None
    folder = os.fspath(host.proc / process / "root/dev")
    descriptor = _opened(folder)
    try:
        if os.fstat(descriptor).st_dev == hosts:
            return None
        return frozenset(_named(descriptor).values())
    except OSError as error:
        raise unreadable(folder, error) from error
    finally:
        os.close(descriptor)


def read_process(cgroup: str) -> str | None:
    """A process in this cgroup folder; None where it has none, or of other PID namespaces. Raises HostUnreadable."""
    process = next(iter(read_text(f"{cgroup}/cgroup.procs").split()), "0")
    return None if process == "0" else process


def _device_of(*folders: str) -> int | None:
    """The file system of the first of these folders that can be seen."""
    for folder in folders:
        try:
            return os.stat(folder).st_dev
        except OSError:
            continue
    return None


def _opened(folder: str) -> int:
    try:
        return os.open(folder, _FOLDER)
    except OSError as error:
        raise unreadable(folder, error) from error


def _named(descriptor: int) -> dict[str, DeviceNode]:
    nodes = _nodes_in(descriptor)
    try:
        folder = os.open(_CAPABILITIES, _FOLDER, dir_fd=descriptor)
    except OSError:
        return nodes  # there is none, or it is none
    try:
        return nodes | {f"{_CAPABILITIES}/{name}": node for name, node in _nodes_in(folder).items()}
    finally:
        os.close(folder)


def _nodes_in(descriptor: int) -> dict[str, DeviceNode]:
    with os.scandir(descriptor) as entries:
        names = [it.name for it in islice(entries, _MOST_ENTRIES) if it.name.startswith(_PREFIX) or it.name == _MEMORY]
    found = ((name, _node(os.stat(name, dir_fd=descriptor, follow_symlinks=False))) for name in names)
    return {name: node for name, node in found if node is not None and node.type is DeviceType.CHAR}


def _node(status: os.stat_result) -> DeviceNode | None:
    kinds = {stat.S_IFCHR: DeviceType.CHAR, stat.S_IFBLK: DeviceType.BLOCK}
    kind = kinds.get(stat.S_IFMT(status.st_mode))
    return None if kind is None else DeviceNode(kind, os.major(status.st_rdev), os.minor(status.st_rdev))
