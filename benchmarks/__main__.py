# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks`, from the root of the repository: measures everything, prints one table; needs gcc."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.agent import measure_agent
from benchmarks.counts import measure_counts
from benchmarks.imports import measure_imports
from benchmarks.machine import describe_machine
from benchmarks.peer import measure_peer
from benchmarks.processes import measure_processes
from benchmarks.programs import measure_programs
from benchmarks.stages import measure_stages
from benchmarks.table import render
from tests.fakes.fake_nvml import build


def main() -> None:
    """A missed budget is printed, it is no failure of this program: times depend on the machine."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the cgroups are removed then, too
    began = time.monotonic()
    print(describe_machine(), flush=True)
    print("measuring, about two minutes ...", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="gpu-cgroup-bench-") as folder:
        library = build(Path(folder))
        sections = [*measure_counts(library), *measure_stages(library), *measure_programs(library)]
        sections += [*measure_processes(), *measure_agent(library), measure_imports(), measure_peer(library)]
    print(render(sections))
    print(f"\nmeasured in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
