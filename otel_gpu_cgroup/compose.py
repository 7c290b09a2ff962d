# SPDX-License-Identifier: Apache-2.0
"""The only place that wires: settings in, a cycle that can be run out."""

from __future__ import annotations

import logging
import os
import resource
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.syscall import Bpf
from otel_gpu_cgroup.cgroup.evidence import Evidence
from otel_gpu_cgroup.cgroup.probe import OwnPolicyReader
from otel_gpu_cgroup.cgroup.reader import PolicyReader
from otel_gpu_cgroup.containers.discovery.containers import ContainerDiscovery
from otel_gpu_cgroup.containers.naming.names import matches
from otel_gpu_cgroup.containers.naming.naming import Naming, OwnNaming
from otel_gpu_cgroup.containers.own.discovery import OwnDiscovery, read_own_cgroups, sees_only_itself
from otel_gpu_cgroup.containers.processes.table import ProcessTable
from otel_gpu_cgroup.cycle import Cycle, Discovery
from otel_gpu_cgroup.errors import HostUnreadable, SettingsError
from otel_gpu_cgroup.held import HeldFiles
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.nvidia.lost import LostWatch
from otel_gpu_cgroup.nvidia.manager import NvidiaManager
from otel_gpu_cgroup.nvidia.nvml import PyNvml
from otel_gpu_cgroup.settings import Scope, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from otel_gpu_cgroup.cgroup.bpf.reader import ProgramSource
    from otel_gpu_cgroup.cgroup.policy import PolicyReading
    from otel_gpu_cgroup.model import Container
    from otel_gpu_cgroup.nvidia.nvml import Nvml

_log: Final = logging.getLogger(__name__)
_DRIVER_PLACES: Final = (
    "/home/kubernetes/bin/nvidia/lib64",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "/run/nvidia/driver/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
)
"""Where GKE, the GPU operator and distributions put the driver's library, below the host's root."""

_MOST_HELD: Final = 16_384
"""Two for each container of a node that has more of them than any."""


@contextmanager
def open_host(settings: Settings) -> Iterator[HostPaths]:
    """The host that is looked at; a simulated one lives as long as the context. Raises SettingsError."""
    if settings.simulate is None:
        if not os.path.isdir(settings.host_root / "proc"):  # which raises nothing
            raise SettingsError("--host-root", str(settings.host_root), "a folder that has the host's /proc")
        yield HostPaths(settings.host_root)
        return
    from otel_gpu_cgroup.simulate.tree import write_tree

    with _temporary_folder() as folder:
        write_tree(Path(folder), settings.simulate)
        yield HostPaths(Path(folder))


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="otel-gpu-cgroup-")
    except OSError as error:
        raise HostUnreadable(f"no temporary folder for the simulated host: {error.strerror}; set TMPDIR") from error


def with_scope(settings: Settings, host: HostPaths) -> Settings:
    """The settings with a scope; where none was chosen, and only the own container is visible, a warning names it."""
    if settings.scope is Scope.SELF and settings.simulate is not None:
        raise SettingsError("--scope", settings.scope.value, "node with --simulate")
    if settings.scope is not None:
        return settings
    if settings.simulate is not None or host != HostPaths() or not sees_only_itself(host):
        return replace(settings, scope=Scope.NODE)
    _log.warning("only this process' own container is visible: that alone is reported scope=self")
    return replace(settings, scope=Scope.SELF)


@dataclass(frozen=True, slots=True)
class Senses:
    """What looks at a host: the cycle, and what it finds containers, policies and processes by."""

    cycle: Cycle
    discovery: Discovery
    policies: PolicyReading
    processes: ProcessTable


@contextmanager
def open_cycle(settings: Settings, host: HostPaths, driver_timeout: float) -> Iterator[Cycle]:
    """The cycle of a host, which begins to reach for the driver at once and lets go of it in the end."""
    with open_senses(settings, host, driver_timeout) as senses:
        yield senses.cycle


@contextmanager
def open_senses(settings: Settings, host: HostPaths, driver_timeout: float) -> Iterator[Senses]:
    """The same, for who asks about one container what a cycle does not tell."""
    settings = with_scope(settings, host)
    own = settings.scope is Scope.SELF
    files = HeldFiles(_spare_files())
    programs = _programs(settings, host, files)
    kernel = PolicyReader(host, programs, files)
    policies: PolicyReading = OwnPolicyReader(kernel) if own else kernel
    lost = LostWatch(Evidence(host, programs))
    manager = NvidiaManager(host, _nvml(settings, host), policies, lost, unrestricted=settings.unrestricted)
    manager.setup()
    discovery: Discovery = OwnDiscovery() if own else ContainerDiscovery(host)
    processes = ProcessTable(host, own_only=own, is_host=settings.simulate is None)
    try:
        cycle = Cycle(
            discovery,
            OwnNaming() if own else Naming(host),
            processes,
            manager,
            _exclusion(settings, host),
            driver_timeout,
        )
        yield Senses(cycle, discovery, policies, processes)
    finally:
        manager.destroy()
        files.close()


def _spare_files() -> int:
    """How many files may be held open: half of what the process may open, the other half is for all else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_HELD if soft == resource.RLIM_INFINITY else min(soft // 2, _MOST_HELD)


def _programs(settings: Settings, host: HostPaths, files: HeldFiles) -> ProgramSource:
    if settings.simulate is not None:
        from otel_gpu_cgroup.simulate.bpf import SimulatedBpf

        return SimulatedBpf(host.root)
    return Bpf(files)


def _nvml(settings: Settings, host: HostPaths) -> Nvml:
    if settings.simulate is not None:
        from otel_gpu_cgroup.simulate.nvml import SimulatedNvml

        return SimulatedNvml(time.time)
    places = tuple(host.under_root(f"{place}/libnvidia-ml.so.1") for place in _DRIVER_PLACES)
    return PyNvml(settings.nvml_library, places)


def _exclusion(settings: Settings, host: HostPaths) -> Callable[[Container], bool]:
    """Says of a container whether it is this agent's own, or one that the user does not want to see."""
    hides_own = settings.simulate is None and settings.scope is Scope.NODE
    own = read_own_cgroups(host) if hides_own else frozenset[str]()

    def is_excluded(container: Container) -> bool:
        return container.cgroup in own or any(matches(container, glob) for glob in settings.exclude_containers)

    return is_excluded
