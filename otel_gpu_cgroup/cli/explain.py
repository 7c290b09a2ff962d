# SPDX-License-Identifier: Apache-2.0
"""`explain`: why one container has, or has not, each GPU."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.policy import UnknownPolicy
from otel_gpu_cgroup.cli.explanation import Explanation, Speaker, render_explanation
from otel_gpu_cgroup.cli.selection import LEAST_DIGITS, select_containers
from otel_gpu_cgroup.compose import open_host, open_senses
from otel_gpu_cgroup.containers.discovery import read_cgroup_layout
from otel_gpu_cgroup.containers.placement import read_first_process
from otel_gpu_cgroup.errors import Gone, HostUnreadable, NoSuchContainer, PolicyUnreadable
from otel_gpu_cgroup.model import AccessClass, Stage
from otel_gpu_cgroup.nvidia.judgement import judge
from otel_gpu_cgroup.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.cgroup.policy import DevicePolicy, PolicyReading
    from otel_gpu_cgroup.host import HostPaths
    from otel_gpu_cgroup.model import CgroupLayout, Container, ContainerReport, DeviceInventory, NodeStats
    from otel_gpu_cgroup.nvidia.judgement import Judgement
    from otel_gpu_cgroup.settings import Settings

_DRIVER_TIMEOUT: Final = 60.0
"""Seconds, as `once` waits."""


def run_explain(settings: Settings, wanted: str) -> int:
    """Print the explanation; raises NoSuchContainer when not one container is meant."""
    with open_host(settings) as host, open_senses(settings, host, _DRIVER_TIMEOUT) as senses:
        stats = senses.cycle.collect()
        report = _the_one(wanted, stats)
        print(render_explanation(_explain(report, stats.inventory, senses.policies, host)))
    return 0


def _the_one(wanted: str, stats: NodeStats) -> ContainerReport:
    """The container that is meant; where several may be, they are printed."""
    reports = {report.container.key: report for report in stats.containers}
    found = select_containers(wanted, [report.container for report in stats.containers])
    if len(found) == 1:
        return reports[found[0].key]
    name = printable(wanted, limit=120)
    if found:
        print("\n".join(f"{container.runtime}  {printable(container.cgroup)}" for container in found))
        raise NoSuchContainer(f"'{name}' may be each of these {len(found)}; say more of its id, or its cgroup")
    for problem in stats.problems:
        if problem.stage is Stage.DISCOVERY and not stats.up.get(Stage.DISCOVERY):
            raise NoSuchContainer(f"containers cannot be looked for: {problem.message}")
    raise NoSuchContainer(
        f"none of the {len(reports)} containers here is '{name}'; name it by its id, the first {LEAST_DIGITS} or more "
        "digits of it, name, namespace/pod[/container] or cgroup, as `once --format json` lists them"
    )


def _explain(
    report: ContainerReport, inventory: DeviceInventory, policies: PolicyReading, host: HostPaths
) -> Explanation:
    policy, judgement = _judge(report.container, policies, inventory)
    return Explanation(
        container=report.container,
        policy=policy,
        judgement=judgement,
        speakers=tuple(_speakers(report.container, read_cgroup_layout(host))),
        gpus=inventory.gpus,
        readings=inventory.readings,
        is_excluded=report.access is AccessClass.EXCLUDED,
    )


def _judge(container: Container, policies: PolicyReading, inventory: DeviceInventory) -> tuple[DevicePolicy, Judgement]:
    """The policy and what it means; where the kernel does not tell, with what others know."""
    policy = _read_policy(container, policies)
    judgement = judge(policy, inventory.gpus, are_all=inventory.are_all)
    stand_in = policies.read_stand_in(container, policy) if judgement.access is AccessClass.UNKNOWN else None
    if stand_in is None:
        return policy, judgement
    return stand_in, judge(stand_in, inventory.gpus, are_all=inventory.are_all)


def _read_policy(container: Container, policies: PolicyReading) -> DevicePolicy:
    try:
        return policies.read(container)
    except Gone:
        raise
    except PolicyUnreadable as error:
        return UnknownPolicy(error)
    except HostUnreadable as error:
        return UnknownPolicy(PolicyUnreadable(str(error)))


def _speakers(container: Container, layout: CgroupLayout) -> Iterator[Speaker]:
    """The folder that was asked in each hierarchy; the container's processes are looked for where it was found."""
    top = layout.devices or layout.unified
    first = None if top is None else read_first_process(f"{os.fspath(top)}{container.cgroup}")
    for hierarchy, root, folder in (
        ("cgroup v1", layout.devices, container.devices),
        ("cgroup v2", layout.unified, container.unified),
    ):
        if root is not None and folder is not None:
            own = folder == f"{os.fspath(root)}{container.cgroup}"
            yield Speaker(hierarchy, folder, _reason(None if first is None else first[0], own=own))


def _reason(pid: int | None, *, own: bool) -> str:
    if pid is None:
        return "its own cgroup; no process of it is seen" if own else "no process of it is seen any more"
    return f"its own cgroup, where its first process, {pid}, is" if own else f"where its first process, {pid}, is"
