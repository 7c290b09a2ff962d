# SPDX-License-Identifier: Apache-2.0
"""What this software costs: `python -m benchmarks` prints one table, a file here a measurement.

    counts    NVML calls, opened files and queries of a cycle; the same numbers on every machine
    stages    CPU time of a cycle, stage by stage
    programs  CPU time of one device program of cgroup v2, from the query to the verdicts
    agent     memory, CPU time and start of the whole agent that pushes to a collector
    imports   what importing the package adds to a bare interpreter
    peer      a cycle beside one collection of nvitop-exporter

Each measures in processes of its own, on a host made by `hosts` and `trees`, whose driver is the tests' fake NVML. CPU
time is taken wherever there is a choice, because other programs disturb it least.
"""

from __future__ import annotations
