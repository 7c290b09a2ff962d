# SPDX-License-Identifier: Apache-2.0
"""Pure: what is known about one container's access, as text for a person."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.policy import MEMORY_NODE, UNUSED_GPU_NODE
from otel_gpu_cgroup.cli.reasons import Subject, Voice, voices
from otel_gpu_cgroup.cli.table import UNKNOWN, aligned, busy_cell, counted, memory_cell
from otel_gpu_cgroup.model import READ_WRITE, AccessClass, Gpu, GpuReading, Verdict, gpu_node
from otel_gpu_cgroup.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from otel_gpu_cgroup.cgroup.policy import DevicePolicy
    from otel_gpu_cgroup.model import Container, GpuUuid
    from otel_gpu_cgroup.nvidia.judgement import Judgement

_PROBES: Final = (
    (Subject("195:253", UNUSED_GPU_NODE), "no GPU: only wildcards allow it"),
    (Subject("1:1", MEMORY_NODE), "/dev/mem: only allow-all allows it"),
)
_POSSIBLE_MINORS: Final = range(32)
"""Of the GPUs that a driver may have."""
_NO_READING: Final = GpuReading()
_MEANINGS: Final = {
    AccessClass.EXPLICIT: "it may open some GPU nodes",
    AccessClass.UNRESTRICTED: "it may open every device; it has rows with --unrestricted all",
    AccessClass.NONE: "it may open no GPU",
    AccessClass.UNKNOWN: "nobody can say what it may open",
    AccessClass.EXCLUDED: "",
}


@dataclass(frozen=True, slots=True)
class Speaker:
    """The cgroup that the kernel asks in one hierarchy."""

    hierarchy: str
    folder: str
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that an explanation is made of, read at one time."""

    container: Container
    policy: DevicePolicy
    judgement: Judgement
    speakers: tuple[Speaker, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    readings: Mapping[GpuUuid, GpuReading] = field(default_factory=dict)
    is_excluded: bool = False
    """Whether the container is left out of all metrics."""


def render_explanation(it: Explanation) -> str:
    """Who it is, what it may open and who says so: the verdicts first, then each list or program that has a say."""
    heard = voices(it.policy)
    subjects = [Subject(f"nvidia{gpu.minor}", gpu.node) for gpu in _shown_gpus(it)]
    allowed = (subject for subject in subjects if it.policy.allows(subject.node, READ_WRITE) is Verdict.ALLOW)
    shown = next(allowed, subjects[0])
    everything = [*subjects, *(subject for subject, _ in _PROBES)]
    lines = [*aligned(list(_identity(it))), "", *_verdicts(it, heard)]
    for voice in heard:
        lines += ["", *voice.lines(everything, shown)]
    return "\n".join(lines)


def _identity(it: Explanation) -> Iterator[tuple[str, str]]:
    container, pod = it.container, it.container.pod
    yield "container", printable(container.id or "without an id")
    if container.name is not None:
        yield "name", printable(container.name)
    yield "runtime", container.runtime
    if pod is not None:
        names = "/".join(filter(None, (pod.namespace, pod.name, pod.container)))
        yield "pod", printable(" ".join(filter(None, (pod.uid, names))))
    yield "cgroup", printable(container.cgroup, limit=4096)
    for speaker in it.speakers:
        yield speaker.hierarchy, f"{printable(speaker.folder, limit=4096)} ({speaker.reason})"
    yield "access", f"{it.judgement.access}: {_meaning(it)}"
    yield "source", it.judgement.source
    if it.judgement.trouble is not None:
        yield "trouble", printable(str(it.judgement.trouble))
    if it.is_excluded:
        yield "excluded", "it is left out of metrics: by --exclude-containers, or as the one this runs in"


def _meaning(it: Explanation) -> str:
    if it.judgement.access is AccessClass.EXPLICIT and it.gpus:
        return f"it may open {len(it.judgement.gpus)} of {counted(len(it.gpus), 'GPU')}"
    return _MEANINGS[it.judgement.access]


def _shown_gpus(it: Explanation) -> tuple[Gpu, ...]:
    """The host's; where none is known those that a driver may have and the container may open, or the first."""
    if it.gpus:
        return it.gpus
    allowed = (minor for minor in _POSSIBLE_MINORS if _is_allowed(it.policy, minor))
    return tuple(Gpu(minor) for minor in allowed) or (Gpu(0),)


def _is_allowed(policy: DevicePolicy, minor: int) -> bool:
    return policy.allows(gpu_node(minor), READ_WRITE) is Verdict.ALLOW


def _verdicts(it: Explanation, heard: list[Voice]) -> Iterator[str]:
    titles = [voice.title.upper() for voice in heard]
    rows = [("GPU", "INDEX", "UUID", "MAY OPEN", *titles, "MEMORY", "BUSY")]
    for gpu in _shown_gpus(it):
        reading = _NO_READING if gpu.uuid is None else it.readings.get(gpu.uuid, _NO_READING)
        index = UNKNOWN if gpu.index is None else str(gpu.index)
        verdict = it.policy.allows(gpu.node, READ_WRITE).value
        said = (voice.says(gpu.node) for voice in heard)
        name, uuid = f"nvidia{gpu.minor}", printable(gpu.uuid or UNKNOWN)
        rows.append((name, index, uuid, verdict, *said, memory_cell(reading), busy_cell(reading)))
    for subject, meaning in _PROBES:
        verdict = it.policy.allows(subject.node, READ_WRITE).value
        said = (voice.says(subject.node) for voice in heard)
        rows.append((subject.name, "", f"({meaning})", verdict, *said, "", ""))
    yield from aligned(rows)
    if not it.gpus:
        yield "No GPU of this host is known: the rows are nodes that a driver could have."
