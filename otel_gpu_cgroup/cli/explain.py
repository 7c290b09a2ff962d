# SPDX-License-Identifier: Apache-2.0
"""`explain`: why one container has, or has not, each GPU."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.policy import UnknownPolicy
from otel_gpu_cgroup.cli.explanation import Explanation, Speaker, render_explanation
from otel_gpu_cgroup.cli.labels import container_label
from otel_gpu_cgroup.cli.looks import look
from otel_gpu_cgroup.cli.selection import LEAST_DIGITS, find_outer, name_trouble, select_containers
from otel_gpu_cgroup.cli.table import aligned
from otel_gpu_cgroup.compose import open_host, open_senses
from otel_gpu_cgroup.containers.discovery.containers import read_cgroup_layout
from otel_gpu_cgroup.containers.discovery.placement import read_first_process
from otel_gpu_cgroup.containers.naming.names import matches
from otel_gpu_cgroup.errors import Gone, GpuCgroupError, HostUnreadable, NoSuchContainer, PolicyUnreadable
from otel_gpu_cgroup.model import AccessClass, ContainerReport, Stage
from otel_gpu_cgroup.nvidia.judgement import judge
from otel_gpu_cgroup.nvidia.share import own_shares
from otel_gpu_cgroup.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.cgroup.policy import DevicePolicy, PolicyReading
    from otel_gpu_cgroup.compose import Senses
    from otel_gpu_cgroup.cycle import Discovery
    from otel_gpu_cgroup.host import HostPaths
    from otel_gpu_cgroup.model import CgroupLayout, Container, DeviceInventory, NodeStats
    from otel_gpu_cgroup.nvidia.judgement import Judgement
    from otel_gpu_cgroup.settings import Settings

_DRIVER_TIMEOUT: Final = 60.0
"""Seconds, as `once` waits."""


def run_explain(settings: Settings, wanted: str) -> int:
    """Print the explanation, of the last look; raises NoSuchContainer when not one container is meant."""
    with open_host(settings) as host, open_senses(settings, host, _DRIVER_TIMEOUT) as senses:
        stats = look(senses.cycle.collect)
        container = _the_one(wanted, stats, senses.discovery)
        print(render_explanation(_explain(container, stats, senses, host, settings)))
    return 0


def _the_one(wanted: str, stats: NodeStats, discovery: Discovery) -> Container:
    """The container that is meant, also a unit that counts as none; where several may be, they are printed."""
    containers = [report.container for report in stats.containers]
    found = select_containers(wanted, containers) or select_containers(wanted, _find_units(discovery))
    if len(found) == 1:
        return found[0]
    name = printable(wanted, limit=120)
    if found:
        rows = [(it.runtime, container_label(it), printable(it.cgroup, limit=4096)) for it in found]
        print("\n".join(aligned(rows)))
        raise NoSuchContainer(f"'{name}' may be each of these {len(found)}; say more of its id, or its cgroup")
    for problem in stats.problems:
        if problem.stage is Stage.DISCOVERY and not stats.up.get(Stage.DISCOVERY):
            raise NoSuchContainer(f"containers cannot be looked for: {problem.message}")
    raise NoSuchContainer(
        f"none of the {len(containers)} containers here is '{name}'; name it by its id, the first {LEAST_DIGITS} or "
        "more digits of it, name, namespace/pod[/container] or cgroup, as `once --format json` lists them"
    )


def _find_units(discovery: Discovery) -> list[Container]:
    """Those of systemd, most of which have nothing to do with GPUs and are in no cycle."""
    try:
        return [container for container in discovery.discover() if container.is_unit]
    except GpuCgroupError:
        return []


def _explain(
    container: Container, stats: NodeStats, senses: Senses, host: HostPaths, settings: Settings
) -> Explanation:
    inventory = stats.inventory
    policy, judgement = _judge(container, senses.policies, inventory)
    containers = [report.container for report in stats.containers]
    reports = {report.container.key: report for report in stats.containers}
    ownership = senses.processes.attribute(inventory, containers)
    return Explanation(
        report=reports.get(container.key) or ContainerReport(container, judgement.access, judgement.source),
        policy=policy,
        judgement=judgement,
        speakers=tuple(_speakers(container, read_cgroup_layout(host))),
        inventory=inventory,
        shares=own_shares(inventory.readings, ownership),
        share_trouble=next((problem.message for problem in ownership.problems), None),
        name_trouble=name_trouble(container, stats.problems),
        outer=find_outer(container, containers),
        exclusion=_exclusion(container, settings) if _is_excluded(reports.get(container.key)) else None,
        is_reported=container.key in reports,
        unrestricted=settings.unrestricted,
    )


def _is_excluded(report: ContainerReport | None) -> bool:
    return report is not None and report.access is AccessClass.EXCLUDED


def _exclusion(container: Container, settings: Settings) -> str:
    """Why it is left out; what no glob of the user's names is the one that this runs in."""
    globs = (glob for glob in settings.exclude_containers if matches(container, glob))
    return next((f"by --exclude-containers '{glob}'" for glob in globs), "as the one that this runs in")


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
