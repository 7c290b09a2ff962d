# SPDX-License-Identifier: Apache-2.0
"""Reads which cgroup speaks for a container: where its first process is, in each hierarchy.

A container's own cgroup may have cgroups below it (crun's `container/`, systemd inside), and programs may be attached
to those, too; what counts is what the kernel asks for the container's processes. In a hybrid host the two hierarchies
may place a process differently. A Slurm step speaks for all its tasks, whose rules are narrower: in v1 by its own
cgroup, in cgroup2 by `user`, where Slurm puts the step's program so that its daemon beside is free of it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.containers.discovery.namespace import UNIFIED, ShownPaths
from otel_gpu_cgroup.errors import HostUnreadable
from otel_gpu_cgroup.host import HostPaths, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from otel_gpu_cgroup.containers.discovery.tree import Cgroup
    from otel_gpu_cgroup.model import CgroupLayout, CgroupPath, Container

_MOST_FOLDERS: Final = 1000
_TASKS: Final = "user"


def parse_pids(procs: str) -> list[int]:
    """The processes that a cgroup.procs lists; those of other PID namespaces, which it shows as 0, are left out."""
    return [int(word) for word in procs.split() if word.isascii() and word.isdigit() and int(word) > 0]


def parse_unified_path(proc_cgroup: str) -> str | None:
    """The cgroup2 path in a /proc/PID/cgroup, as the reader's cgroup namespace shows it; None without one."""
    return next((line[3:] for line in proc_cgroup.split("\n") if line.startswith("0::/")), None)


def _is_nobodys(_folder: str) -> bool:
    return False


def read_first_process(folder: str, is_other: Callable[[str], bool] = _is_nobodys) -> tuple[int, str] | None:
    """The lowest pid in a cgroup and all below it that is no other's, and the folder it is in; None without one."""
    found = ((pid, place) for place in _folders(folder, is_other) for pid in _read_pids(place))
    return min(found, default=None)


def shows_foreign_processes(folder: str, is_other: Callable[[str], bool] = _is_nobodys) -> bool:
    """Whether a cgroup or one below it has processes of other PID namespaces, which are shown as 0."""
    return any("0" in _read_procs(place).split() for place in _folders(folder, is_other))


def _folders(top: str, is_other: Callable[[str], bool]) -> Iterator[str]:
    """A cgroup and those below it, no more than a bound: a container may make as many as it likes."""
    folders = [top]
    for _ in range(_MOST_FOLDERS):
        if not folders:
            return
        folder = folders.pop()
        yield folder
        try:
            with os.scandir(folder) as entries:
                below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue  # it has ended
        folders += [place for place in below if not is_other(place)]


def _read_pids(folder: str) -> list[int]:
    return parse_pids(_read_procs(folder))


def _read_procs(folder: str) -> str:
    try:
        return read_text(f"{folder}/cgroup.procs")
    except HostUnreadable:
        return ""


class Placement:
    """Places containers in the hierarchies of one layout, cycle after cycle."""

    def __init__(self, host: HostPaths, layout: CgroupLayout) -> None:
        self._host = host
        self._devices = None if layout.devices is None else os.fspath(layout.devices)
        self._unified = None if layout.unified is None else os.fspath(layout.unified)
        self._shown = ShownPaths(host, self._unified or "", UNIFIED)
        self._walked = self._devices or self._unified or ""
        self._containers: AbstractSet[str] = frozenset()
        self._before: dict[CgroupPath, Container] = {}
        self._settled: dict[CgroupPath, Container] = {}

    def place(self, found: Sequence[tuple[Container, Cgroup]]) -> list[Container]:
        """The containers, each with the folders that speak for it and its inode; beside each, its own cgroup.

        Where a process is does not change once a container is set up: what two cycles saw of one that has a process is
        not asked again, unless there are cgroups below, between which processes may move, or the folder is another one
        by now.
        """
        self._shown.begin_cycle()
        self._containers = {path for _, (path, _, _) in found}
        placed, settled = [], {}
        for container, (path, is_leaf, inode) in found:
            known = self._settled.get(path) if is_leaf else None
            if known is None or known.inode != inode:
                known, has_process = self._place(replace(container, inode=inode), is_leaf=is_leaf)
                settles = is_leaf and has_process and self._before.get(path) == known
            else:
                settles = True
            if settles:
                settled[path] = known
            placed.append(known)
        self._settled, self._before = settled, {container.cgroup: container for container in placed}
        return placed

    def relocate(self, container: Container) -> Container | None:
        """The container with other folders, after one that spoke for it has gone; None where it has ended itself.

        On a hybrid host its processes may have left one cgroup2 for another.
        """
        self._settled.pop(container.cgroup, None)
        if self._devices is None or not os.path.isdir(f"{self._devices}{container.cgroup}"):
            return None
        moved, _ = self._place(container, is_leaf=False)
        return None if moved == container else moved

    def _is_container(self, folder: str) -> bool:
        """Whether this is a container's own: what is in it is nobody else's."""
        return folder[len(self._walked) :] in self._containers

    def _place(self, container: Container, *, is_leaf: bool) -> tuple[Container, bool]:
        """The container with its folders, and whether they can be relied on: one that is empty may yet be filled."""
        if self._devices is None:
            return self._place_in_unified(container, is_leaf=is_leaf), True
        folder = f"{self._devices}{container.cgroup}"
        if self._unified is None and is_leaf:
            return replace(container, devices=folder), True
        first = read_first_process(folder, self._is_container)
        devices = folder if first is None or container.slurm is not None else first[1]
        unified, is_hidden = (None, False) if self._unified is None else self._beside(container, folder, first)
        return replace(container, devices=devices, unified=unified, is_hidden=is_hidden), first is not None

    def _place_in_unified(self, container: Container, *, is_leaf: bool) -> Container:
        folder = f"{self._unified}{container.cgroup}"
        if is_leaf:
            return replace(container, unified=folder)
        if container.slurm is not None:
            tasks = f"{folder}/{_TASKS}"
            return replace(container, unified=tasks if os.path.isdir(tasks) else folder)
        first = read_first_process(folder, self._is_container)
        if first is None and shows_foreign_processes(folder, self._is_container):
            return replace(container, is_hidden=True)
        return replace(container, unified=folder if first is None else first[1])

    def _beside(self, container: Container, folder: str, first: tuple[int, str] | None) -> tuple[str | None, bool]:
        """In a hybrid host: the cgroup2 folder of the first process, and whether it is hidden from this process.

        An empty container's is the one with the same path, if there is any.
        """
        same = f"{self._unified}{container.cgroup}"
        if first is None:
            hidden = shows_foreign_processes(folder, self._is_container)
            return (same if not hidden and os.path.isdir(same) else None), hidden
        found = self._read_unified_folder(first[0])
        return found, found is None

    def _read_unified_folder(self, pid: int) -> str | None:
        """The folder of a process' cgroup2; None when it has ended or cannot be told."""
        try:
            shown = parse_unified_path(read_text(self._host.proc / str(pid) / "cgroup"))
        except HostUnreadable:
            return None
        path = None if shown is None else self._shown.resolve(shown)
        return None if path is None else f"{self._unified}{path}".rstrip("/")
