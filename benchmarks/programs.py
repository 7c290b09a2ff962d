# SPDX-License-Identifier: Apache-2.0
"""CPU time of one container's device program on cgroup v2, step by step: query, fetch, decode, evaluate.

Nearly all cycles pay for the query alone; the rest once for each new program, and less where an equal one is known.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.children import ask_child
from benchmarks.hosts import GPUS, DirectHost, benchmark_host
from benchmarks.table import Row, Section, typical
from benchmarks.trees import kind_of_cgroups, program_of, why_not_real
from otel_gpu_cgroup.cgroup.bpf.isa import SIZE, decode
from otel_gpu_cgroup.cgroup.bpf.policy import DeviceProgram
from otel_gpu_cgroup.cgroup.bpf.syscall import Bpf
from otel_gpu_cgroup.cgroup.policy import MEMORY_NODE, UNUSED_GPU_NODE
from otel_gpu_cgroup.containers.discovery.containers import ContainerDiscovery
from otel_gpu_cgroup.errors import PolicyUnreadable
from otel_gpu_cgroup.model import READ_WRITE, CgroupMode, gpu_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from otel_gpu_cgroup.model import DeviceNode

_CONTAINERS: Final = 200
_REPEATS: Final = 15
_RULES: Final = 600
_PROBES: Final = (UNUSED_GPU_NODE, MEMORY_NODE)

Costs = dict[str, list[float]]
"""Microseconds of CPU time per program, by what was done."""


def measure_programs(library: Path) -> list[Section]:
    """A section for containers as runc makes them, and one for a program of very many rules."""
    mode = CgroupMode.V2
    heading = f"CPU time per container of {_CONTAINERS}, {kind_of_cgroups(mode)}, median of {_REPEATS}"
    if (reason := why_not_real(mode)) is not None:
        return [Section(heading, (Row("not measured", reason),))]
    with benchmark_host(library, _CONTAINERS, mode=mode) as host, _cgroup_of_many_rules() as folder:
        usual, long = ask_child("programs", str(host.root), str(folder), environment=host.environment)
    return [
        Section(heading, tuple(_rows(usual))),
        Section(f"CPU time of a program of {_RULES} rules, median of {_REPEATS}", tuple(_rows(long))),
    ]


@contextmanager
def _cgroup_of_many_rules() -> Iterator[Path]:
    """A cgroup whose program compares a GPU's numbers with those of all its rules, and denies in the end."""
    from tests.support.bpf import attached, unified_cgroup

    rules = "".join(f"c 195:{minor} rw\n" for minor in range(1000, 1000 + _RULES))
    with unified_cgroup() as cgroup, attached(cgroup, program_of(rules)):
        yield cgroup


def _rows(costs: Costs | str) -> Iterator[Row]:
    """Or the reason why there are none."""
    if isinstance(costs, str):
        yield Row("not measured", costs)
        return
    yield Row("instructions", f"{costs.pop('instructions')[0]:.0f}")
    for what, values in costs.items():
        yield typical(what, values, "µs")


def _measure(folders: list[str]) -> Costs | str:
    """Or why not: what hides instructions (net.core.bpf_jit_harden) can be set at any time."""
    try:
        return _measure_programs(folders)
    except PolicyUnreadable as error:
        return str(error)


def _measure_programs(folders: list[str]) -> Costs:
    bpf, costs = Bpf(), Costs()
    infos = [bpf.read_program(identifier) for folder in folders for identifier in bpf.query_effective(folder)]
    costs["instructions"] = [max(len(info.code) // SIZE for info in infos)]
    for _ in range(_REPEATS):
        _timed(costs, "query: open the folder, ask for ids", bpf.query_effective, folders)
        _timed(costs, "fetch: open by id, info, instructions", bpf.read_program, [info.id for info in infos])
    for _ in range(_REPEATS):
        _timed(costs, "decode", decode, [info.code for info in infos])
        for what, ask in _questions().items():
            programs = [DeviceProgram(info.code) for info in infos]
            _timed(costs, f"evaluate {what}", ask, programs)
        _timed(costs, f"evaluate {what} again, remembered", ask, programs)
    return costs


def _questions() -> dict[str, Callable[[DeviceProgram], None]]:
    """What a container's program is asked in its first cycle."""
    whole = {
        f"{gpus} GPUs and {len(_PROBES)} probes": _asking(*(gpu_node(minor) for minor in range(gpus)), *_PROBES)
        for gpus in (GPUS, 2 * GPUS)
    }
    return {"one GPU": _asking(gpu_node(0)), **whole}


def _asking(*nodes: DeviceNode) -> Callable[[DeviceProgram], None]:
    def ask(program: DeviceProgram) -> None:
        for node in nodes:
            program.allows(node, READ_WRITE)

    return ask


def _timed(costs: Costs, what: str, call: Callable[[Any], object], subjects: Sequence[Any]) -> None:
    began = time.process_time()
    for subject in subjects:
        call(subject)
    costs.setdefault(what, []).append((time.process_time() - began) * 1e6 / len(subjects))


def _folders(root: Path) -> list[str]:
    return [it.unified for it in ContainerDiscovery(DirectHost(root)).discover() if it.unified is not None]


if __name__ == "__main__":
    print(json.dumps([_measure(_folders(Path(sys.argv[1]))), _measure([sys.argv[2]])]))
