# SPDX-License-Identifier: Apache-2.0
"""Reads the device policy of a container's cgroup from the host. Only reads."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.reader import BpfReader
from otel_gpu_cgroup.cgroup.bpf.syscall import Bpf
from otel_gpu_cgroup.cgroup.devices_list import parse_devices_list
from otel_gpu_cgroup.cgroup.policy import BothPolicies, UnknownPolicy
from otel_gpu_cgroup.errors import Gone, HostUnreadable, ParseError, PolicyUnreadable
from otel_gpu_cgroup.host import read_text

if TYPE_CHECKING:
    from otel_gpu_cgroup.cgroup.bpf.policy import BpfPolicy
    from otel_gpu_cgroup.cgroup.policy import DevicePolicy
    from otel_gpu_cgroup.model import Container

_REMEMBERED: Final = 4096
"""Texts whose policy is kept: containers with equal rules share one, and a node has fewer than 4096 others."""


class PolicyReader:
    """Reads policies; where nothing has changed it gives the same policy object, cycle after cycle."""

    def __init__(self) -> None:
        self._parse = functools.lru_cache(maxsize=_REMEMBERED)(parse_devices_list)
        self._both = functools.lru_cache(maxsize=_REMEMBERED)(BothPolicies)
        self._programs = BpfReader(Bpf())

    def begin_cycle(self) -> None:
        """Let go of what the last cycle did not meet."""
        self._programs.begin_cycle()

    def read(self, container: Container) -> DevicePolicy:
        """What the container's cgroups let its processes open, as the kernel holds it now.

        Raises Gone when a cgroup has ended, another HostUnreadable or PolicyUnreadable when nobody can say.
        """
        if container.devices is None:
            if container.unified is None:
                raise PolicyUnreadable("it is in no hierarchy that decides on devices")
            return self._programs.read(container.unified)
        listed = self._read_devices_list(f"{container.devices}/devices.list")
        if container.unified is None:
            return listed
        return self._both(listed, self._read_beside(container.unified))

    def read_programs(self, folder: str) -> BpfPolicy:
        """What the programs that are in effect on a cgroup2 folder allow; raises as `read` does."""
        return self._programs.read(folder)

    def _read_beside(self, folder: str) -> DevicePolicy:
        """The second controller's policy: where it cannot be read, what the first one denies is denied all the same."""
        try:
            return self._programs.read(folder)
        except Gone:
            raise
        except PolicyUnreadable as error:
            return UnknownPolicy(error)
        except HostUnreadable as error:
            return UnknownPolicy(PolicyUnreadable(str(error)))

    def _read_devices_list(self, path: str) -> DevicePolicy:
        text = read_text(path)
        try:
            return self._parse(text)
        except ParseError as error:
            raise PolicyUnreadable(f"{path!r}: {error}") from error
