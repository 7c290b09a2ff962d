# SPDX-License-Identifier: Apache-2.0
"""The parts of a cycle on a benchmark's host, made as the agent makes them but reachable one by one."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.reader import PolicyReader
from otel_gpu_cgroup.containers.discovery import ContainerDiscovery
from otel_gpu_cgroup.cycle import Cycle
from otel_gpu_cgroup.nvidia.manager import NvidiaManager
from otel_gpu_cgroup.nvidia.nvml import PyNvml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.cgroup.bpf.reader import ProgramSource
    from otel_gpu_cgroup.host import HostPaths

PATIENCE: Final = 60.0
"""Seconds to wait for the fake driver."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Nothing here remembers anything yet when it is new."""

    discovery: ContainerDiscovery
    policies: PolicyReader
    manager: NvidiaManager
    cycle: Cycle


@contextmanager
def new_parts(host: HostPaths, programs: ProgramSource | None = None) -> Iterator[Parts]:
    """Parts of which only the driver's library is started; the reader of policies is not the manager's."""
    discovery = ContainerDiscovery(host)
    manager = NvidiaManager(host, PyNvml(), PolicyReader(host, programs))
    manager.refresh(PATIENCE)
    cycle = Cycle(discovery, manager, lambda _: False, PATIENCE)
    try:
        yield Parts(discovery, PolicyReader(host, programs), manager, cycle)
    finally:
        manager.destroy()
