# SPDX-License-Identifier: Apache-2.0
"""Reads what shows that a container should be able to open a device that the kernel denies it.

Three things do: what systemd leaves of its rules, two programs on its cgroup that differ, and a node of the device in
a /dev of its own. What it could open before, and for how long, is the caller's to remember.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.policy import BpfPolicy
from otel_gpu_cgroup.cgroup.devices_list import DevicesList
from otel_gpu_cgroup.cgroup.fallback.nodes import read_container_nodes, read_node, read_nodes, read_process
from otel_gpu_cgroup.cgroup.policy import BothPolicies
from otel_gpu_cgroup.cgroup.signature import list_signature, parse_dev_mounts, program_signature
from otel_gpu_cgroup.errors import GpuCgroupError
from otel_gpu_cgroup.host import read_text
from otel_gpu_cgroup.model import READ_WRITE, PolicySource, Runtime, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from otel_gpu_cgroup.cgroup.bpf.reader import ProgramSource
    from otel_gpu_cgroup.cgroup.policy import DevicePolicy
    from otel_gpu_cgroup.host import HostPaths
    from otel_gpu_cgroup.model import Container, DeviceNode, Gpu

_OWN_DEV: Final = "its own /dev has the node"
_NO_SIGN: Final = frozenset({Runtime.SYSTEMD, Runtime.SLURM, Runtime.APPTAINER})
"""Whose processes see nodes whether or not they were given the device: the host's, or all that `--nv` mounts."""


class Evidence:
    """Looks at containers from outside."""

    def __init__(self, host: HostPaths, programs: ProgramSource) -> None:
        self._host = host
        self._programs = programs

    def find(self, container: Container, policy: DevicePolicy, gpus: Sequence[Gpu]) -> dict[Gpu, str]:
        """Why it should be able to open these devices, which the policy denies, in words for a person.

        A device for which nothing shows it is left out; what cannot be read shows nothing. Never raises.
        """
        own_nodes = self._read_own_nodes(container, policy)
        on_cgroups = functools.cache(lambda: self._ask_own_cgroups(container))
        found = {}
        for gpu in gpus:
            nodes = gpu.nodes or ()
            is_there = None if own_nodes is None else own_nodes.issuperset(nodes)
            denied = [node for node in nodes if policy.allows(node, READ_WRITE) is Verdict.DENY]
            reason = _find_signature(container, policy, denied, is_there=is_there, on_cgroups=on_cgroups)
            if denied and (reason is not None or is_there):
                found[gpu] = reason or _OWN_DEV
        return found

    def _ask_own_cgroups(self, container: Container) -> list[tuple[int, ...]]:
        """The programs of each of its cgroups."""
        try:
            return [self._programs.query_local(folder) for folder in _own_cgroups(container)]
        except GpuCgroupError:
            return []

    def _read_own_nodes(self, container: Container, policy: DevicePolicy) -> frozenset[DeviceNode] | None:
        """The nodes in a /dev of its own; None where it has none, or nobody can tell."""
        if container.runtime in _NO_SIGN:
            return None
        try:
            if policy.source is PolicySource.PROBE:
                return self._read_probed_nodes()
            cgroup = container.devices or container.unified
            return None if cgroup is None else self._read_nodes(cgroup)
        except GpuCgroupError:
            return None

    def _read_nodes(self, cgroup: str) -> frozenset[DeviceNode] | None:
        nodes = read_container_nodes(self._host, cgroup)
        process = read_process(cgroup) if nodes is None else None
        if process is None:
            return nodes
        folder = os.fspath(self._host.proc / process)
        mounts = parse_dev_mounts(read_text(f"{folder}/mountinfo"))
        if mounts.is_hosts:
            return None
        return frozenset(filter(None, (read_node(f"{folder}/root{point}") for point in mounts.nodes))) or None

    def _read_probed_nodes(self) -> frozenset[DeviceNode] | None:
        """Those of this process, whose /dev is its container's; from inside no other is there to compare it with."""
        mounts = parse_dev_mounts(read_text(self._host.proc / "self/mountinfo"))
        return None if mounts.is_hosts else frozenset(read_nodes(os.fspath(self._host.under_root("/dev"))).values())


def _find_signature(
    container: Container,
    policy: DevicePolicy,
    denied: Sequence[DeviceNode],
    *,
    is_there: bool | None,
    on_cgroups: Callable[[], Sequence[Collection[int]]],
) -> str | None:
    """What the rules or programs show; `is_there` is whether a /dev of its own has the nodes, None without such a one.

    A rule for all minors shows nothing of a device that such a /dev lacks, nor of units and Slurm steps: batch systems
    have such rules for all jobs.
    """
    if isinstance(policy, BothPolicies):
        signs = (
            _find_signature(container, part, denied, is_there=is_there, on_cgroups=on_cgroups) for part in policy.parts
        )
        return next(filter(None, signs), None)
    denied = [node for node in denied if policy.allows(node, READ_WRITE) is Verdict.DENY]
    if isinstance(policy, DevicesList):
        any_minor = is_there is not False and not container.is_unit and container.slurm is None
        return list_signature(policy, denied, any_minor=any_minor)
    return program_signature(policy, denied, on_cgroups) if isinstance(policy, BpfPolicy) else None


def _own_cgroups(container: Container) -> Iterator[str]:
    """The cgroup2 folder of its first process, and those above it up to the container's own."""
    folder = container.unified
    if folder is None:
        return
    yield folder
    if f"{container.cgroup}/" not in f"{folder}/":
        return  # on a hybrid host its processes may be elsewhere
    while not folder.endswith(container.cgroup):
        folder = folder.rpartition("/")[0]
        yield folder
