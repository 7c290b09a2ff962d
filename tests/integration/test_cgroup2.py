# SPDX-License-Identifier: Apache-2.0
"""A host that has cgroup v2 alone, with containers of real runc and crun, whose rules are device programs."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.fakes.fake_nvml import GIB, FakeGpu, FakeMemory, World
from tests.kernel.bpf.runtimes import CASES, created, need_runtime
from tests.kernel.bpf.sysctl import hardening

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.agent import Driver

_CGROUP2_ALONE: Final = (
    "unshare",
    "--mount",
    "sh",
    "-c",
    'umount -R -l /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"',
    "sh",
)
GPUS: Final = tuple(
    FakeGpu(uuid=f"GPU-{minor}", minor=minor, memory=FakeMemory(used=minor * GIB)) for minor in (7, 1, 0)
)


def once(driver: Driver, tmp_path: Path) -> dict[str, Any]:
    environment = {**os.environ, **driver.variables(), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*_CGROUP2_ALONE, sys.executable, "-m", "otel_gpu_cgroup", "once", "--format", "json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize("harden", [0, 2], ids=["plain", "blinded"])
@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize(
    ("case", "access"),
    [
        ("no-gpu", "none"),
        ("one-gpu", "explicit"),
        ("a-gpu-taken-back", "explicit"),
        ("every-gpu-by-a-wildcard", "explicit"),
        ("mknod-alone", "none"),
        ("privileged", "unrestricted"),
    ],
)
def test_a_real_containers_gpus(
    driver: Driver, tmp_path: Path, runtime: str, case: str, access: str, harden: int
) -> None:
    need_runtime(runtime)
    driver.set(World(gpus=GPUS))
    name = secrets.token_hex(32)
    with hardening(harden, 0), created(runtime, tmp_path, CASES[case].rules, name=name):
        document = once(driver, tmp_path)
    assert document["host"]["cgroup"] == "v2"
    [container] = [found for found in document["containers"] if found["id"] == name]
    assert (container["access"], container["source"]) == (access, "bpf")
    expected = [] if access == "unrestricted" else [gpu for gpu in GPUS if gpu.minor in CASES[case].gpus]
    rows = {(row["id"], row["memory_used"]) for row in container["accelerators"]}
    assert rows == {(gpu.uuid, gpu.minor * GIB) for gpu in expected}
