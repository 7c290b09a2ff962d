# SPDX-License-Identifier: Apache-2.0
"""Reads the device policy of a container's cgroup from the host. Only reads."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.reader import BpfReader, ProgramSource
from otel_gpu_cgroup.cgroup.bpf.syscall import Bpf
from otel_gpu_cgroup.cgroup.devices_list import parse_devices_list
from otel_gpu_cgroup.cgroup.fallback.reader import Fallbacks
from otel_gpu_cgroup.cgroup.fallback.stated import StandInPolicy
from otel_gpu_cgroup.cgroup.policy import BothPolicies, UnknownPolicy
from otel_gpu_cgroup.errors import Gone, HostUnreadable, ParseError, PolicyUnreadable
from otel_gpu_cgroup.held import HeldFiles
from otel_gpu_cgroup.host import HostPaths

if TYPE_CHECKING:
    from otel_gpu_cgroup.cgroup.policy import DevicePolicy
    from otel_gpu_cgroup.model import Container

_REMEMBERED: Final = 4096
"""Texts whose policy is kept: containers with equal rules share one, and a node has fewer than 4096 others."""

_HIDDEN: Final = PolicyUnreadable(
    "hidden: which cgroup a container's processes are in can be told in the host's PID and cgroup namespaces alone",
    "cgroup2",
)


class PolicyReader:
    """Reads policies; where nothing has changed it gives the same policy object, cycle after cycle."""

    def __init__(
        self,
        host: HostPaths | None = None,
        programs: ProgramSource | None = None,
        files: HeldFiles | None = None,
    ) -> None:
        """Ask these programs, by default the kernel's; what stands in for refused ones is looked for on this host.

        Lists are held open where `files` may hold them.
        """
        self._files = files or HeldFiles()
        self._hidden = UnknownPolicy(_HIDDEN)
        self._parse = functools.lru_cache(maxsize=_REMEMBERED)(parse_devices_list)
        self._both = functools.lru_cache(maxsize=_REMEMBERED)(BothPolicies)
        self._unknown = functools.lru_cache(maxsize=_REMEMBERED)(_unknown)
        self._stand_in = functools.lru_cache(maxsize=_REMEMBERED)(StandInPolicy)
        self._programs = BpfReader(programs or Bpf())
        self._fallbacks = Fallbacks(host or HostPaths())

    def begin_cycle(self) -> None:
        """Let go of what the last cycle did not meet."""
        self._files.begin_cycle()
        self._programs.begin_cycle()
        self._fallbacks.begin_cycle()

    def read(self, container: Container) -> DevicePolicy:
        """What the container's cgroups let its processes open, as the kernel holds it now.

        Where v2 cannot be asked, the policy is unknown, but for what v1 denies. Raises Gone when a cgroup has ended,
        another HostUnreadable or PolicyUnreadable when v1 cannot be read or there is no cgroup to ask.
        """
        if container.devices is None:
            if container.is_hidden:
                return self._hidden
            if container.unified is None:
                raise PolicyUnreadable("it is in no hierarchy that decides on devices")
            return self._ask_programs(container.unified)
        listed = self._read_devices_list(f"{container.devices}/devices.list")
        if container.is_hidden:
            return self._both(listed, self._hidden)
        if container.unified is None:
            return listed
        return self._both(listed, self._ask_programs(container.unified))

    def read_stand_in(self, container: Container, unknown: DevicePolicy) -> DevicePolicy | None:
        """The policy that was read, completed by what the first fallback says that knows the container."""
        stated = self._fallbacks.read(container)
        return None if stated is None else self._stand_in(unknown, stated)

    def _ask_programs(self, folder: str) -> DevicePolicy:
        try:
            return self._programs.read(folder)
        except Gone:
            raise
        except PolicyUnreadable as error:
            return self._unknown(str(error), error.subject)
        except HostUnreadable as error:
            return self._unknown(str(error), None)

    def _read_devices_list(self, path: str) -> DevicePolicy:
        text = self._files.read_text(path)
        try:
            return self._parse(text)
        except ParseError as error:
            raise PolicyUnreadable(f"{path!r}: {error}") from error


def _unknown(message: str, subject: str | None) -> UnknownPolicy:
    return UnknownPolicy(PolicyUnreadable(message, subject))
