# SPDX-License-Identifier: Apache-2.0
"""`once` as a document and as a table, and the simulated host all the way to a collector."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.fakes.fake_nvml import GIB, FakeGpu, FakeMemory, Steady, World
from tests.integration.host_tree import write_host
from tests.support.agent import run_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import StartAgent
    from tests.support.agent import Driver

TRAINING: Final = "a1" * 32
SERVING: Final = "b2" * 32
WEB: Final = "c3" * 32
PRIVILEGED: Final = "d4" * 32
POD_UID: Final = "0d5e4ecd-9e29-4f2f-8b0c-2d7a1de5b0a7"
POD: Final = f"/kubepods.slice/kubepods-pod{POD_UID.replace('-', '_')}.slice/cri-containerd-{SERVING}.scope"
BUSY: Final = FakeGpu(
    uuid="GPU-busy",
    minor=1,
    name="NVIDIA A100-SXM4-40GB",
    bus="00000000:3B:00.0",
    memory=FakeMemory(total=40 * GIB, used=7 * GIB, reserved=GIB),
    samples=Steady((75,)),
)
MUTE: Final = FakeGpu(
    uuid="GPU-mute", minor=0, unsupported=("nvmlDeviceGetMemoryInfo*", "nvmlDeviceGetSamples", "*UtilizationRates")
)


@pytest.fixture
def once(driver: Driver, tmp_path: Path) -> list[str]:
    """`once` on a host with four containers and two GPUs, whose indices and minor numbers differ."""
    driver.set(World(gpus=(BUSY, MUTE), driver_version="595.45.04"))
    containers = {
        f"/docker/{TRAINING}": "c 1:3 rwm\nc 195:0 rw\nc 195:1 rw\nc 195:255 rw\n",
        POD: "c 195:1 rw\n",
        f"/machine.slice/libpod-{WEB}.scope": "c 1:3 rwm\nc *:* m\n",
        f"/docker/{PRIVILEGED}": "a *:* rwm\n",
    }
    root = write_host(tmp_path / "host", containers)
    return ["once", "--host-root", os.fspath(root)]


def _row(gpu: FakeGpu) -> dict[str, Any]:
    busy = gpu is BUSY
    return {
        "make": "nvidia",
        "model": gpu.name,
        "id": gpu.uuid,
        "memory_total": gpu.memory.total if busy else None,
        "memory_used": gpu.memory.used if busy else None,
        "duty_cycle": 75 if busy else None,
        "own": {"memory": 0, "processes": 0},
        "lost": False,
        "reason": None,
    }


def _gpu(gpu: FakeGpu, index: int, containers: list[str]) -> dict[str, Any]:
    values = {key: _row(gpu)[key] for key in ("id", "model", "memory_total", "memory_used", "duty_cycle")}
    place = {"index": index, "minor": gpu.minor, "parent": None, "mig_profile": None, "kind": "gpu"}
    return {**values, **place, "memory_unattributed": values["memory_used"], "containers": containers}


def _container(
    cgroup: str, runtime: str, access: str, gpus: tuple[FakeGpu, ...] = (), pod: str | None = None
) -> dict[str, Any]:
    return {
        "id": next(word for word in (TRAINING, SERVING, WEB, PRIVILEGED) if word in cgroup),
        "runtime": runtime,
        "cgroup": cgroup,
        "name": None,
        "pod": None if pod is None else {"uid": pod, "name": None, "namespace": None, "container": None},
        "slurm": None,
        "access": access,
        "source": "devices.list",
        "accelerators": [_row(gpu) for gpu in gpus],
    }


def test_the_document_of_once(driver: Driver, tmp_path: Path, once: list[str]) -> None:
    done = run_command(tmp_path, *once, "--format", "json", **driver.variables())
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    taken_at = datetime.fromisoformat(document.pop("taken_at"))
    assert taken_at.utcoffset() == timedelta(0)
    assert document.pop("duration_s") > 0
    [problem] = document.pop("problems")
    assert (problem["stage"], problem["subject"]) == ("names", "pods")  # this host has no file that names them
    rows = [row for container in document["containers"] for row in container["accelerators"]]
    # known from the second NVML pass on, which may have been the first look's
    assert {row["own"].pop("utilization") for row in rows} <= {None, 0}
    assert document == {
        "host": {"cgroup": "v1", "driver_version": "595.45.04", "simulated": False},
        "gpus": [_gpu(MUTE, 1, [TRAINING]), _gpu(BUSY, 0, [TRAINING, SERVING])],
        "containers": [
            _container(f"/docker/{TRAINING}", "docker", "explicit", (MUTE, BUSY)),
            _container(f"/docker/{PRIVILEGED}", "docker", "unrestricted"),
            _container(POD, "containerd", "explicit", (BUSY,), pod=POD_UID),
            _container(f"/machine.slice/libpod-{WEB}.scope", "podman", "none"),
        ],
    }


def test_the_table_of_once_shows_the_same(driver: Driver, tmp_path: Path, once: list[str]) -> None:
    done = run_command(tmp_path, *once, **driver.variables())
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("nvidia1"))
    for word in ("A100-SXM4-40GB", f"{7 * 1024} / {40 * 1024} MiB", "75 %", "shared"):
        assert word in lines[at]
    assert [line.split()[-1] for line in lines[at : at + 2]] == [TRAINING[:12], SERVING[:12]]
    [training] = [line for line in lines if line.startswith(TRAINING[:12])]
    assert training.split()[:4] == [TRAINING[:12], "docker", "explicit", "nvidia0,1"]


def test_containers_can_be_left_out_by_name_or_id(driver: Driver, tmp_path: Path, once: list[str]) -> None:
    options = ["--exclude-containers", f"{TRAINING[:8]}*", "--exclude-containers", SERVING]
    done = run_command(tmp_path, *once, *options, "--format", "json", **driver.variables())
    access = {container["id"]: container["access"] for container in json.loads(done.stdout)["containers"]}
    assert access == {TRAINING: "excluded", SERVING: "excluded", WEB: "none", PRIVILEGED: "unrestricted"}


def test_the_simulated_host_reaches_a_collector(start_agent: StartAgent) -> None:
    export = start_agent("--simulate").flushed()
    for metric, gpus in (("hw.gpu.memory.usage", 8), ("hw.gpu.memory.limit", 8), ("hw.gpu.utilization", 7)):
        assert len({point.attributes["hw.id"] for point in export.of(metric)}) == gpus  # one is partitioned
    assert len({point.attributes["container.id"] for point in export.of("container.gpu.access")}) >= 6
    assert export.value("gpu_cgroup.device.count", {"gpu_cgroup.device.source": "nvml"}) == 8


def test_the_simulated_host_says_that_it_is_one(tmp_path: Path) -> None:
    done = run_command(tmp_path, "once", "--simulate", "--format", "json")
    document = json.loads(done.stdout)
    assert document["host"]["simulated"] is True
    assert len(document["gpus"]) == 8 + 3
    assert {gpu["minor"] - gpu["index"] for gpu in document["gpus"]} != {0}


def test_two_exporters_at_once_share_each_cycle(start_agent: StartAgent, driver: Driver, bare_host: str) -> None:
    driver.set(World(gpus=(BUSY,)))
    options = ("--host-root", bare_host, "--exporter", "otlp,console", "--interval", "3600")
    agent = start_agent(*options, **driver.variables())
    export = agent.flushed()
    assert export.value("hw.gpu.memory.usage", {"hw.id": BUSY.uuid}) == 7 * GIB
    assert agent.lines(str(7 * GIB), "hw.id=GPU-busy")
    assert driver.passes() <= 3  # one at the start, one for the first push of both, one for the last


def test_once_looks_again_only_where_that_may_tell_more(driver: Driver, tmp_path: Path) -> None:
    """No process is on the GPU. A pass is made at the start, and at most one for each look."""
    driver.set(World(gpus=(BUSY,)))
    quiet = write_host(tmp_path / "quiet", {f"/docker/{TRAINING}": "c 195:1 rw\n"})
    assert run_command(tmp_path, "once", "--host-root", os.fspath(quiet), **driver.variables()).returncode == 0
    alone = driver.passes()
    assert alone <= 2
    waiting = write_host(tmp_path / "waiting", {POD: "c 195:1 rw\n"})
    (waiting / "var/log/containers").mkdir(parents=True)  # kubelet is here, and may name it yet
    assert run_command(tmp_path, "once", "--host-root", os.fspath(waiting), **driver.variables()).returncode == 0
    assert driver.passes() - alone >= 3
