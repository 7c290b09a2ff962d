# SPDX-License-Identifier: Apache-2.0
"""Pure: which devices a container may open, node by node, and what each list or program said of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.policy import MEMORY_NODE, UNUSED_GPU_NODE
from otel_gpu_cgroup.cli.labels import capability_label, device_label
from otel_gpu_cgroup.cli.reasons import Subject
from otel_gpu_cgroup.cli.table import UNKNOWN, aligned, busy_cell, memory_cell
from otel_gpu_cgroup.model import READ_WRITE, GpuReading, Verdict
from otel_gpu_cgroup.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_gpu_cgroup.cli.explanation import Explanation
    from otel_gpu_cgroup.cli.reasons import Voice
    from otel_gpu_cgroup.model import Gpu, MigInstance
    from otel_gpu_cgroup.nvidia.judgement import Judgement

PROBES: Final = (
    (Subject("195:253", UNUSED_GPU_NODE), "no GPU: only wildcards allow it"),
    (Subject("1:1", MEMORY_NODE), "/dev/mem: only allow-all allows it"),
)
_NO_READING: Final = GpuReading()


def node_subjects(gpus: Sequence[Gpu]) -> list[Subject]:
    """Every node that these devices need, each once: GPUs by their names, then capabilities by theirs."""
    physical = [Subject(device_label(gpu), gpu.node) for gpu in gpus if gpu.instance is None]
    instances = (gpu.instance for gpu in gpus if gpu.instance is not None)
    needed = (node for instance in instances for node in instance.nodes or ())
    return [*physical, *(Subject(capability_label(node), node) for node in dict.fromkeys(needed))]


def verdict_lines(it: Explanation, gpus: Sequence[Gpu], heard: Sequence[Voice]) -> Iterator[str]:
    """A table with a row for each device, and for each node that an instance needs beside its GPU's."""
    titles = [voice.title.upper() for voice in heard]
    rows = [("GPU", "INDEX", "UUID", "MAY OPEN", *titles, "MEMORY", "BUSY")]
    for gpu in gpus:
        rows.append(_device_row(it, gpu, heard))
        if gpu.instance is not None:
            rows += _capability_rows(it, gpu.instance, heard)
    rows += (_node_row(it, subject.name, f"({meaning})", subject, heard) for subject, meaning in PROBES)
    yield from aligned(rows)
    if not it.inventory.gpus:
        yield "No GPU of this host is known: the rows are nodes that a driver could have."


def _device_row(it: Explanation, gpu: Gpu, heard: Sequence[Voice]) -> tuple[str, ...]:
    """Of a GPU its node's verdict; of an instance what those of all its nodes come to."""
    reading = _NO_READING if gpu.uuid is None else it.inventory.readings.get(gpu.uuid, _NO_READING)
    index, uuid = UNKNOWN if gpu.index is None else str(gpu.index), printable(gpu.uuid or UNKNOWN)
    if gpu.instance is None:
        verdict, said = it.policy.allows(gpu.node, READ_WRITE), [voice.says(gpu.node) for voice in heard]
    else:
        verdict, said = _judged(gpu, it.judgement), [""] * len(heard)
    return device_label(gpu), index, uuid, verdict.value, *said, memory_cell(reading), busy_cell(reading)


def _judged(gpu: Gpu, judgement: Judgement) -> Verdict:
    if gpu in judgement.gpus:
        return Verdict.ALLOW
    return Verdict.DENY if gpu in judgement.denied else Verdict.UNKNOWN


def _capability_rows(it: Explanation, instance: MigInstance, heard: Sequence[Voice]) -> Iterator[tuple[str, ...]]:
    if instance.nodes is None:
        yield ("", "", "(its capability nodes are not known)", *[""] * (len(heard) + 3))
        return
    meanings = (f"GPU instance {instance.profile or ''}".rstrip(), "its compute instance")
    for node, meaning in zip(instance.nodes, meanings, strict=True):
        subject = Subject(capability_label(node), node)
        yield _node_row(it, f"  {subject.name}", printable(f"({meaning})"), subject, heard)


def _node_row(it: Explanation, name: str, meaning: str, subject: Subject, heard: Sequence[Voice]) -> tuple[str, ...]:
    verdict = it.policy.allows(subject.node, READ_WRITE).value
    return name, "", meaning, verdict, *(voice.says(subject.node) for voice in heard), "", ""
