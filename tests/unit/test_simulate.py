# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import otel_gpu_cgroup.simulate.machine
from otel_gpu_cgroup.cgroup.bpf.policy import BpfPolicy, DeviceProgram
from otel_gpu_cgroup.cgroup.devices_list import parse_devices_list
from otel_gpu_cgroup.compose import open_cycle, open_host
from otel_gpu_cgroup.containers.identity import parse_container
from otel_gpu_cgroup.model import READ_WRITE, AcceleratorStats, CgroupPath, NodeStats, Runtime, gpu_node
from otel_gpu_cgroup.settings import Settings, SimulatedVersion
from otel_gpu_cgroup.simulate.machine import CONTAINERS, GPUS, MEMORY_TOTAL, SimulatedContainer
from otel_gpu_cgroup.simulate.tree import programs_folder

PROGRAMS = Path(otel_gpu_cgroup.simulate.machine.__file__).parent / "programs"


def test_the_host_has_what_a_newcomer_should_see() -> None:
    assert len(GPUS) == 8
    assert {gpu.index for gpu in GPUS} == {gpu.minor for gpu in GPUS} == set(range(8))
    assert any(gpu.index != gpu.minor for gpu in GPUS)
    held = [minor for container in CONTAINERS for minor in container.minors]
    assert any(held.count(minor) > 1 for minor in held)
    assert {gpu.minor for gpu in GPUS} - set(held)
    assert any(container.privileged for container in CONTAINERS)
    assert any(not container.minors and not container.privileged for container in CONTAINERS)


def test_every_cgroup_is_a_container_of_a_known_runtime() -> None:
    containers = [parse_container(CgroupPath(container.cgroup)) for container in CONTAINERS]
    assert {container.runtime for container in containers if container is not None} == {
        Runtime.DOCKER,
        Runtime.CONTAINERD,
        Runtime.CRIO,
        Runtime.PODMAN,
    }
    assert None not in containers
    assert len({container.id for container in containers if container is not None}) == len(CONTAINERS)


def test_rules_are_what_the_kernel_prints() -> None:
    for container in CONTAINERS:
        assert parse_devices_list(container.devices_list()).rules


def test_programs_say_what_the_v1_rules_say() -> None:
    nodes = [gpu_node(minor) for minor in (*range(8), 253, 255)]
    for container in CONTAINERS:
        rules = parse_devices_list(container.devices_list())
        programs = BpfPolicy([DeviceProgram((PROGRAMS / f"{name}.bin").read_bytes()) for name in container.programs])
        assert container.programs
        for node in nodes:
            assert programs.allows(node, READ_WRITE) is rules.allows(node, READ_WRITE), (container.cgroup, node)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_both_versions_give_the_same_rows(version: SimulatedVersion) -> None:
    settings = Settings(simulate=version)
    with open_host(settings) as host, open_cycle(settings, host, 30) as cycle:
        stats = cycle.collect()
    assert not stats.problems
    assert stats.cgroup_mode == version
    by_minor = {gpu.minor: gpu.uuid for gpu in GPUS}
    found = {report.container.cgroup: [row.id for row in report.accelerators] for report in stats.containers}
    assert found == {one.cgroup: [by_minor[minor] for minor in one.minors] for one in CONTAINERS}


def test_a_program_that_is_replaced_takes_the_row_away() -> None:
    settings = Settings(simulate="v2")
    trainer = CONTAINERS[0]
    with open_host(settings) as host, open_cycle(settings, host, 30) as cycle:
        assert len(rows(cycle.collect(), trainer)) == 4
        shutil.copy(PROGRAMS / "runc-no-gpu.bin", programs_folder(host.root, trainer.cgroup) / "second.bin")
        assert rows(cycle.collect(), trainer) == ()


def rows(stats: NodeStats, container: SimulatedContainer) -> tuple[AcceleratorStats, ...]:
    [report] = [report for report in stats.containers if report.container.cgroup == container.cgroup]
    return report.accelerators


def test_values_move_within_what_a_gpu_can_do() -> None:
    for gpu in GPUS:
        values = [(gpu.percent(second), gpu.memory_used(second)) for second in range(120)]
        assert all(0 <= percent <= 100 and 0 < used < MEMORY_TOTAL for percent, used in values)
        assert len(set(values)) > 10 or gpu.busy == 0
