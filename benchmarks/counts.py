# SPDX-License-Identifier: Apache-2.0
"""Counts that every machine agrees on: the NVML calls of a warm cycle, the files and folders that it opens, and on
cgroup v2 what it asks the kernel.

The driver's utilization samples are all too old here, and a process is in each of its lists: a GPU is then asked for
a rate besides, and for each list by one call for its size and one for it, which is the most that it is ever asked.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from benchmarks.children import ask_child
from benchmarks.hosts import GPUS, PODS_SHARE, DirectHost, benchmark_host
from benchmarks.parts import new_parts
from benchmarks.table import Row, Section, limited
from benchmarks.trees import kind_of_cgroups, why_not_real
from otel_gpu_cgroup.cgroup.bpf.syscall import Bpf, ProgramInfo
from otel_gpu_cgroup.model import CgroupMode
from tests.fakes.fake_nvml import FakeProcess, FakeShare, Recorded, read_counts, uniform_gpus

if TYPE_CHECKING:
    from otel_gpu_cgroup.cycle import Cycle
    from otel_gpu_cgroup.held import HeldFiles

CONTAINERS: Final = (1, 100, 1000)
_FEW: Final = (1, 101)
"""Containers where programs are counted."""
_WITH_PROGRAMS: Final = (CgroupMode.V2, CgroupMode.HYBRID)
_UNTIL_WARM: Final = 2
"""Cycles that list the GPUs, fill what is remembered, and agree on where a container's processes are."""
_MOST_CALLS: Final = 20
"""NVML calls per GPU and cycle."""
_OLD: Final = Recorded(((60_000_000, 50),))
"""Microseconds ago, percent."""
_KINDS: Final[tuple[Literal["compute", "graphics", "mps"], ...]] = ("compute", "graphics", "mps")
_LISTED: Final = tuple(FakeProcess(pid=1, kind=kind) for kind in _KINDS)
_SHARES: Final = (FakeShare(pid=1, sm=50),)
_OPENING: Final = ("open", "os.listdir", "os.scandir")
"""Audit events; the latter two open nothing when they are given a descriptor."""


@dataclass(frozen=True, slots=True)
class CycleCounts:
    """What one warm cycle did."""

    containers: int
    rows: int
    """Pairs of a container and a GPU that it may open."""
    calls: int
    """NVML calls."""
    files: int
    """Files and folders opened."""
    queries: int
    """Cgroups whose effective programs were asked for."""
    read: int
    """Programs that were read."""
    read_before: int
    """Programs that were read in the cycles before."""


class CountedPrograms(Bpf):
    """bpf(2), counted by what is asked."""

    def __init__(self, files: HeldFiles) -> None:
        super().__init__(files)
        self.queries = 0
        self.read = 0

    def query_effective(self, cgroup: str) -> tuple[int, ...]:
        self.queries += 1
        return super().query_effective(cgroup)

    def read_program(self, identifier: int) -> ProgramInfo:
        self.read += 1
        return super().read_program(identifier)


def count_cycle(library: Path, containers: int, mode: CgroupMode = CgroupMode.V1) -> CycleCounts:
    """Count in a process of its own."""
    gpus = tuple(replace(gpu, samples=_OLD, processes=_LISTED, shares=_SHARES) for gpu in uniform_gpus(GPUS))
    with benchmark_host(library, containers, gpus=gpus, mode=mode) as host:
        found = ask_child("counts", str(host.root), str(host.counts), environment=host.environment)
    return CycleCounts(**found)


def measure_counts(library: Path) -> list[Section]:
    """The counts of a warm cycle for few and for many containers, and what programs make of them."""
    counted = {containers: count_cycle(library, containers) for containers in CONTAINERS}
    calls = [counts.calls for counts in counted.values()]
    one, *_, many = counted.values()
    rows = [Row(f"NVML calls, containers: {containers}", str(counts.calls)) for containers, counts in counted.items()]
    rows += [
        Row("NVML calls, whatever the number of containers", str(max(calls)), "equal", len(set(calls)) == 1),
        limited("NVML calls per GPU", max(calls) / GPUS, "calls", _MOST_CALLS),
        _opens(one, many),
    ]
    heading = f"counts of one warm cycle: {GPUS} GPUs, {kind_of_cgroups()}"
    return [Section(heading, tuple(rows)), *(_programs_section(library, mode) for mode in _WITH_PROGRAMS)]


def _programs_section(library: Path, mode: CgroupMode) -> Section:
    heading = f"counts of one warm cycle: {GPUS} GPUs, {kind_of_cgroups(mode)}"
    if (reason := why_not_real(mode)) is not None:
        return Section(heading, (Row("not measured", reason),))
    one, many = (count_cycle(library, containers, mode) for containers in _FEW)
    rows = (
        Row("queries per container", f"{many.queries / many.containers:g}", "1", many.queries == many.containers),
        Row("programs read", str(many.read), "0", many.read == 0),
        _opens(one, many),
    )
    return Section(heading, rows)


def _opens(one: CycleCounts, many: CycleCounts) -> Row:
    """What a further container costs: its share of its pod's folder, as what tells its policy is held open."""
    files = (many.files - one.files) / (many.containers - one.containers)
    return limited("files and folders opened per further container", files, "opens", 1 / PODS_SHARE)


def _count(root: Path, counts: Path) -> dict[str, int]:
    made: list[CountedPrograms] = []

    def new_programs(files: HeldFiles) -> CountedPrograms:
        made.append(CountedPrograms(files))
        return made[-1]

    with new_parts(DirectHost(root), new_programs) as parts:
        programs = made[0]  # the manager's
        for _ in range(_UNTIL_WARM):
            parts.cycle.collect()
        calls, queries, read = _calls(counts), programs.queries, programs.read
        stats = parts.cycle.collect()
        return {
            "containers": len(stats.containers),
            "rows": sum(len(report.accelerators) for report in stats.containers),
            "calls": _calls(counts) - calls,
            "queries": programs.queries - queries,
            "read": programs.read - read,
            "read_before": read,
            "files": _opened(parts.cycle),
        }


def _calls(counts: Path) -> int:
    return sum(number for name, number in read_counts(counts).items() if name.startswith("nvml"))


def _opened(cycle: Cycle) -> int:
    """Files and folders that a cycle opens, told by the interpreter's own audit events."""
    opened: list[str] = []

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _OPENING and not isinstance(arguments[0], int):
            opened.append(arguments[0])

    sys.addaudithook(note)
    cycle.collect()
    return len(opened)


if __name__ == "__main__":
    print(json.dumps(_count(Path(sys.argv[1]), Path(sys.argv[2]))))
