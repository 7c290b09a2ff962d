# SPDX-License-Identifier: Apache-2.0
"""What real rules mean for whole GPUs and for MIG instances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.cgroup.devices_list import parse_devices_list
from otel_gpu_cgroup.cgroup.policy import BothPolicies, UnknownPolicy
from otel_gpu_cgroup.errors import PolicyUnreadable
from otel_gpu_cgroup.model import AccessClass, DeviceNode, DeviceType, Gpu, GpuUuid, MigInstance
from otel_gpu_cgroup.nvidia.judgement import Judgement, judge

if TYPE_CHECKING:
    from collections.abc import Iterable

CAPS: Final = 236


def instance(uuid: str, *minors: int) -> Gpu:
    nodes = tuple(DeviceNode(DeviceType.CHAR, CAPS, minor) for minor in minors) or None
    return Gpu(1, GpuUuid(uuid), instance=MigInstance(GpuUuid("GPU-cut"), 0, 0, nodes=nodes))


WHOLE: Final = Gpu(0, GpuUuid("GPU-whole"))
CUT: Final = Gpu(1, GpuUuid("GPU-cut"), is_partitioned=True)
FIRST, SECOND = instance("MIG-1", 219, 220), instance("MIG-2", 228, 229)
SIBLING = instance("MIG-3", 228, 230)
UNTOLD = instance("MIG-untold")
GPUS: Final = (WHOLE, CUT, FIRST, SECOND, SIBLING)


def judged(rules: str, gpus: tuple[Gpu, ...] = GPUS) -> Judgement:
    return judge(parse_devices_list(rules), gpus)


def names(gpus: Iterable[Gpu]) -> list[str | None]:
    return [gpu.uuid for gpu in gpus]


@pytest.mark.parametrize(
    ("rules", "access", "usable"),
    [
        ("c 195:1 rw\nc 236:219 rw\nc 236:220 rw\n", AccessClass.EXPLICIT, ["MIG-1"]),
        ("c 195:1 rw\nc 236:228 rw\nc 236:229 rw\nc 236:230 rw\n", AccessClass.EXPLICIT, ["MIG-2", "MIG-3"]),
        ("c 195:1 rw\nc 236:* rwm\n", AccessClass.EXPLICIT, ["MIG-1", "MIG-2", "MIG-3"]),
        ("c 195:* rw\nc 236:* rw\n", AccessClass.EXPLICIT, ["GPU-whole", "MIG-1", "MIG-2", "MIG-3"]),
        ("a *:* rwm\n", AccessClass.UNRESTRICTED, ["GPU-whole", "MIG-1", "MIG-2", "MIG-3"]),
        ("c 195:0 rw\n", AccessClass.EXPLICIT, ["GPU-whole"]),
        ("c 195:1 rw\n", AccessClass.EXPLICIT, []),
        ("c 195:1 rw\nc 236:219 rw\n", AccessClass.EXPLICIT, []),
        ("c 195:1 rw\nc 236:220 rw\n", AccessClass.EXPLICIT, []),
        ("c 195:1 rw\nc 236:219 r\nc 236:220 rw\n", AccessClass.EXPLICIT, []),
        ("c 195:1 rw\nc 236:229 rw\nc 236:219 rw\n", AccessClass.EXPLICIT, []),
        ("c 236:219 rw\nc 236:220 rw\n", AccessClass.NONE, []),
        ("c 236:* rwm\n", AccessClass.NONE, []),
        ("c 236:1 rw\n", AccessClass.NONE, []),
        ("c 195:1 rw\nc 236:1 rw\nc 236:2 rw\n", AccessClass.EXPLICIT, []),
        ("b 236:219 rw\nb 236:220 rw\nc 195:1 rw\n", AccessClass.EXPLICIT, []),
        ("", AccessClass.NONE, []),
    ],
    ids=[
        "one instance",
        "two of one GPU instance",
        "all capabilities",
        "all of all",
        "everything",
        "the whole GPU",
        "the parent's node alone",
        "without the compute instance's",
        "without the GPU instance's",
        "read alone",
        "halves of two",
        "without the parent's node",
        "capabilities without a GPU",
        "who may configure MIG",
        "who may configure and watch it",
        "block devices",
        "nothing",
    ],
)
def test_what_may_be_used(rules: str, access: AccessClass, usable: list[str]) -> None:
    found = judged(rules)
    assert (found.access, names(found.gpus)) == (access, usable)
    assert names(found.denied) == [gpu.uuid for gpu in GPUS if gpu is not CUT and gpu.uuid not in usable]
    assert found.unsure == ()
    assert found.strangers == ()


def test_an_instance_whose_nodes_nobody_tells_is_neither_allowed_nor_denied() -> None:
    found = judged("c 195:1 rw\nc 236:* rw\n", (CUT, FIRST, UNTOLD))
    assert (names(found.gpus), names(found.denied), names(found.unsure)) == (["MIG-1"], [], ["MIG-untold"])
    assert found.access is AccessClass.EXPLICIT


def test_without_its_gpus_node_an_instance_is_denied_whatever_its_own_are() -> None:
    found = judged("c 236:* rw\nc 195:0 rw\n", (WHOLE, CUT, UNTOLD))
    assert (names(found.denied), names(found.unsure)) == (["MIG-untold"], [])


def test_where_one_controller_does_not_answer_what_the_other_allows_is_unsure() -> None:
    policy = BothPolicies(
        parse_devices_list("c 195:1 rw\nc 236:219 rw\nc 236:220 rw\n"), UnknownPolicy(PolicyUnreadable("x"))
    )
    found = judge(policy, GPUS)
    assert (names(found.gpus), names(found.unsure)) == ([], ["MIG-1"])
    assert names(found.denied) == ["GPU-whole", "MIG-2", "MIG-3"]
    assert found.access is AccessClass.UNKNOWN


def test_a_partitioned_gpu_is_no_stranger() -> None:
    assert judged("c 195:1 rw\nc 195:5 rw\n").strangers == (5,)
