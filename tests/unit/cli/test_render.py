# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

from otel_gpu_cgroup.cli.render import render_json, render_table
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
    NodeStats,
    Pod,
    PolicySource,
    Problem,
    Runtime,
    Stage,
)

UUID = GpuUuid("GPU-1")
CONTAINER = Container(CgroupPath("/docker/abc"), Runtime.DOCKER, "abc" * 20, pod=Pod("uid-1"))
STATS = NodeStats(
    taken_at=0.5,
    duration=0.25,
    sealed_at=1.0,
    cgroup_mode=CgroupMode.V1,
    inventory=DeviceInventory(driver_version="595.45.04"),
    gpus=(
        GpuReport(Gpu(1, UUID, "H100", index=0), GpuReading(80 << 30, 5 << 30, 12.5, 0.1), (CONTAINER.key,)),
        GpuReport(Gpu(2), GpuReading()),
    ),
    containers=(
        ContainerReport(
            CONTAINER,
            AccessClass.EXPLICIT,
            PolicySource.DEVICES_LIST,
            (AcceleratorStats("nvidia", "H100", UUID, 80 << 30, None, 12.5),),
        ),
    ),
    problems=(Problem(Stage.POLICY, "/evil\x1b[2J\n\udcff", "two\nlines"),),
)


def test_json_is_the_contract() -> None:
    assert json.loads(render_json(STATS, simulated=False)) == {
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
                "kind": "gpu",
                "memory_total": 85899345920,
                "memory_used": 5368709120,
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
                "access": "explicit",
                "source": "devices.list",
                "accelerators": [
                    {
                        "make": "nvidia",
                        "model": "H100",
                        "id": "GPU-1",
                        "memory_total": 85899345920,
                        "memory_used": None,
                        "duty_cycle": 12.5,
                        "own": None,
                        "lost": False,
                    }
                ],
            }
        ],
        "problems": [{"stage": "policy", "subject": "/evil\x1b[2J\n\udcff", "message": "two\nlines"}],
    }


def test_json_is_ascii_whatever_names_hold() -> None:
    assert render_json(STATS, simulated=True).isascii()


def test_table_shows_what_is_unknown_as_a_dash_and_never_as_0() -> None:
    assert render_table(STATS).splitlines() == [
        "GPU      MODEL  MEMORY            BUSY  CONTAINERS",
        "nvidia1  H100   5120 / 81920 MiB  12 %  abcabcabcabc",
        "nvidia2  -      - / - MiB         -     (none)",
        "",
        "CONTAINER     RUNTIME  ACCESS    GPUS",
        "abcabcabcabc  docker   explicit  nvidia1",
        "",
        r"problem: policy: /evil\x1b[2J\n\udcff: two\nlines",
    ]
