# SPDX-License-Identifier: Apache-2.0
"""Pure: which container a cgroup is in."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from otel_gpu_cgroup.containers.discovery.relative import KnownPaths, resolve_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_gpu_cgroup.model import Container


Place = tuple[str, int | None]
"""A container's key and its inode: another one that has the same key later has another inode."""


class Innermost:
    """Finds the innermost container that a cgroup is in, among those of one cycle.

    `top` is the cgroup that these containers' paths begin at, as the reader's cgroup namespace shows it: "/" where
    both have the same root, "/../.." where that of the namespace is two below.
    """

    def __init__(self, containers: Sequence[Container] = (), top: str = "/") -> None:
        self._places = {container.cgroup.rstrip("/"): (container.key, container.inode) for container in containers}
        self._top = top.rstrip("/")

    def is_same(self, other: Innermost) -> bool:
        """Whether they find the same, whatever is looked for."""
        return self._places == other._places and self._top == other._top

    def find(self, shown: str | None) -> Place | None:
        """By the cgroup's path as the reader's namespace shows it; None outside of all containers."""
        path = None if shown is None else self._in_tree(shown)
        if path is None:
            return None
        while path and path not in self._places:
            path = path.rpartition("/")[0]
        return self._places.get(path)

    def _in_tree(self, shown: str) -> str | None:
        """The path from the top, "" for the top itself; None for what is above or beside it."""
        if shown.startswith("/..") or self._top:
            return self._resolve(shown)
        return shown.rstrip("/")

    def _resolve(self, shown: str) -> str | None:
        top = self._top
        if shown == top or shown.startswith(f"{top}/"):
            rest = shown[len(top) :]
            return None if f"{rest}/".startswith("/../") else rest.rstrip("/")
        return self._resolve_by_end(shown) if set(top.split("/")) == {"", ".."} else None

    def _resolve_by_end(self, shown: str) -> str | None:
        """Which names lie between the top and the namespace's root is not told; how many, is."""
        depth = self._top.count("/") + sum(-1 if name == ".." else 1 for name in shown.split("/") if name)
        path = resolve_path(shown, None, self._known)
        return path if path is not None and path.count("/") == depth else None

    @cached_property
    def _known(self) -> KnownPaths:
        return KnownPaths(self._places)
