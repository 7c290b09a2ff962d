# SPDX-License-Identifier: Apache-2.0
"""Containers made by runc: what the product reads of them is what the kernel does to a process inside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.cgroup.policy import classify
from otel_gpu_cgroup.cgroup.reader import PolicyReader
from otel_gpu_cgroup.containers.identity import parse_container
from otel_gpu_cgroup.errors import Gone
from otel_gpu_cgroup.model import READ_WRITE, AccessClass, CgroupPath, Container, Verdict, gpu_node
from tests.kernel.comparison import DEFAULT_ALLOW, Comparison
from tests.support.devices_cgroup import DevicesCgroup, devices_cgroup
from tests.support.runc import DENY_ALL, PRIVILEGED, RuncContainer, RuncSpec, docker_cgroup, need_runc, runc_container

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.devices_cgroup import KernelOracle

_GPUS: Final = [gpu_node(minor) for minor in range(20)]
_RULES: Final = {
    "no GPU": (DENY_ALL,),
    "no rules at all": (),
    "one GPU": (DENY_ALL, "allow c 195:0 rw", "allow c 195:255 rw"),
    "one GPU with mknod": (DENY_ALL, "allow c 195:7 rwm", "allow c 195:255 rwm"),
    "eight GPUs": (DENY_ALL, *(f"allow c 195:{minor} rw" for minor in range(8)), "allow c 195:255 rw"),
    "every GPU by a wildcard": (DENY_ALL, "allow c 195:* rwm"),
    "every character device": (DENY_ALL, "allow c *:* rwm"),
    "mknod alone": (DENY_ALL, "allow c 195:* m"),
    "reading alone": (DENY_ALL, "allow c 195:0 r"),
    "reading and writing by two rules": (DENY_ALL, "allow c 195:* r", "allow c 195:2 w"),
    "a GPU taken back": (DENY_ALL, "allow c 195:0 rw", "allow c 195:1 rw", "deny c 195:0 rw"),
    "management without a GPU": (DENY_ALL, "allow c 195:255 rw", "allow c 195:254 rw", "allow c 507:0 rw"),
    "block devices of the same numbers": (DENY_ALL, "allow b 195:0 rw"),
    "privileged": PRIVILEGED,
}
_CLASSES: Final = {
    "one GPU": AccessClass.EXPLICIT,
    "one GPU with mknod": AccessClass.EXPLICIT,
    "eight GPUs": AccessClass.EXPLICIT,
    "every GPU by a wildcard": AccessClass.EXPLICIT,
    "every character device": AccessClass.UNRESTRICTED,
    "a GPU taken back": AccessClass.EXPLICIT,
    "privileged": AccessClass.UNRESTRICTED,
}


@pytest.mark.parametrize("name", _RULES)
def test_verdicts_are_the_kernels(name: str, tmp_path: Path, kernel: KernelOracle, totals: Comparison) -> None:
    need_runc()
    with runc_container(tmp_path, RuncSpec(docker_cgroup(), _RULES[name])) as container:
        holes = _compare(DevicesCgroup(container.devices_cgroup), kernel, totals)
        policy = PolicyReader().read(_as_product(container))
    assert totals.disagreements == []
    assert holes == 0
    assert classify(policy, _GPUS) is _CLASSES.get(name, AccessClass.NONE)


@pytest.mark.parametrize("rule", ["deny c 195:0 rw", "deny c 195:* w", "deny c 195:* m", "deny b *:* rwm"])
def test_a_deny_list_shows_no_holes(rule: str, tmp_path: Path, kernel: KernelOracle, totals: Comparison) -> None:
    need_runc()
    with runc_container(tmp_path, RuncSpec(docker_cgroup(), (*PRIVILEGED, rule))) as container:
        cgroup = DevicesCgroup(container.devices_cgroup)
        assert cgroup.devices_list() == DEFAULT_ALLOW
        assert _compare(cgroup, kernel, totals) > 0
    assert totals.disagreements == []


def test_a_container_inside_a_container(tmp_path: Path, kernel: KernelOracle, totals: Comparison) -> None:
    need_runc()
    both = (DENY_ALL, "allow c 195:0 rw", "allow c 195:1 rw")
    with runc_container(tmp_path, RuncSpec(docker_cgroup(), both)) as outer:
        inside = RuncSpec(f"{outer.cgroup}{docker_cgroup()}", (DENY_ALL, "allow c 195:1 rw"))
        with runc_container(tmp_path, inside) as inner:
            for container in (outer, inner):
                assert _compare(DevicesCgroup(container.devices_cgroup), kernel, totals) == 0
            assert _allowed_gpus(_as_product(outer)) == [0, 1]
            assert _allowed_gpus(_as_product(inner)) == [1]
    assert totals.disagreements == []


def test_a_cgroup_that_a_container_makes_is_no_container(tmp_path: Path) -> None:
    need_runc()
    with (
        runc_container(tmp_path, RuncSpec(docker_cgroup(), (DENY_ALL, "allow c 195:0 rw"))) as container,
        devices_cgroup(DevicesCgroup(container.devices_cgroup)) as inner,
    ):
        assert parse_container(CgroupPath(f"{container.cgroup}/{inner.path.name}")) is None


def test_rules_taken_away_while_it_runs(tmp_path: Path, kernel: KernelOracle, totals: Comparison) -> None:
    need_runc()
    rules = (DENY_ALL, "allow c 195:0 rw", "allow c 195:1 rw", "allow c 195:255 rw")
    reader = PolicyReader()
    with runc_container(tmp_path, RuncSpec(docker_cgroup(), rules)) as container:
        cgroup, found = DevicesCgroup(container.devices_cgroup), _as_product(container)
        assert _allowed_gpus(found, reader) == [0, 1]
        assert cgroup.deny("c 195:0 rw")
        assert _allowed_gpus(found, reader) == [1]
        assert cgroup.allow("c 195:0 rw")
        assert _allowed_gpus(found, reader) == [0, 1]
        assert cgroup.deny("a")
        assert cgroup.allow("c 195:* m")  # what a systemd that reloads its units leaves
        assert _allowed_gpus(found, reader) == []
        assert _compare(cgroup, kernel, totals) == 0
    assert totals.disagreements == []


def test_the_policy_of_a_container_that_ended_is_gone(tmp_path: Path) -> None:
    need_runc()
    with runc_container(tmp_path, RuncSpec(docker_cgroup(), (DENY_ALL,))) as container:
        found = _as_product(container)
    with pytest.raises(Gone):
        PolicyReader().read(found)


def _as_product(container: RuncContainer) -> Container:
    found = parse_container(CgroupPath(container.cgroup))
    assert found is not None
    return replace(found, devices=str(container.devices_cgroup))


def _allowed_gpus(container: Container, reader: PolicyReader | None = None) -> list[int]:
    policy = (reader or PolicyReader()).read(container)
    return [node.minor for node in _GPUS if policy.allows(node, READ_WRITE) is Verdict.ALLOW]


def _compare(cgroup: DevicesCgroup, kernel: KernelOracle, totals: Comparison) -> int:
    totals.containers += 1
    return totals.add(cgroup.devices_list(), kernel.ask(cgroup.path))
