# SPDX-License-Identifier: Apache-2.0
"""Pure: a sealed cycle as two tables for a person: each device with who holds it, then each container.

What is device-wide stands once a device, in the columns GPU …; what a container's own processes use of it stands
beside the container, in the columns OWN …. Last come losses and problems, where a terminal has its cursor.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cli.labels import container_label, device_label, joined, model_label, short_id
from otel_gpu_cgroup.cli.table import UNKNOWN, aligned, busy_cell, memory_cell, share_cells, size_cell
from otel_gpu_cgroup.model import DeviceKind
from otel_gpu_cgroup.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from otel_gpu_cgroup.model import AcceleratorStats, ContainerReport, GpuReport, GpuUuid, NodeStats

    _Cells = tuple[str, ...]

_DEVICES: Final = (
    *("GPU", "MODEL", "USE", "GPU MEMORY", "GPU BUSY"),
    *("OWN MEMORY", "OWN BUSY", "PROCS", "CONTAINER"),
)
_CONTAINERS: Final = ("ID", "RUNTIME", "ACCESS", "GPUS", "CONTAINER")
_NO_HEAD: Final = ("",) * 5
_NO_HOLDER: Final = ("",) * 4
_WORTH_A_LINE: Final = 0.05
"""Memory that is nobody's is shown from this part of the device's on; there is always a little."""


def render_table(stats: NodeStats) -> str:
    """Devices with their holders, containers, losses and problems; what is not known is a dash, never 0."""
    names = {report.gpu.uuid: device_label(report.gpu) for report in stats.gpus if report.gpu.uuid is not None}
    parts = (
        list(_device_table(stats)) or ["No NVIDIA GPU is known here."],
        list(_container_table(stats, names)) or ["No container is known here."],
        list(_losses(stats, names)),
        [
            f"problem: {problem.stage}: {printable(problem.subject)}: {printable(problem.message)}"
            for problem in stats.problems
        ],
    )
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _device_table(stats: NodeStats) -> Iterator[str]:
    rows: defaultdict[GpuUuid, list[_Cells]] = defaultdict(list)
    for report in stats.containers:
        label = container_label(report.container)
        for row in report.accelerators:
            rows[row.id].append((*share_cells(row.own), f"{label} (lost)" if row.lost else label))
    if stats.gpus:
        holders = ([] if report.gpu.uuid is None else rows[report.gpu.uuid] for report in stats.gpus)
        lines = (_device_lines(report, held) for report, held in zip(stats.gpus, holders, strict=True))
        yield from aligned([_DEVICES, *(line for device in lines for line in device)])


def _device_lines(report: GpuReport, holders: list[_Cells]) -> Iterator[_Cells]:
    """The device with its first holder, then a line for each other one and for what is nobody's."""
    gpu, reading = report.gpu, report.reading
    use = _use(report, has_rows=bool(holders))
    head = (device_label(gpu), model_label(gpu), use, memory_cell(reading), busy_cell(reading))
    first, *others = (*holders, *_unattributed(report)) or (_NO_HOLDER,)
    yield (*head, *first)
    for holder in others:
        yield (*_NO_HEAD, *holder)


def _use(report: GpuReport, *, has_rows: bool) -> str:
    """How many hold it, as far as that is known; of a partitioned GPU its instances tell.

    One that all its holders have lost may still be in use: it is free for the ledger, and not for a person.
    """
    if report.gpu.kind is DeviceKind.PARTITIONED:
        return "MIG"
    if len(report.containers) > 1:
        return "shared"
    if not report.complete:
        return UNKNOWN
    if report.containers:
        return "held"
    return "lost" if has_rows else "free"


def _unattributed(report: GpuReport) -> Iterator[_Cells]:
    size, total = report.unattributed, report.reading.memory_total
    if size is not None and total is not None and size >= total * _WORTH_A_LINE:
        yield size_cell(size), "", "", "(unattributed)"


def _container_table(stats: NodeStats, names: Mapping[GpuUuid, str]) -> Iterator[str]:
    """Those with devices first."""
    reports = sorted(stats.containers, key=lambda report: not report.accelerators)
    if reports:
        yield from aligned([_CONTAINERS, *(_container_row(report, names) for report in reports)])


def _container_row(report: ContainerReport, names: Mapping[GpuUuid, str]) -> _Cells:
    held = _named((row for row in report.accelerators if not row.lost), names)
    lost = _named((row for row in report.accelerators if row.lost), names)
    gpus = " ".join(filter(None, (held, f"lost:{lost}" if lost else ""))) or UNKNOWN
    container = report.container
    return short_id(container), container.runtime, report.access, gpus, container_label(container)


def _named(rows: Iterable[AcceleratorStats], names: Mapping[GpuUuid, str]) -> str:
    return joined([names.get(row.id) or printable(row.id) for row in rows])


def _losses(stats: NodeStats, names: Mapping[GpuUuid, str]) -> Iterator[str]:
    for report in stats.containers:
        for row in report.accelerators:
            if row.lost:
                device = names.get(row.id) or printable(row.id)
                why = printable(row.reason or UNKNOWN)
                yield f"lost: {container_label(report.container)} should be able to open {device}: {why}"
