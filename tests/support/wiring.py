# SPDX-License-Identifier: Apache-2.0
"""The parts of a cycle over a host's files, wired as the product wires them, without its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_gpu_cgroup.cgroup.bpf.syscall import Bpf
from otel_gpu_cgroup.cgroup.evidence import Evidence
from otel_gpu_cgroup.containers.discovery.containers import ContainerDiscovery
from otel_gpu_cgroup.containers.naming.naming import Naming
from otel_gpu_cgroup.containers.processes.table import ProcessTable
from otel_gpu_cgroup.cycle import Cycle
from otel_gpu_cgroup.nvidia.lost import LostWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_gpu_cgroup.accelerator import AcceleratorManager
    from otel_gpu_cgroup.cgroup.bpf.reader import ProgramSource
    from otel_gpu_cgroup.host import HostPaths
    from otel_gpu_cgroup.model import Container


def new_lost_watch(host: HostPaths, programs: ProgramSource | None = None) -> LostWatch:
    return LostWatch(Evidence(host, programs or Bpf()))


def new_cycle(
    host: HostPaths,
    manager: AcceleratorManager,
    is_excluded: Callable[[Container], bool] = lambda _: False,
    *,
    timeout: float = 30,
    is_host: bool = False,
) -> Cycle:
    """By default a host of files, whose processes are files, too."""
    processes = ProcessTable(host, is_host=is_host)
    return Cycle(ContainerDiscovery(host), Naming(host), processes, manager, is_excluded, timeout)
