# SPDX-License-Identifier: Apache-2.0
"""The manager over a host's files and the C fake: what it knows, whatever the driver does."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.cgroup.reader import PolicyReader
from otel_gpu_cgroup.errors import Gone
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import (
    AccessClass,
    CgroupPath,
    Container,
    ContainerStats,
    GpuUuid,
    Ownership,
    ProcessOwner,
    Runtime,
    Stage,
)
from otel_gpu_cgroup.nvidia.manager import NvidiaManager
from otel_gpu_cgroup.nvidia.nvml import PyNvml
from tests.fakes.fake_nvml import GIB, FakeGpu, FakeMemory, World
from tests.fakes.nvml_world import FakeProcess
from tests.support.wiring import new_lost_watch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import LoadedDriver

A, B = GpuUuid("GPU-aaaaaaaa-0000-4000-8000-000000000000"), GpuUuid("GPU-bbbbbbbb-0000-4000-8000-000000000000")
IN_TIME, AT_ONCE = 30.0, 0.0


def information(minor: int, uuid: str) -> str:
    return f"Model: \t\t H100\nGPU UUID: \t {uuid}\nBus Location: \t 0000:0{minor}:00.0\nDevice Minor: \t {minor}\n"


class Machine:
    """A host in a folder, its driver, and the manager that looks at both."""

    def __init__(self, root: Path, driver: LoadedDriver) -> None:
        self.root = root
        self.driver = driver
        host = HostPaths(root)
        self.manager = NvidiaManager(host, PyNvml(driver.library), PolicyReader(), new_lost_watch(host))

    def set_file(self, minor: int, uuid: str) -> None:
        folder = self.root / f"proc/driver/nvidia/gpus/0000:0{minor}:00.0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "information").write_text(information(minor, uuid))

    def set_pci(
        self, address: str, *, vendor: str = "0x10de", kind: str = "0x030200", driver: str | None = None
    ) -> None:
        folder = self.root / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")
        if driver is not None:
            (folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")

    def container(self, rules: str) -> Container:
        folder = self.root / "devices/docker/one"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "devices.list").write_text(rules)
        return Container(CgroupPath("/docker/one"), Runtime.DOCKER, "one", devices=str(folder))

    def stats(self, rules: str) -> ContainerStats:
        container = self.container(rules)
        stats = ContainerStats(container)
        self.manager.get_collector(container).update_stats(stats)
        return stats


@pytest.fixture
def machine(tmp_path: Path, driver: LoadedDriver) -> Iterator[Machine]:
    made = Machine(tmp_path / "host", driver)
    yield made
    driver.set(World())
    made.manager.destroy()


def gpu(uuid: str, minor: int, **knobs: object) -> FakeGpu:
    return FakeGpu(uuid=uuid, minor=minor, bus=f"00000000:0{minor}:00.0", memory=FakeMemory(used=GIB), **knobs)  # type: ignore[arg-type]


def test_rows_are_joined_by_minor_and_not_by_index(machine: Machine) -> None:
    machine.driver.set(World(gpus=(gpu(A, 1), gpu(B, 0))))
    machine.manager.refresh(IN_TIME)
    stats = machine.stats("c 195:0 rw\n")
    assert [(row.make, row.id, row.memory_used) for row in stats.accelerators] == [("nvidia", B, GIB)]
    assert stats.access is AccessClass.EXPLICIT


def test_access_needs_no_answer_of_nvml_where_the_drivers_files_are_visible(machine: Machine) -> None:
    machine.set_file(3, A)
    machine.driver.set(World(errors={"nvmlInitWithFlags": 999}))
    inventory = machine.manager.refresh(IN_TIME)
    assert inventory.nvml_gpus is None
    [row] = machine.stats("c 195:3 rw\n").accelerators
    assert (row.id, row.memory_used, row.duty_cycle) == (A, None, None)


def test_a_hanging_driver_costs_values_and_never_access(machine: Machine) -> None:
    machine.driver.set(World(gpus=(gpu(A, 0),)))
    machine.manager.refresh(IN_TIME)
    machine.driver.set(World(gpus=(gpu(A, 0),), hangs=("nvmlDeviceGetMemoryInfo*",)))
    inventory = machine.manager.refresh(0.05)
    assert [problem.stage for problem in inventory.problems] == [Stage.NVML]
    assert inventory.readings == {}
    [row] = machine.stats("c 195:0 rw\n").accelerators
    assert (row.id, row.memory_total, row.memory_used, row.duty_cycle) == (A, None, None, None)
    machine.manager.refresh(3600)  # nobody waits for a call that was late once
    machine.manager.destroy()  # nor is NVML shut down under it
    assert machine.driver.counts()["shutdown_while_in_flight"] == 0
    assert machine.driver.counts()["in_flight"] == 1


def test_values_return_after_a_hang(machine: Machine) -> None:
    hung, well = World(gpus=(gpu(A, 0),), hangs=("nvmlDeviceGetCount*",)), World(gpus=(gpu(A, 0),))
    machine.driver.set(hung)
    assert machine.manager.refresh(0.05).nvml_gpus is None
    machine.driver.set(well)
    while machine.driver.counts()["in_flight"]:
        pass
    while machine.manager.refresh(IN_TIME).nvml_gpus is None:
        pass
    assert machine.stats("c 195:0 rw\n").accelerators[0].memory_used == GIB


def test_a_uuid_of_question_marks_gets_no_row_until_nvml_tells_it(machine: Machine) -> None:
    machine.set_file(0, "GPU-????????-????-????-????-????????????")
    machine.driver.set(World(errors={"nvmlInitWithFlags": 9}))
    machine.manager.refresh(IN_TIME)
    stats = machine.stats("c 195:0 rw\n")
    assert (stats.access, stats.accelerators) == (AccessClass.EXPLICIT, [])
    machine.driver.set(World(gpus=(gpu(A, 0),)))
    machine.manager.refresh(IN_TIME)
    assert [row.id for row in machine.stats("c 195:0 rw\n").accelerators] == [A]
    machine.driver.set(World(errors={"nvmlDeviceGetCount*": 18}))
    machine.manager.refresh(IN_TIME)
    assert [row.id for row in machine.stats("c 195:0 rw\n").accelerators] == [A]


def test_a_gpu_that_appears_on_the_bus_makes_nvml_start_anew(machine: Machine) -> None:
    machine.set_pci("0000:01:00.0")
    machine.driver.set(World(gpus=(gpu(A, 0),)))
    machine.manager.refresh(IN_TIME)
    started = machine.driver.counts()["nvmlInitWithFlags"]
    machine.manager.refresh(IN_TIME)
    assert machine.driver.counts()["nvmlInitWithFlags"] == started
    machine.set_pci("0000:02:00.0")
    machine.manager.refresh(IN_TIME)
    assert machine.driver.counts()["nvmlInitWithFlags"] == started + 1
    assert machine.driver.counts()["references"] == 1


def test_pci_counts_gpus_and_nothing_else_of_nvidia(machine: Machine) -> None:
    machine.set_pci("0000:01:00.0", driver="nvidia")
    machine.set_pci("0000:02:00.0", kind="0x030000")
    machine.set_pci("0000:02:00.1", kind="0x040300")  # its audio function
    machine.set_pci("0000:03:00.0", kind="0x068000")  # an NVSwitch
    machine.set_pci("0000:04:00.0", driver="vfio-pci")  # given to a guest
    machine.set_pci("0000:05:00.0", vendor="0x8086")
    (machine.root / "sys/bus/pci/devices/0000:06:00.0").mkdir()  # without a vendor file
    assert machine.manager.refresh(IN_TIME).pci_gpus == 2


def test_a_driver_that_is_gone_leaves_no_gpus_behind(machine: Machine) -> None:
    machine.driver.set(World(gpus=(gpu(A, 0),)))
    machine.manager.refresh(IN_TIME)
    machine.driver.set(World(errors={"nvml*": 9}))
    inventory = machine.manager.refresh(IN_TIME)
    assert (inventory.gpus, inventory.nvml_gpus) == ((), None)
    assert [problem.stage for problem in inventory.problems] == [Stage.NVML]
    machine.driver.set(World(gpus=(gpu(A, 0),)))
    assert len(machine.manager.refresh(IN_TIME).gpus) == 1


def test_a_minor_that_no_gpu_has_is_told_and_costs_no_other_gpu(machine: Machine) -> None:
    machine.driver.set(World(gpus=(gpu(A, 0),)))
    machine.manager.refresh(IN_TIME)
    stats = machine.stats("c 195:0 rw\nc 195:7 rw\nc 195:255 rw\nc 195:254 rw\nc 195:9 m\n")
    assert [row.id for row in stats.accelerators] == [A]
    [problem] = stats.problems
    assert "c 195:7" in problem.message
    assert "195:9" not in problem.message


@pytest.mark.parametrize(
    ("rules", "access"),
    [
        ("a *:* rwm\n", AccessClass.UNRESTRICTED),
        ("c 195:* rw\n", AccessClass.EXPLICIT),
        ("c 195:0 rw\n", AccessClass.EXPLICIT),
        ("c 195:* m\n", AccessClass.NONE),
        ("", AccessClass.NONE),
        ("c 195:0 rw rw\n", AccessClass.UNKNOWN),
    ],
)
@pytest.mark.parametrize("gpus", [(), (gpu(A, 0), gpu(B, 1))], ids=["no GPU known", "two GPUs"])
def test_access_classes(machine: Machine, rules: str, access: AccessClass, gpus: tuple[FakeGpu, ...]) -> None:
    machine.driver.set(World(gpus=gpus))
    machine.manager.refresh(IN_TIME)
    assert machine.stats(rules).access is access


def test_a_policy_that_cannot_be_read_is_unknown_and_a_problem(machine: Machine) -> None:
    container = machine.container("")
    listing = machine.root / "devices/docker/one/devices.list"
    listing.unlink()
    with pytest.raises(Gone):
        machine.manager.get_collector(container)
    listing.mkdir()
    stats = ContainerStats(container)
    machine.manager.get_collector(container).update_stats(stats)
    assert stats.access is AccessClass.UNKNOWN
    assert [(problem.stage, problem.subject) for problem in stats.problems] == [(Stage.POLICY, "/docker/one")]


def test_a_pass_that_fails_leaves_no_readings_of_the_one_before(machine: Machine) -> None:
    machine.driver.set(World(gpus=(gpu(A, 0),)))
    machine.manager.refresh(IN_TIME)
    machine.driver.set(World(gpus=(gpu(A, 0),), errors={"nvmlDeviceGetCount*": 10}))
    machine.manager.refresh(IN_TIME)
    [row] = machine.stats("c 195:0 rw\n").accelerators
    assert (row.id, row.memory_used) == (A, None)


def test_one_file_that_is_not_the_drivers_costs_no_other_gpu(machine: Machine) -> None:
    machine.set_file(0, A)
    machine.set_file(1, B)
    path = machine.root / "proc/driver/nvidia/gpus/0000:00:00.0/information"
    path.write_text("garbage\n")
    machine.driver.set(World(errors={"nvmlInitWithFlags": 9}))
    inventory = machine.manager.refresh(IN_TIME)
    assert [found.uuid for found in inventory.gpus] == [B]
    assert str(path) in {problem.subject for problem in inventory.problems}


def test_a_file_that_never_answers_delays_nobody_and_costs_no_name(machine: Machine) -> None:
    machine.set_file(0, A)
    machine.driver.set(World(errors={"nvmlInitWithFlags": 9}))
    assert [found.uuid for found in machine.manager.refresh(IN_TIME).gpus] == [A]
    folder = machine.root / "proc/driver/nvidia/gpus/0000:01:00.0"
    folder.mkdir()
    os.mkfifo(folder / "information")
    inventory = machine.manager.refresh(IN_TIME)
    assert [found.uuid for found in inventory.gpus] == [A]
    assert [problem.subject for problem in inventory.problems] == ["NVML", "/proc/driver/nvidia/gpus"]
    with (folder / "information").open("w"):  # lets the reader go
        pass


def test_a_gpu_that_was_counted_and_never_named_makes_nobodys_rules_void(machine: Machine) -> None:
    nameless = gpu(A, 0, errors={"nvmlDeviceGetMinorNumber": 999})
    machine.driver.set(World(gpus=(nameless, gpu(B, 1))))
    inventory = machine.manager.refresh(IN_TIME)
    assert (len(inventory.gpus), inventory.nvml_gpus) == (1, 2)
    stats = machine.stats("c 195:0 rw\n")
    assert (stats.access, stats.accelerators, stats.problems) == (AccessClass.EXPLICIT, [], [])
    machine.driver.set(World(gpus=(nameless, gpu(B, 1)), hangs=("nvmlDeviceGetCount*",)))
    machine.manager.refresh(0.05)
    assert machine.stats("c 195:0 rw\n").access is AccessClass.EXPLICIT


def test_two_gpus_of_one_uuid_are_counted_as_two_and_told(machine: Machine) -> None:
    machine.driver.set(World(gpus=(gpu(A, 0), gpu(A, 1))))
    inventory = machine.manager.refresh(IN_TIME)
    assert (len(inventory.gpus), inventory.nvml_gpus) == (1, 2)
    assert [problem.subject for problem in inventory.problems] == [A]
    assert machine.stats("c 195:1 rw\n").access is AccessClass.EXPLICIT


@pytest.mark.parametrize("rules", [None, "nonsense\n"], ids=["not looked for", "not readable"])
def test_a_cycle_that_does_not_tell_of_a_user_does_not_end_its_use(machine: Machine, rules: str | None) -> None:
    """A container that may open everything keeps the rows of what it has used until it ends."""
    machine.driver.set(World(gpus=(gpu(A, 0, processes=(FakeProcess(pid=7, memory=GIB),)), gpu(B, 1))))
    machine.manager.refresh(IN_TIME)
    machine.manager.attribute(Ownership({7: ProcessOwner("one", started_at=0.0)}))
    assert [row.id for row in machine.stats("a *:* rwm\n").accelerators] == [A]
    machine.driver.set(World(gpus=(gpu(A, 0), gpu(B, 1))))
    machine.manager.refresh(IN_TIME)
    if rules is not None:
        assert machine.stats(rules).access is AccessClass.UNKNOWN
    machine.manager.refresh(IN_TIME)
    assert [row.id for row in machine.stats("a *:* rwm\n").accelerators] == [A]


def test_setup_waits_for_nothing(machine: Machine) -> None:
    machine.driver.set(World(hangs=("nvmlInitWithFlags",)))
    machine.manager.setup()
    assert machine.manager.refresh(AT_ONCE).nvml_gpus is None
