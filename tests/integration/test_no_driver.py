# SPDX-License-Identifier: Apache-2.0
"""No driver, half a driver, a driver that comes later: normal states, said once."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.fakes.fake_nvml import GIB, LIBRARY_NAME, FakeGpu, FakeMemory, Steady, World, build
from tests.integration.host_tree import write_host
from tests.support.agent import Driver, run_command
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.conftest import StartAgent

CONTAINER: Final = "c0" * 32
GPU: Final = FakeGpu(
    uuid="GPU-a", minor=3, memory=FakeMemory(used=4 * GIB, reserved=GIB), utilization=17, samples=Steady((60,))
)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A host with one container that may open a GPU with minor number 3, and nothing of a driver on its disk."""
    return os.fspath(write_host(tmp_path / "host", {f"/docker/{CONTAINER}": "c 195:3 rw\n"}))


@pytest.fixture
def library(fake_library_dir: Path, tmp_path: Path) -> Path:
    """Where a driver's library can be put."""
    return tmp_path / LIBRARY_NAME


def _install(library: Path, fake_library_dir: Path, driver: Driver) -> None:
    driver.set(World(gpus=(GPU,)))
    library.symlink_to(fake_library_dir / LIBRARY_NAME)


def _world_appears(library: Path, fake_library_dir: Path, driver: Driver) -> None:
    driver.set(World(gpus=(GPU,)))


@pytest.mark.parametrize(
    ("is_installed", "come", "reason"),
    [(False, _install, "cannot open shared object file"), (True, _world_appears, "Driver Not Loaded")],
    ids=["no library", "no kernel module"],
)
def test_a_missing_driver_is_said_once_and_picked_up_when_it_comes(
    start_agent: StartAgent,
    driver: Driver,
    library: Path,
    root: str,
    is_installed: bool,  # noqa: FBT001
    come: Callable[[Path, Path, Driver], None],
    reason: str,
) -> None:
    if is_installed:
        library.symlink_to(driver.library_dir / LIBRARY_NAME)
    variables = driver.variables() | {"LD_LIBRARY_PATH": ""}
    agent = start_agent("--host-root", root, "--nvml-library", str(library), **variables)
    for export in agent.wait_for(2):
        assert not export.of("container.gpu.access")
        assert export.value("gpu_cgroup.container.count", {"gpu_cgroup.access": "explicit"}) == 1
        assert export.value("gpu_cgroup.device.count", {"gpu_cgroup.device.source": "nvml"}) is None
    [line] = agent.lines("warning")
    assert reason in line

    come(library, driver.library_dir, driver)
    access = "container.gpu.access", {"container.id": CONTAINER, "hw.id": GPU.uuid}
    eventually(lambda: agent.exports()[-1].value(*access), agent.log)
    assert len(agent.lines("warning")) == 1
    assert len(agent.lines("info solved")) == 1


def _once(root: str, tmp_path: Path, variables: dict[str, str]) -> dict[str, Any]:
    done = run_command(tmp_path, "once", "--format", "json", "--host-root", root, **variables)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_stub_library_is_a_driver_that_does_not_work(tmp_path: Path, root: str) -> None:
    """What a CUDA toolkit brings for linking: it loads, and says in each answer that it is the wrong one."""
    stub = Driver(build(tmp_path, "stub"), tmp_path / "world", tmp_path / "counts")
    document = _once(root, tmp_path, stub.variables())
    assert document["gpus"] == []
    assert [container["access"] for container in document["containers"]] == ["explicit"]
    [problem] = document["problems"]
    assert problem["stage"] == "nvml"
    assert problem["message"]
    assert "\n" not in problem["message"]


def test_without_memory_version_2_memory_is_that_of_version_1(tmp_path: Path, root: str) -> None:
    """Drivers before 510: `used` then holds the driver's reserve."""
    old = Driver(build(tmp_path, without=("nvmlDeviceGetMemoryInfo_v2",)), tmp_path / "world", tmp_path / "counts")
    old.set(World(gpus=(GPU,)))
    document = _once(root, tmp_path, old.variables())
    [accelerator] = document["containers"][0]["accelerators"]
    assert accelerator["memory_used"] == GPU.memory.used + GPU.memory.reserved
    assert accelerator["memory_total"] == GPU.memory.total
    assert document["problems"] == []


def test_without_samples_the_duty_cycle_is_the_utilization_rate(tmp_path: Path, root: str) -> None:
    old = Driver(build(tmp_path, without=("nvmlDeviceGetSamples",)), tmp_path / "world", tmp_path / "counts")
    old.set(World(gpus=(GPU,)))
    document = _once(root, tmp_path, old.variables())
    [accelerator] = document["containers"][0]["accelerators"]
    assert accelerator["duty_cycle"] == GPU.utilization
    assert accelerator["memory_used"] == GPU.memory.used
    assert document["problems"] == []


def test_the_library_can_be_named(driver: Driver, tmp_path: Path, root: str) -> None:
    driver.set(World(gpus=(GPU,)))
    variables = driver.variables() | {"LD_LIBRARY_PATH": ""}
    name = os.fspath(driver.library_dir / LIBRARY_NAME)
    done = run_command(tmp_path, "once", "--format", "json", "--host-root", root, "--nvml-library", name, **variables)
    assert [gpu["id"] for gpu in json.loads(done.stdout)["gpus"]] == [GPU.uuid]


def test_the_library_is_found_where_the_host_keeps_it(driver: Driver, tmp_path: Path, root: str) -> None:
    """In a container the loader knows nothing of it, but the host's root is mounted."""
    driver.set(World(gpus=(GPU,)))
    place = tmp_path / "host/home/kubernetes/bin/nvidia/lib64"
    place.mkdir(parents=True)
    (place / LIBRARY_NAME).symlink_to(driver.library_dir / LIBRARY_NAME)
    document = _once(root, tmp_path, driver.variables() | {"LD_LIBRARY_PATH": ""})
    assert [gpu["id"] for gpu in document["gpus"]] == [GPU.uuid]
