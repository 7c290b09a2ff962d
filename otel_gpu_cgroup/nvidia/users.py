# SPDX-License-Identifier: Apache-2.0
"""Pure: which devices a container that may open everything has used since it began.

It is reported for those from its first use until it ends: a series that came and went with each process would be many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_gpu_cgroup.model import Container, GpuUuid

_Life = tuple[str, int | None]
"""A container's key and its cgroup's inode: the same name may be given to another."""


class Users:
    """Remembers as long as each cycle that meets containers at all meets the container."""

    def __init__(self) -> None:
        self._met: dict[_Life, frozenset[GpuUuid]] = {}
        self._met_before: dict[_Life, frozenset[GpuUuid]] = {}
        self._is_blind = False
        """Whether this cycle has met no container so far: they may not have been looked for."""

    def begin_cycle(self) -> None:
        """Forget the containers that the last cycle did not meet."""
        if not self._is_blind:
            self._met_before, self._met = self._met, {}
        self._is_blind = True

    def meet(self, container: Container) -> None:
        """The container is there, whatever it may open."""
        self._is_blind = False
        life = container.key, container.inode
        if used := self._met_before.get(life):
            self._met[life] = used

    def used(self, container: Container, now: frozenset[GpuUuid]) -> frozenset[GpuUuid]:
        """The devices that a container which was met has used so far, those that it uses now among them."""
        life = container.key, container.inode
        used = self._met.get(life, frozenset()) | now
        if used:
            self._met[life] = used
        return used
