# SPDX-License-Identifier: Apache-2.0
"""Which NVIDIA GPUs each container may open, and what they do, as OpenTelemetry metrics.

A datum travels one way, a folder a stage:

    containers/   mountinfo, cgroup tree      -> Container
    cgroup/       its devices cgroup          -> DevicePolicy: may it open char 195:N read+write?
    nvidia/       NVML, one pass a cycle      -> DeviceInventory, and one NvidiaCollector per container
    cycle         all of it, failures inside  -> NodeStats, sealed
    freshness     at most one cycle per age   -> the same, within a deadline
    otel/         one table of instruments    -> OTLP
    cli/          run, once                   -> a process, a table, JSON
"""

from __future__ import annotations

from otel_gpu_cgroup.version import __version__

__all__ = ["__version__"]
