# SPDX-License-Identifier: Apache-2.0
"""What a process finds out about its own container by access(2)."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.cgroup.devices_list import parse_devices_list
from otel_gpu_cgroup.cgroup.policy import BothPolicies, UnknownPolicy, classify
from otel_gpu_cgroup.cgroup.probe import OwnPolicyReader, Probe, ProbedPolicy
from otel_gpu_cgroup.cgroup.reader import PolicyReader
from otel_gpu_cgroup.errors import PolicyUnreadable
from otel_gpu_cgroup.model import (
    READ_WRITE,
    AccessClass,
    CgroupPath,
    Container,
    DeviceNode,
    DeviceType,
    Permission,
    PolicySource,
    Runtime,
    Verdict,
    gpu_node,
)
from otel_gpu_cgroup.nvidia.judgement import judge
from tests.support.need import need

if TYPE_CHECKING:
    from pathlib import Path

    from otel_gpu_cgroup.cgroup.policy import DevicePolicy

MEM: Final = DeviceNode(DeviceType.CHAR, 1, 1)
GPUS: Final = [gpu_node(minor) for minor in range(3)]
ALLOW, DENY, UNKNOWN = Verdict.ALLOW, Verdict.DENY, Verdict.UNKNOWN
REFUSED: Final = UnknownPolicy(PolicyUnreadable("refused", "bpf(2)"))
V1: Final = parse_devices_list("c 195:1 rw\nc 195:2 rw\n")
HYBRID: Final = BothPolicies(V1, REFUSED)


def _verdicts(policy: DevicePolicy) -> list[Verdict]:
    return [policy.allows(node, READ_WRITE) for node in GPUS]


@pytest.mark.parametrize(
    ("answers", "kernel", "expected"),
    [
        ({0: 0, 1: errno.EPERM}, REFUSED, [ALLOW, DENY, DENY]),
        ({0: 0, 1: errno.ENOENT}, REFUSED, [ALLOW, DENY, DENY]),
        ({0: 0, 1: errno.EACCES}, REFUSED, [ALLOW, UNKNOWN, DENY]),
        ({}, REFUSED, [DENY, DENY, DENY]),
        ({0: 0, 1: errno.EPERM}, V1, [ALLOW, DENY, ALLOW]),
        ({0: errno.EACCES, 1: errno.EACCES}, V1, [DENY, ALLOW, ALLOW]),
        ({0: errno.EACCES, 1: errno.EACCES}, HYBRID, [DENY, UNKNOWN, DENY]),
        ({}, V1, [DENY, ALLOW, ALLOW]),
    ],
)
def test_a_node_that_is_there_is_asked_and_the_kernels_policy_tells_of_the_others(
    answers: dict[int, int], kernel: DevicePolicy, expected: list[Verdict]
) -> None:
    policy = ProbedPolicy(tuple((gpu_node(minor), error) for minor, error in answers.items()), kernel)
    assert _verdicts(policy) == expected


@pytest.mark.parametrize(
    ("answers", "kernel", "source"),
    [
        ({0: 0}, V1, PolicySource.PROBE),
        ({}, V1, PolicySource.DEVICES_LIST),
        ({}, HYBRID, PolicySource.DEVICES_LIST),
        ({}, REFUSED, PolicySource.PROBE),
    ],
)
def test_the_source_is_who_answered(answers: dict[int, int], kernel: DevicePolicy, source: PolicySource) -> None:
    policy = ProbedPolicy(tuple((gpu_node(minor), error) for minor, error in answers.items()), kernel)
    assert policy.source is source
    assert source.is_kernel


def test_only_reading_and_writing_at_once_is_probed() -> None:
    policy = ProbedPolicy(((GPUS[0], 0),), REFUSED)
    assert policy.allows(GPUS[0], Permission.READ) is DENY


def test_a_node_that_cannot_be_asked_about_makes_the_class_unknown_and_is_named() -> None:
    answers = ((MEM, errno.EACCES), (GPUS[0], 0), (GPUS[1], errno.EACCES))
    judgement = judge(ProbedPolicy(answers, REFUSED), ())
    assert (judgement.access, judgement.source) == (AccessClass.UNKNOWN, PolicySource.NOBODY)
    assert "195:1" in str(judgement.trouble)
    assert "Permission denied" in str(judgement.trouble)


@pytest.mark.parametrize(
    ("mem", "expected"),
    [(0, AccessClass.UNRESTRICTED), (errno.EPERM, AccessClass.EXPLICIT), (None, AccessClass.EXPLICIT)],
)
def test_a_container_with_memory_may_open_everything(mem: int | None, expected: AccessClass) -> None:
    answers = [(node, 0) for node in GPUS] + ([] if mem is None else [(MEM, mem)])
    assert classify(ProbedPolicy(tuple(answers), REFUSED), GPUS) is expected


def test_nodes_that_may_be_opened_are_named() -> None:
    answers = ((gpu_node(7), 0), (gpu_node(8), errno.EPERM), (MEM, 0))
    assert ProbedPolicy(answers, V1).named_minors(195) == {1, 2, 7}


def test_the_kernel_is_asked_by_access(tmp_path: Path) -> None:
    probe = Probe()
    readable = tmp_path / "file"
    readable.write_text("")
    assert probe.ask(str(readable)) == 0
    assert probe.ask(str(tmp_path / "missing")) == errno.ENOENT
    assert probe.ask(f"{readable}/below") == errno.ENOTDIR


def test_the_nodes_are_those_of_the_own_dev(tmp_path: Path) -> None:
    need(os.geteuid() == 0, "making device nodes needs root")
    dev = tmp_path / "dev"
    dev.mkdir()
    for minor in (0, 1):
        os.mknod(dev / f"nvidia{minor}", stat.S_IFCHR | 0o666, os.makedev(195, minor))
    (tmp_path / "devices.list").write_text("c 195:2 rw\n")
    container = Container(CgroupPath("/"), Runtime.UNKNOWN, devices=str(tmp_path))
    reader = OwnPolicyReader(PolicyReader(), str(dev))
    policy = reader.read(container)
    assert policy.source is PolicySource.PROBE
    assert _verdicts(policy) == [ALLOW, ALLOW, ALLOW]
    reader.begin_cycle()
    assert reader.read(container) is policy
    (dev / "nvidia1").unlink()
    assert _verdicts(reader.read(container)) == [ALLOW, DENY, ALLOW]


def test_without_a_dev_and_without_a_cgroup_no_device_is_its(tmp_path: Path) -> None:
    policy = OwnPolicyReader(PolicyReader(), str(tmp_path / "none")).read(Container(CgroupPath("/"), Runtime.UNKNOWN))
    assert _verdicts(policy) == [DENY, DENY, DENY]
    assert policy.source is PolicySource.PROBE
