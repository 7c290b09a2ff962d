# SPDX-License-Identifier: Apache-2.0
"""The fake driver's world as values, and as the text that nvml/world.c reads and describes."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class FakeError:
    """NVML's answer `code` instead of values, after that many matching calls since the world was written."""

    code: int
    after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeProcess:
    """A row of a process list; memory in bytes, None is "not available"; gi and ci None: a whole GPU."""

    pid: int
    memory: int | None = None
    kind: Literal["compute", "graphics", "mps"] = "compute"
    gi: int | None = None
    ci: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeShare:
    """A row of process utilization in percent, whenever read `age_us` older than the latest tick."""

    pid: int
    sm: int
    memory: int = 0
    encoder: int = 0
    decoder: int = 0
    age_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeGrant:
    """What a process is given of the multiprocessors, in percent, between two times since boot in microseconds.

    Process utilization is then the mean over the ticks that the caller has not seen.
    """

    pid: int
    sm: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Steady:
    """Utilization samples without end, six a second, taking the values in turn; the last 100 are held."""

    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Samples as (age in microseconds when the world is written, value), oldest first; none: NOT_FOUND."""

    samples: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeMemory:
    """Bytes; used without the reserve, as NVML's version 2 tells it."""

    total: int = 80 * GIB
    used: int = 0
    reserved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeInstance:
    """A MIG device: one compute instance in one of its GPU's slots.

    `made` tells it from an earlier one in the same place, which has the same UUID and other handles; `busy` is percent
    of the time, for Hopper's performance counters (infinite: NVML computes no such metric); `errors` are those of calls
    about this instance alone.
    """

    slot: int
    uuid: str
    gi: int
    ci: int = 0
    slices: int = 1
    compute_slices: int = 1
    memory: FakeMemory = FakeMemory(total=10 * GIB)
    profile: str = "1g.10gb"
    busy: float = 0
    made: int = 0
    errors: Mapping[str, int | FakeError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeGpu:
    """One GPU; its index is its place in the world.

    `instances` None is MIG not on, () MIG on and empty; `mig_off` tells that a GPU knows MIG which is not on.
    `unsupported`, `hangs` and the keys of `errors` and `latency` (microseconds) are fnmatch patterns of NVML
    function names, for calls about this GPU or its instances; `own_errors` are of calls about the GPU itself alone.
    """

    uuid: str
    minor: int
    name: str | bytes = "NVIDIA H100 80GB HBM3"
    serial: str = ""
    bus: str = ""
    capability: tuple[int, int] = (9, 0)
    memory: FakeMemory = FakeMemory()
    utilization: int = 0
    memory_utilization: int = 0
    encoder: int = 0
    decoder: int = 0
    clock: Literal["epoch", "boottime"] = "epoch"
    samples: Steady | Recorded = Steady((0,))
    value_type: int = 1  # NVML's nvmlValueType_t: unsigned int
    processes: tuple[FakeProcess, ...] = ()
    shares: tuple[FakeShare, ...] = ()
    grants: tuple[FakeGrant, ...] = ()
    lag: int = 0  # microseconds after which the samples of grants are there
    instances: tuple[FakeInstance, ...] | None = None
    mig_off: bool = False
    mig_change: bool = False  # the other mode is pending
    mig_slots: int = 7
    unsupported: tuple[str, ...] = ()
    errors: Mapping[str, int | FakeError] = field(default_factory=dict)
    own_errors: Mapping[str, int | FakeError] = field(default_factory=dict)
    latency: Mapping[str, int] = field(default_factory=dict)
    hangs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """All that the fake driver knows; errors, latency and hangs as in FakeGpu, but for every call."""

    gpus: tuple[FakeGpu, ...] = ()
    driver_version: str = "580.65.06"
    nvml_version: str = "13.580.65.06"
    cuda_version: int = 13000
    now: tuple[int, int] | None = None  # microseconds since 1970 and since boot; None: the kernel's clocks
    errors: Mapping[str, int | FakeError] = field(default_factory=dict)
    latency: Mapping[str, int] = field(default_factory=dict)
    hangs: tuple[str, ...] = ()

    def write(self, path: Path) -> None:
        """Replace the world file at once: the fake sees the old world or the new one."""
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write("".join(f"{line}\n" for line in _world_lines(self)))
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)


def uniform_gpus(count: int, *, processes_each: int = 0, first_pid: int = 1) -> tuple[FakeGpu, ...]:
    """Busy GPUs with minors 0, 1, …, each with its own processes; pids count up from `first_pid`."""
    return tuple(_uniform_gpu(index, processes_each, first_pid) for index in range(count))


def _uniform_gpu(index: int, processes_each: int, first_pid: int) -> FakeGpu:
    pids = range(first_pid + index * processes_each, first_pid + (index + 1) * processes_each)
    return FakeGpu(
        uuid=f"GPU-00000000-0000-4000-8000-{index:012x}",
        minor=index,
        memory=FakeMemory(used=processes_each * GIB, reserved=GIB // 2),
        utilization=50,
        memory_utilization=20,
        samples=Steady((40, 60)),
        processes=tuple(FakeProcess(pid=pid, memory=GIB) for pid in pids),
        shares=tuple(FakeShare(pid=pid, sm=50 // processes_each, memory=1) for pid in pids),
        mig_off=True,
    )


def _text(value: str | bytes) -> str:
    return quote(os.fsencode(value), safe="-_./: ()")


def _word(value: str) -> str:
    return quote(os.fsencode(value), safe="-_./:")


def _world_lines(world: World) -> Iterator[str]:
    yield f"driver {_text(world.driver_version)}"
    yield f"nvml {_text(world.nvml_version)}"
    yield f"cuda {world.cuda_version}"
    if world.now is not None:
        yield f"now {world.now[0]} {world.now[1]}"
    yield from _rule_lines(world.errors, world.latency, world.hangs)
    for gpu in world.gpus:
        yield from _gpu_lines(gpu)


def _gpu_lines(gpu: FakeGpu) -> Iterator[str]:
    yield f"gpu {_text(gpu.uuid)}"
    yield f"name {_text(gpu.name)}"
    yield f"serial {_text(gpu.serial)}"
    yield f"bus {_text(gpu.bus or f'00000000:{gpu.minor + 1:02X}:00.0')}"
    yield f"minor {gpu.minor}"
    yield f"capability {gpu.capability[0]} {gpu.capability[1]}"
    yield f"memory {_memory(gpu.memory)}"
    yield f"utilization {gpu.utilization} {gpu.memory_utilization} {gpu.encoder} {gpu.decoder}"
    yield from _sample_lines(gpu)
    for process in gpu.processes:
        numbers = (process.memory, process.gi, process.ci)
        known = " ".join("-" if number is None else str(number) for number in numbers)
        yield f"process {process.kind} {process.pid} {known}"
    for share in gpu.shares:
        yield f"share {share.pid} {share.sm} {share.memory} {share.encoder} {share.decoder} {share.age_us}"
    for grant in gpu.grants:
        yield f"grant {grant.pid} {grant.sm} {grant.start} {grant.end}"
    if gpu.lag:
        yield f"lag {gpu.lag}"
    yield from _mig_lines(gpu)
    yield from _rule_lines(dict.fromkeys(gpu.unsupported, 3) | dict(gpu.errors), gpu.latency, gpu.hangs)
    yield from _error_lines(gpu.own_errors, gpu.uuid)


def _sample_lines(gpu: FakeGpu) -> Iterator[str]:
    yield f"clock {gpu.clock}"
    yield f"value_type {gpu.value_type}"
    match gpu.samples:
        case Steady(values):
            yield " ".join(["samples every", *map(str, values)])
        case Recorded(samples):
            yield " ".join(["samples at", *(f"{age}:{value}" for age, value in samples)])


def _mig_lines(gpu: FakeGpu) -> Iterator[str]:
    if gpu.mig_change:
        yield "mig_change"
    if gpu.instances is None:
        if gpu.mig_off:
            yield "mig off"
        return
    yield f"mig on {gpu.mig_slots}"
    for it in gpu.instances:
        numbers = f"{it.slot} {it.gi} {it.ci} {it.slices} {it.compute_slices} {it.made}"
        yield f"instance {numbers} {_memory(it.memory)} {it.busy} {_word(it.uuid)} {_word(it.profile)}"
        yield from _error_lines(it.errors, it.uuid)


def _memory(memory: FakeMemory) -> str:
    return f"{memory.total} {memory.used} {memory.reserved}"


def _rule_lines(
    errors: Mapping[str, int | FakeError], latency: Mapping[str, int], hangs: tuple[str, ...]
) -> Iterator[str]:
    yield from _error_lines(errors)
    for pattern, microseconds in latency.items():
        yield f"latency {pattern} {microseconds}"
    for pattern in hangs:
        yield f"hang {pattern}"


def _error_lines(errors: Mapping[str, int | FakeError], uuid: str = "") -> Iterator[str]:
    for pattern, error in errors.items():
        failure = error if isinstance(error, FakeError) else FakeError(error)
        yield f"error {pattern} {failure.code} {failure.after} {_word(uuid)}".rstrip()
