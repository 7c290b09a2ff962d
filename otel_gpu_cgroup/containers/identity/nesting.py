# SPDX-License-Identifier: Apache-2.0
"""Pure: which container another one is inside of.

What is inside may have been made, and named, by whoever has the outer one: it is not believed to be one of the host's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import Runtime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_gpu_cgroup.model import Container

_TRANSPARENT: Final = frozenset({Runtime.SYSTEMD, Runtime.SLURM})
"""The host's own engines put containers below their units and steps."""


def find_enclosing(container: Container, by_path: Mapping[str, Container]) -> Container | None:
    """The innermost container that this one is inside of; None for one of the host's."""
    path = container.cgroup.rpartition("/")[0]
    while path:
        found = by_path.get(path)
        if found is not None and found.runtime not in _TRANSPARENT:
            return found
        path = path.rpartition("/")[0]
    return None
