# SPDX-License-Identifier: Apache-2.0
"""A peer that knows nothing of the fake reads it: benchmarks compare with nvitop on this driver."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.fakes.fake_nvml import GIB, FakeProcess, World, environment, uniform_gpus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

nvitop_only = pytest.mark.skipif(importlib.util.find_spec("nvitop") is None, reason="nvitop is not installed")

SNAPSHOT = """if True:
    import json, nvitop
    taken = nvitop.take_snapshots()
    print(json.dumps({
        "devices": [[d.real.uuid(), d.memory_used, d.gpu_utilization] for d in taken.devices],
        "processes": [[p.device.uuid(), p.pid, p.gpu_memory] for p in taken.gpu_processes],
    }))
"""


@pytest.fixture
def pids() -> Iterator[list[int]]:
    """Four living processes: nvitop asks the kernel about each one that the driver lists."""
    processes = [subprocess.Popen(["sleep", "infinity"]) for _ in range(4)]
    yield [process.pid for process in processes]
    for process in processes:
        process.kill()
        process.wait()


@nvitop_only
def test_nvitop_sees_the_world(library_dir: Path, tmp_path: Path, pids: list[int]) -> None:
    gpus = tuple(
        replace(gpu, processes=tuple(FakeProcess(pid=pid, memory=GIB) for pid in own))
        for gpu, own in zip(uniform_gpus(2, processes_each=2), (pids[:2], pids[2:]), strict=True)
    )
    World(gpus=gpus).write(tmp_path / "world")
    done = subprocess.run(
        [sys.executable, "-c", SNAPSHOT],
        env=environment(library_dir, tmp_path / "world"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert json.loads(done.stdout) == {
        "devices": [[gpu.uuid, 2 * GIB, 50] for gpu in gpus],
        "processes": [[gpu.uuid, process.pid, GIB] for gpu in gpus for process in gpu.processes],
    }
