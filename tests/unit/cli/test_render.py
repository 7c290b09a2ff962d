# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from otel_gpu_cgroup.cli.render import render_json
from otel_gpu_cgroup.model import (
    AcceleratorStats,
    AccessClass,
    CgroupMode,
    CgroupPath,
    Container,
    ContainerReport,
    DeviceInventory,
    Gpu,
    GpuReading,
    GpuReport,
    GpuUuid,
    MigInstance,
    NodeStats,
    OwnShare,
    Pod,
    PolicySource,
    Problem,
    Runtime,
    SlurmStep,
    Stage,
)

UUID: Final = GpuUuid("GPU-1")
PART: Final = GpuUuid("MIG-1")
PODDED: Final = Container(CgroupPath("/docker/abc"), Runtime.DOCKER, "abc" * 20, pod=Pod("uid-1"))
STEP: Final = Container(
    CgroupPath("/slurm/uid_7/job_1/step_0"), Runtime.SLURM, name="slurm-1.0", slurm=SlurmStep("0", "1", 7)
)
STATS: Final = NodeStats(
    taken_at=0.5,
    duration=0.25,
    sealed_at=1.0,
    cgroup_mode=CgroupMode.V1,
    inventory=DeviceInventory(driver_version="595.45.04"),
    gpus=(
        GpuReport(
            Gpu(1, UUID, "H100", index=0, is_partitioned=True),
            GpuReading(80 << 30, 5 << 30, None, 0.1),
            (PODDED.key,),
            unattributed=3 << 20,
        ),
        GpuReport(
            Gpu(1, PART, "H100", index=0, instance=MigInstance(UUID, 2, 0, "1g.10gb", 1 / 7)),
            GpuReading(10 << 30, 0, 12.5),
            (PODDED.key,),
        ),
        GpuReport(Gpu(2), GpuReading()),
    ),
    containers=(
        ContainerReport(
            PODDED,
            AccessClass.EXPLICIT,
            PolicySource.DEVICES_LIST,
            (AcceleratorStats("nvidia", "H100", PART, 10 << 30, 0, 12.5, UUID, OwnShare(0, None, 2)),),
        ),
        ContainerReport(
            STEP,
            AccessClass.NONE,
            PolicySource.BPF,
            (AcceleratorStats("nvidia", "H100", UUID, None, None, None, lost=True, reason="it could before"),),
        ),
    ),
    problems=(Problem(Stage.POLICY, "/evil\x1b[2J\n\udcff", "two\nlines"),),
)


def document(stats: NodeStats) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(render_json(stats, simulated=False))
    return found


def test_json_is_the_contract() -> None:
    assert document(STATS) == {
        "taken_at": "1970-01-01T00:00:00.500000+00:00",
        "duration_s": 0.25,
        "host": {"cgroup": "v1", "driver_version": "595.45.04", "simulated": False},
        "gpus": [
            {
                "id": "GPU-1",
                "index": 0,
                "minor": 1,
                "model": "H100",
                "parent": None,
                "mig_profile": None,
                "kind": "partitioned",
                "memory_total": 85899345920,
                "memory_used": 5368709120,
                "memory_unattributed": 3145728,
                "duty_cycle": None,
                "containers": ["abc" * 20],
            },
            {
                "id": "MIG-1",
                "index": 0,
                "minor": 1,
                "model": "H100",
                "parent": "GPU-1",
                "mig_profile": "1g.10gb",
                "kind": "mig",
                "memory_total": 10737418240,
                "memory_used": 0,
                "memory_unattributed": None,
                "duty_cycle": 12.5,
                "containers": ["abc" * 20],
            },
            {
                "id": None,
                "index": None,
                "minor": 2,
                "model": None,
                "parent": None,
                "mig_profile": None,
                "kind": "gpu",
                "memory_total": None,
                "memory_used": None,
                "memory_unattributed": None,
                "duty_cycle": None,
                "containers": [],
            },
        ],
        "containers": [
            {
                "id": "abc" * 20,
                "runtime": "docker",
                "cgroup": "/docker/abc",
                "name": None,
                "pod": {"uid": "uid-1", "name": None, "namespace": None, "container": None},
                "slurm": None,
                "access": "explicit",
                "source": "devices.list",
                "accelerators": [
                    {
                        "make": "nvidia",
                        "model": "H100",
                        "id": "MIG-1",
                        "memory_total": 10737418240,
                        "memory_used": 0,
                        "duty_cycle": 12.5,
                        "own": {"memory": 0, "utilization": None, "processes": 2},
                        "lost": False,
                        "reason": None,
                    }
                ],
            },
            {
                "id": None,
                "runtime": "slurm",
                "cgroup": "/slurm/uid_7/job_1/step_0",
                "name": "slurm-1.0",
                "pod": None,
                "slurm": {"job": "1", "step": "0", "uid": 7},
                "access": "none",
                "source": "bpf",
                "accelerators": [
                    {
                        "make": "nvidia",
                        "model": "H100",
                        "id": "GPU-1",
                        "memory_total": None,
                        "memory_used": None,
                        "duty_cycle": None,
                        "own": None,
                        "lost": True,
                        "reason": "it could before",
                    }
                ],
            },
        ],
        "problems": [{"stage": "policy", "subject": "/evil\x1b[2J\n\udcff", "message": "two\nlines"}],
    }


def test_json_is_ascii_whatever_names_hold() -> None:
    assert render_json(STATS, simulated=True).isascii()


def test_what_is_nobodys_is_0_where_that_is_known() -> None:
    [first, *_] = STATS.gpus
    stats = replace(STATS, gpus=(replace(first, unattributed=0),))
    assert document(stats)["gpus"][0]["memory_unattributed"] == 0
