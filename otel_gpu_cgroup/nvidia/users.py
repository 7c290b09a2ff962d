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
    """Remembers as long as each cycle meets the container."""

    def __init__(self) -> None:
        self._met: dict[_Life, frozenset[GpuUuid]] = {}
        self._met_before: dict[_Life, frozenset[GpuUuid]] = {}

    def begin_cycle(self) -> None:
        """Forget the containers that the last cycle did not meet."""
        self._met_before, self._met = self._met, {}

    def used(self, container: Container, now: frozenset[GpuUuid]) -> frozenset[GpuUuid]:
        """The devices that it has used so far, those that it uses now among them."""
        life = container.key, container.inode
        used = self._met_before.get(life, frozenset()) | now
        if used:
            self._met[life] = used
        return used
