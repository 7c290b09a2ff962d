# SPDX-License-Identifier: Apache-2.0
"""`doctor`: looks at everything that the answers rest on, and says what to do. Only reads."""

from __future__ import annotations

import importlib.metadata
import os
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.reader import BpfReader
from otel_gpu_cgroup.cgroup.bpf.syscall import Bpf
from otel_gpu_cgroup.cli.checks import render_json, render_table, run_checks
from otel_gpu_cgroup.cli.facts import Facts, Result
from otel_gpu_cgroup.cli.labels import capability_label, device_label
from otel_gpu_cgroup.cli.looks import look
from otel_gpu_cgroup.compose import open_cycle, open_host
from otel_gpu_cgroup.containers.discovery.containers import read_cgroup_layout
from otel_gpu_cgroup.errors import GpuCgroupError, HostUnreadable, ParseError
from otel_gpu_cgroup.host import read_names, read_text
from otel_gpu_cgroup.model import CgroupLayout
from otel_gpu_cgroup.settings import OutputFormat

if TYPE_CHECKING:
    from pathlib import Path

    from otel_gpu_cgroup.host import HostPaths
    from otel_gpu_cgroup.model import NodeStats
    from otel_gpu_cgroup.settings import Settings

_DRIVER_TIMEOUT: Final = 60.0
"""Seconds, as `once` waits."""
_FAILED: Final = 1
_CAPABILITIES: Final = {"CAP_NET_ADMIN": 12, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_SYSLOG": 34}
"""Bits of linux/capability.h, of those that some check asks for."""
_HOST_PID_NAMESPACE: Final = "pid:[4026531836]"
_HOST_USER_NAMESPACE: Final = "user:[4026531837]"
"""Numbers that the kernel gives to its first namespaces (linux/nsfs.h)."""
_NAME_PLACES: Final = (
    "/var/log/containers",
    "/var/log/pods",
    "/run/containerd",
    "/run/k3s/containerd",
    "/run/docker/containerd",
    "/run/containers/storage",
    "/var/lib/docker/containers",
    "/var/lib/containers/storage",
)
"""Where kubelet and the engines leave the names of containers."""
_AGENT_PACKAGES: Final = ("opentelemetry-sdk", "opentelemetry-exporter-otlp")


def run_doctor(settings: Settings) -> int:
    """Print one line for each check; 1 if one fails."""
    with open_host(settings) as host, open_cycle(settings, host, _DRIVER_TIMEOUT) as cycle:
        stats = look(cycle.collect)
        facts = _read_facts(host, stats, simulated=settings.simulate is not None)
    checks = run_checks(facts)
    print(render_json(checks) if settings.format is OutputFormat.JSON else render_table(checks))
    return _FAILED if any(check.result is Result.FAIL for check in checks) else 0


def _read_facts(host: HostPaths, stats: NodeStats, *, simulated: bool) -> Facts:
    layout, layout_trouble = _read_layout(host)
    programs, programs_trouble = _count_programs(None if simulated else layout.unified)
    return Facts(
        stats=stats,
        layout=layout,
        layout_trouble=layout_trouble,
        simulated=simulated,
        capabilities=_read_capabilities(),
        root_programs=programs,
        programs_trouble=programs_trouble,
        jit_harden=_read_number("/proc/sys/net/core/bpf_jit_harden"),
        kptr_restrict=_read_number("/proc/sys/kernel/kptr_restrict"),
        gpu_files=_count_names(host.proc / "driver/nvidia/gpus"),
        missing_nodes=_missing_nodes(host, stats),
        name_places=tuple(place for place in _NAME_PLACES if host.under_root(place).is_dir()),
        in_host_pid_namespace=_is_in("pid", _HOST_PID_NAMESPACE),
        packages={name: _version(name) for name in _AGENT_PACKAGES},
    )


def _read_layout(host: HostPaths) -> tuple[CgroupLayout, str | None]:
    try:
        return read_cgroup_layout(host), None
    except (HostUnreadable, ParseError) as error:
        return CgroupLayout(), str(error)


def _count_programs(unified: Path | None) -> tuple[int | None, str | None]:
    """Device programs in effect on the root cgroup, or why the kernel does not tell."""
    if unified is None:
        return None, None
    try:
        return len(BpfReader(Bpf()).read(os.fspath(unified)).programs), None
    except GpuCgroupError as error:
        return None, str(error)


def parse_capabilities(status: str) -> frozenset[str]:
    """The effective capabilities of a /proc/PID/status, of those that matter here."""
    masks = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")]
    mask = int(masks[0], 16) if masks else 0
    return frozenset(name for name, bit in _CAPABILITIES.items() if mask >> bit & 1)


def _read_capabilities() -> frozenset[str]:
    """Of this process; none in a user namespace, whose capabilities the kernel does not count for bpf(2)."""
    return parse_capabilities(read_text("/proc/self/status")) if _is_in("user", _HOST_USER_NAMESPACE) else frozenset()


def _is_in(kind: str, namespace: str) -> bool:
    try:
        return os.readlink(f"/proc/self/ns/{kind}") == namespace
    except OSError:
        return False


def _read_number(path: str) -> int | None:
    try:
        return int(read_text(path))
    except (HostUnreadable, ValueError):
        return None


def _count_names(folder: Path) -> int:
    try:
        return len(read_names(folder))
    except HostUnreadable:
        return 0


def _missing_nodes(host: HostPaths, stats: NodeStats) -> tuple[str, ...]:
    gpus = stats.inventory.gpus
    capabilities = {node: None for gpu in gpus if gpu.instance for node in gpu.instance.nodes or ()}
    names = [
        "nvidiactl",
        *(device_label(gpu) for gpu in gpus if gpu.instance is None),
        *(f"nvidia-caps/{capability_label(node)}" for node in capabilities),
    ]
    return tuple(name for name in names if not host.under_root(f"/dev/{name}").exists())


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
