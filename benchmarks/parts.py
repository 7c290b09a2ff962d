# SPDX-License-Identifier: Apache-2.0
"""The parts of a cycle on a benchmark's host, made as the agent makes them but reachable one by one."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.syscall import Bpf
from otel_gpu_cgroup.cgroup.reader import PolicyReader
from otel_gpu_cgroup.containers.discovery.containers import ContainerDiscovery
from otel_gpu_cgroup.held import HeldFiles
from otel_gpu_cgroup.nvidia.manager import NvidiaManager
from otel_gpu_cgroup.nvidia.nvml import PyNvml
from tests.support.wiring import new_cycle, new_lost_watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from otel_gpu_cgroup.cgroup.bpf.reader import ProgramSource
    from otel_gpu_cgroup.cycle import Cycle
    from otel_gpu_cgroup.host import HostPaths

PATIENCE: Final = 60.0
"""Seconds to wait for the fake driver."""
_MOST_HELD: Final = 4096
"""Files; the agent holds half of what its limit allows."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Nothing here remembers anything yet when it is new."""

    discovery: ContainerDiscovery
    policies: PolicyReader
    manager: NvidiaManager
    cycle: Cycle


@contextmanager
def new_parts(host: HostPaths, new_programs: Callable[[HeldFiles], ProgramSource] = Bpf) -> Iterator[Parts]:
    """Parts of which only the driver's library is started; the reader of policies is not the manager's."""
    discovery = ContainerDiscovery(host)
    files = HeldFiles(_MOST_HELD)
    asked = new_programs(files)
    manager = NvidiaManager(host, PyNvml(), PolicyReader(host, asked, files), new_lost_watch(host, asked))
    manager.refresh(PATIENCE)
    own_files = HeldFiles(_MOST_HELD)
    policies = PolicyReader(host, new_programs(own_files), own_files)
    try:
        yield Parts(discovery, policies, manager, new_cycle(host, manager, timeout=PATIENCE))
    finally:
        manager.destroy()
        files.close()
        own_files.close()
