# SPDX-License-Identifier: Apache-2.0
"""Reads the device policy of a container's cgroup from the host. Only reads."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.devices_list import parse_devices_list
from otel_gpu_cgroup.errors import ParseError, PolicyUnreadable
from otel_gpu_cgroup.host import read_text

if TYPE_CHECKING:
    from otel_gpu_cgroup.cgroup.policy import DevicePolicy
    from otel_gpu_cgroup.model import Container

_REMEMBERED: Final = 4096
"""Texts whose policy is kept: containers with equal rules share one, and a node has fewer than 4096 others."""


class PolicyReader:
    """Reads policies; equal texts give the same policy object."""

    def __init__(self) -> None:
        self._parse = functools.lru_cache(maxsize=_REMEMBERED)(parse_devices_list)

    def read(self, container: Container) -> DevicePolicy:
        """What the container's cgroup lets its processes open, as the kernel holds it now.

        Raises Gone when the cgroup has ended, another HostUnreadable or PolicyUnreadable when nobody can say.
        """
        if container.devices is None:
            raise PolicyUnreadable("the device programs of cgroup v2 are not read by this version")
        return self._read_devices_list(f"{container.devices}/devices.list")

    def _read_devices_list(self, path: str) -> DevicePolicy:
        text = read_text(path)
        try:
            return self._parse(text)
        except ParseError as error:
            raise PolicyUnreadable(f"{path!r}: {error}") from error
