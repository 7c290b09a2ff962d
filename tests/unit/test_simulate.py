# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from otel_gpu_cgroup.cgroup.devices_list import parse_devices_list
from otel_gpu_cgroup.containers.identity import parse_container
from otel_gpu_cgroup.model import CgroupPath, Runtime
from otel_gpu_cgroup.simulate.machine import CONTAINERS, GPUS, MEMORY_TOTAL


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
    assert {container.runtime for container in containers if container is not None} == set(Runtime)
    assert None not in containers
    assert len({container.id for container in containers if container is not None}) == len(CONTAINERS)


def test_rules_are_what_the_kernel_prints() -> None:
    for container in CONTAINERS:
        assert parse_devices_list(container.devices_list()).rules


def test_values_move_within_what_a_gpu_can_do() -> None:
    for gpu in GPUS:
        values = [(gpu.percent(second), gpu.memory_used(second)) for second in range(120)]
        assert all(0 <= percent <= 100 and 0 < used < MEMORY_TOTAL for percent, used in values)
        assert len(set(values)) > 10 or gpu.busy == 0
