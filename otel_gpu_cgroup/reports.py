# SPDX-License-Identifier: Apache-2.0
"""Pure: what the rows of one cycle say of each device, of whom a container is, and which stages work."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import (
    AccessClass,
    ContainerReport,
    DeviceInventory,
    DeviceKind,
    Gpu,
    GpuReading,
    GpuReport,
    GpuUuid,
    Ownership,
    OwnShare,
    Problem,
    Stage,
)
from otel_gpu_cgroup.nvidia.share import unattributed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NO_READING: Final = GpuReading()


@dataclass(frozen=True, slots=True)
class _Claim:
    """What the rows on one device say."""

    holders: dict[str, None] = field(default_factory=dict)
    """Keys of the containers that have not lost it, in their order."""
    shares: list[OwnShare | None] = field(default_factory=list)
    """Of each row, and of each process of a container that has none."""


_NO_CLAIM: Final = _Claim()


def is_reported(report: ContainerReport) -> bool:
    """Whether it is a container: a systemd unit is one where it was given GPUs, lost one, or uses one."""
    return not report.container.is_unit or bool(report.accelerators) or report.access is AccessClass.EXPLICIT


def is_certain(report: ContainerReport) -> bool:
    """Whether the kernel told what the container may open, or nobody wants to know."""
    return report.access is AccessClass.EXCLUDED or report.source.is_kernel


def gpu_reports(
    inventory: DeviceInventory,
    containers: Sequence[ContainerReport],
    ownership: Ownership,
    *,
    discovered: bool,
    complete: bool,
) -> tuple[tuple[GpuReport, ...], tuple[Problem, ...]]:
    """A report for each device, and a Problem for each whose processes use more than is in use on it.

    `discovered`: all containers were found; `complete`: and the kernel told what each may open.
    """
    claims = _claims(containers)
    for device, share in _rowless(inventory, containers, ownership):
        claims[device].shares.append(share)
    reports, problems = [], []
    for gpu in inventory.gpus:
        reading, claim = _NO_READING, _NO_CLAIM
        if gpu.uuid is not None:
            reading = inventory.readings.get(gpu.uuid, _NO_READING)
            claim = claims.get(gpu.uuid, _NO_CLAIM)
            if _exceeds(reading.memory_used, claim.shares):
                problems.append(_excess(gpu.uuid, reading.memory_used))
        is_told = discovered and _are_processes_told(gpu, inventory, ownership)
        rest = unattributed(reading.memory_used, claim.shares) if is_told else None
        reports.append(GpuReport(gpu, reading, tuple(claim.holders), complete=complete, unattributed=rest))
    return tuple(reports), tuple(problems)


def _claims(containers: Sequence[ContainerReport]) -> defaultdict[GpuUuid, _Claim]:
    """By device; rows on an instance are its GPU's, too."""
    claims: defaultdict[GpuUuid, _Claim] = defaultdict(_Claim)
    for report in containers:
        for row in report.accelerators:
            for device in _with_parent(row.id, row.parent):
                claims[device].shares.append(row.own)
                if not row.lost:
                    claims[device].holders[report.container.key] = None
    return claims


def _rowless(
    inventory: DeviceInventory, containers: Sequence[ContainerReport], ownership: Ownership
) -> Iterator[tuple[GpuUuid, OwnShare]]:
    """What each process uses of a device on which its container has no row: one that is excluded, for example."""
    users = {owner.container for owner in ownership.owners.values()}
    rows = {
        report.container.key: {row.id for row in report.accelerators}
        for report in containers
        if report.container.key in users
    }
    for gpu in inventory.gpus:
        if gpu.uuid is None or gpu.kind is DeviceKind.PARTITIONED:  # which lists its instances' processes again
            continue
        for process in inventory.readings.get(gpu.uuid, _NO_READING).processes or ():
            owner = ownership.owners.get(process.pid)
            if owner is not None and gpu.uuid not in rows.get(owner.container or "", (gpu.uuid,)):
                for device in _with_parent(gpu.uuid, gpu.instance.parent if gpu.instance else None):
                    yield device, OwnShare(process.memory, None, processes=1)


def _with_parent(device: GpuUuid, parent: GpuUuid | None) -> tuple[GpuUuid, ...]:
    return (device,) if parent is None else (device, parent)


def stages_up(
    inventory: DeviceInventory,
    containers: Sequence[ContainerReport],
    ownership: Ownership,
    *,
    discovered: bool,
    names: bool | None,
) -> dict[Stage, bool]:
    """Which stages work.

    Policy needs a container that is judged, NVML a GPU that the kernel or the driver names, share an NVML that answers,
    names a container that somebody should name.
    """
    up = {Stage.DISCOVERY: discovered}
    judged = [report.access for report in containers if report.access is not AccessClass.EXCLUDED]
    if judged:
        up[Stage.POLICY] = any(access is not AccessClass.UNKNOWN for access in judged)
    if inventory.nvml_gpus is not None or inventory.pci_gpus or inventory.gpus:
        up[Stage.NVML] = inventory.nvml_gpus is not None
    if inventory.readings:
        listed = any(reading.processes is not None for reading in inventory.readings.values())
        up[Stage.SHARE] = ownership.is_told and listed
    if names is not None:
        up[Stage.NAMES] = names
    return up


def _are_processes_told(gpu: Gpu, inventory: DeviceInventory, ownership: Ownership) -> bool:
    """Whether it is known who uses the device; of a partitioned GPU each instance's list tells."""
    parts = [it for it in inventory.gpus if it.instance is not None and it.instance.parent == gpu.uuid] or [gpu]
    readings = (inventory.readings.get(part.uuid or GpuUuid(""), _NO_READING) for part in parts)
    return ownership.is_told and all(reading.processes is not None for reading in readings)


def _exceeds(used: int | None, shares: Sequence[OwnShare | None]) -> bool:
    known = [share.memory for share in shares if share is not None and share.memory is not None]
    return used is not None and sum(known) > used


def _excess(uuid: GpuUuid, used: int | None) -> Problem:
    message = f"its processes hold more than the {used} bytes that are in use on it; who holds the rest is not told"
    return Problem(Stage.SHARE, uuid, message)
