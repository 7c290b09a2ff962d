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
from otel_gpu_cgroup.model import (
    READ_WRITE,
    AcceleratorStats,
    CgroupPath,
    DeviceNode,
    DeviceType,
    NodeStats,
    Runtime,
    gpu_node,
)
from otel_gpu_cgroup.settings import Settings, SimulatedVersion
from otel_gpu_cgroup.simulate.containers import CONTAINERS, SimulatedContainer
from otel_gpu_cgroup.simulate.machine import CAPS_MAJOR, GPUS, MEMORY_TOTAL
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
    assert any(container.is_lost for container in CONTAINERS)
    assert any(gpu.instances for gpu in GPUS)
    assert any(not container.minors and not container.privileged for container in CONTAINERS)


def test_every_cgroup_is_a_container_of_a_known_runtime() -> None:
    containers = [parse_container(CgroupPath(container.cgroup)) for container in CONTAINERS]
    assert {container.runtime for container in containers if container is not None} == {
        Runtime.DOCKER,
        Runtime.CONTAINERD,
        Runtime.CRIO,
        Runtime.PODMAN,
        Runtime.SLURM,
    }
    assert None not in containers
    assert len({container.key for container in containers if container is not None}) == len(CONTAINERS)


def test_rules_are_what_the_kernel_prints() -> None:
    for container in CONTAINERS:
        assert parse_devices_list(container.devices_list()).rules


def test_programs_say_what_the_v1_rules_say() -> None:
    nodes = [gpu_node(minor) for minor in range(8)]
    nodes += [
        DeviceNode(DeviceType.CHAR, CAPS_MAJOR, minor)
        for gpu in GPUS
        for instance in gpu.instances
        for minor in instance.capabilities(gpu.minor)
    ]
    for container in CONTAINERS:
        rules = parse_devices_list(container.devices_list())
        programs = BpfPolicy([DeviceProgram((PROGRAMS / f"{name}.bin").read_bytes()) for name in container.programs])
        assert container.programs
        for node in nodes if "slurm" not in container.cgroup else nodes[:8]:  # Slurm's allow what they do not name
            assert programs.allows(node, READ_WRITE) is rules.allows(node, READ_WRITE), (container.cgroup, node)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_both_versions_give_the_same_rows(version: SimulatedVersion) -> None:
    settings = Settings(simulate=version)
    with open_host(settings) as host, open_cycle(settings, host, 30) as cycle:
        stats = cycle.collect()
    assert not stats.problems
    assert stats.cgroup_mode == version
    found = {report.container.cgroup: len(report.accelerators) for report in stats.containers}
    assert found == {one.path(version): 0 if one.is_lost else len(one.minors) for one in CONTAINERS}


def test_a_program_that_is_replaced_takes_the_row_away() -> None:
    settings = Settings(simulate="v2")
    trainer = CONTAINERS[0]
    with open_host(settings) as host, open_cycle(settings, host, 30) as cycle:
        assert len(rows(cycle.collect(), trainer)) == 2
        shutil.copy(PROGRAMS / "runc-no-gpu.bin", programs_folder(host.root, trainer.cgroup) / "second.bin")
        assert rows(cycle.collect(), trainer) == ()


def rows(stats: NodeStats, container: SimulatedContainer) -> tuple[AcceleratorStats, ...]:
    [report] = [report for report in stats.containers if report.container.cgroup == container.cgroup]
    return report.accelerators


def test_values_move_within_what_a_gpu_can_do() -> None:
    loads = [(gpu.load, MEMORY_TOTAL) for gpu in GPUS]
    loads += [(instance.load, instance.memory_total) for gpu in GPUS for instance in gpu.instances]
    for load, total in loads:
        values = [(load.percent(second), load.memory_used(second)) for second in range(120)]
        assert all(0 <= percent <= 100 and 0 < used < total for percent, used in values)
        assert len(set(values)) > 10 or load.busy == 0
