# SPDX-License-Identifier: Apache-2.0
"""Which container is meant, and what is told of it."""

from __future__ import annotations

from typing import Final

import pytest

from otel_gpu_cgroup.cgroup.bpf.isa import Instruction, encode
from otel_gpu_cgroup.cgroup.bpf.policy import BpfPolicy, DeviceProgram
from otel_gpu_cgroup.cgroup.devices_list import DeviceRule, parse_devices_list
from otel_gpu_cgroup.cgroup.fallback.stated import StandInPolicy, StatedPolicy, Statement
from otel_gpu_cgroup.cgroup.policy import BothPolicies, DevicePolicy, UnknownPolicy
from otel_gpu_cgroup.cli.explanation import Explanation, Speaker, render_explanation
from otel_gpu_cgroup.cli.selection import select_containers
from otel_gpu_cgroup.errors import PolicyUnreadable
from otel_gpu_cgroup.model import (
    READ_WRITE,
    CgroupPath,
    Container,
    DeviceType,
    Gpu,
    GpuReading,
    GpuUuid,
    Pod,
    PolicySource,
    Runtime,
)
from otel_gpu_cgroup.nvidia.judgement import judge

ALONE: Final = Container(CgroupPath(f"/docker/{'1a2b' * 16}"), Runtime.DOCKER, "1a2b" * 16, name="web")
TWIN: Final = Container(CgroupPath(f"/docker/{'1a2c' * 16}"), Runtime.DOCKER, "1a2c" * 16, name="1a2b")
PODDED: Final = Container(
    CgroupPath(f"/kubepods/podx/{'ffff' * 16}"),
    Runtime.CONTAINERD,
    "ffff" * 16,
    pod=Pod("uid-1", "trainer", "ml", "main"),
)
SIDECAR: Final = Container(
    CgroupPath(f"/kubepods/podx/{'eeee' * 16}"), Runtime.CONTAINERD, "eeee" * 16, pod=Pod("uid-1", "trainer", "ml")
)
NAMELESS: Final = Container(CgroupPath("/machine.slice/unit.service"), Runtime.PODMAN)
EVERYONE: Final = (ALONE, TWIN, PODDED, SIDECAR, NAMELESS)
GPUS: Final = (Gpu(0, GpuUuid("GPU-a"), "H100", index=1), Gpu(1, GpuUuid("GPU-b"), "H100", index=0))
READINGS: Final = {GpuUuid("GPU-a"): GpuReading(80 << 30, 5 << 30, 12.5)}


def program(minor: int) -> DeviceProgram:
    """r1 = the request's minor; if it is this one r0 = 1, else r0 = 0."""
    code = (
        Instruction(0xB7, 0, 0, 0, 0),
        Instruction(0x61, 1, 1, 8, 0),
        Instruction(0x55, 1, 0, 1, minor),
        Instruction(0xB7, 0, 0, 0, 1),
        Instruction(0x95, 0, 0, 0, 0),
    )
    return DeviceProgram(encode(code), "sd_devices", bytes.fromhex("0123456789abcdef"))


def explain(
    policy: DevicePolicy, container: Container = ALONE, gpus: tuple[Gpu, ...] = GPUS, *, is_excluded: bool = False
) -> list[str]:
    speakers = (Speaker("cgroup v1", f"/sys/fs/cgroup/devices{container.cgroup}", "its own cgroup"),)
    judgement = judge(policy, gpus)
    explanation = Explanation(container, policy, judgement, speakers, gpus, READINGS, is_excluded=is_excluded)
    return render_explanation(explanation).splitlines()


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("1a2b" * 16, [ALONE]),
        (ALONE.cgroup, [ALONE]),
        (f"docker/{'1a2b' * 16}/", [ALONE]),
        ("1a2b1a2b1a2b", [ALONE]),
        ("web", [ALONE]),
        ("1a2b", [TWIN]),
        ("ffff", [PODDED]),
        ("ml/trainer", [PODDED, SIDECAR]),
        ("ml/trainer/main", [PODDED]),
        ("/machine.slice/unit.service", [NAMELESS]),
        ("1a2", []),
        ("trainer", []),
        ("2b1a", []),
        ("", []),
        ("/", []),
    ],
    ids=repr,
)
def test_which_container_is_meant(wanted: str, found: list[Container]) -> None:
    assert select_containers(wanted, EVERYONE) == found


def test_a_beginning_that_two_ids_share_means_both() -> None:
    ids = ("abcd1" + "0" * 59, "abcd2" + "0" * 59)
    containers = [Container(CgroupPath(f"/docker/{key}"), Runtime.DOCKER, key) for key in ids]
    assert select_containers("abcd", containers) == containers
    assert select_containers("abcd2", containers) == containers[1:]


def test_the_rules_of_a_devices_list_and_what_each_decided() -> None:
    policy = parse_devices_list("c *:* m\nc 1:3 rwm\nc 195:0 rw\nc 195:255 rw\n")
    assert explain(policy) == [
        f"container  {'1a2b' * 16}",
        "name       web",
        "runtime    docker",
        f"cgroup     /docker/{'1a2b' * 16}",
        f"cgroup v1  /sys/fs/cgroup/devices/docker/{'1a2b' * 16} (its own cgroup)",
        "access     explicit: it may open 1 of 2 GPUs",
        "source     devices.list",
        "",
        "GPU      INDEX  UUID                                  MAY OPEN  DEVICES.LIST  MEMORY            BUSY",
        "nvidia0  1      GPU-a                                 allow     c 195:0 rw    5120 / 81920 MiB  12 %",
        "nvidia1  0      GPU-b                                 deny      no rule       - / - MiB         -",
        "195:253         (no GPU: only wildcards allow it)     deny      no rule",
        "1:1             (/dev/mem: only allow-all allows it)  deny      no rule",
        "",
        "devices.list: 4 rules; the first that covers read and write decides",
        "  c *:* m",
        "  c 1:3 rwm",
        "  c 195:0 rw          <- nvidia0",
        "  c 195:255 rw",
        "  no rule: denied     <- nvidia1, 195:253, 1:1",
    ]


def test_a_list_that_allows_everything_may_hide_exceptions() -> None:
    lines = explain(parse_devices_list("a *:* rwm\n"))
    assert lines[-3:] == [
        "devices.list: 1 rule; the first that covers read and write decides",
        "  a *:* rwm           <- nvidia0, nvidia1, 195:253, 1:1",
        "  a list that allows by default may have exceptions; the kernel does not show them",
    ]
    assert any(line.startswith("access     unrestricted: ") for line in lines)


def test_a_program_with_the_path_for_the_first_gpu_that_is_allowed() -> None:
    lines = explain(BpfPolicy([program(1)], [102]))
    table = [line.split() for line in lines if line.startswith(("nvidia", "GPU ", "195", "1:1"))]
    assert "PROGRAM 102" in lines[lines.index("") + 1]
    assert table[1][3:7] == ["deny", "deny", "at", "2"]
    assert table[2][3:7] == ["allow", "allow", "at", "2"]
    assert lines[-9:] == [
        "program 102: tag 0123456789abcdef, name sd_devices, 5 instructions",
        "  > executed for nvidia1 (c 195:1), read and write; => the condition that decided",
        "  type: 1 block, 2 char; access: 1 mknod + 2 read + 4 write",
        "   >    0  r0 = 0",
        "   >    1  r1 = *(u32 *)(r1 +8)        ; minor",
        "  =>    2  if r1 != 1 goto 4           ; minor",
        "   >    3  r0 = 1",
        "   >    4  exit",
        "  its answer for nvidia1 (c 195:1): allow",
    ]


def test_two_programs_that_disagree_are_both_shown() -> None:
    lines = explain(BpfPolicy([program(0), program(1)], [7, 8]))
    assert [line.partition(":")[0] for line in lines if line.startswith("program")] == ["program 7", "program 8"]
    assert [line for line in lines if line.startswith("  its answer")] == [
        "  its answer for nvidia0 (c 195:0): allow",
        "  its answer for nvidia0 (c 195:0): deny",
    ]
    [row] = [line.split() for line in lines if line.startswith("nvidia0")]
    assert row[3:10] == ["deny", "allow", "at", "2", "deny", "at", "2"]


def test_a_program_that_cannot_be_evaluated_says_where_and_why() -> None:
    call = (Instruction(0xB7, 1, 0, 0, 1), Instruction(0x85, 0, 0, 0, 5), Instruction(0x95, 0, 0, 0, 0))
    lines = explain(BpfPolicy([DeviceProgram(encode(call))]))
    assert "   >    1  call 5" in lines
    assert "        2  exit" in lines
    assert lines[-1].startswith("  its answer for nvidia0 (c 195:0): unknown: ")
    assert any(line.startswith("access     unknown: nobody can say") for line in lines)
    assert "program: tag not known, name none, 3 instructions" in lines


def test_on_a_hybrid_host_each_of_both_has_its_say() -> None:
    lines = explain(BothPolicies(parse_devices_list("c 195:* rw\n"), BpfPolicy([program(1)], [9])))
    [first] = [line.split() for line in lines if line.startswith("nvidia0")]
    assert first[3:9] == ["deny", "c", "195:*", "rw", "deny", "at"]
    assert "  c 195:* rw          <- nvidia0, nvidia1, 195:253" in lines
    assert "  its answer for nvidia1 (c 195:1): allow" in lines


def test_without_a_program_nothing_is_restricted() -> None:
    lines = explain(BpfPolicy(()))
    assert lines[-1] == "no program: nothing is restricted"
    assert any(line.startswith("access     unrestricted") for line in lines)


def test_a_controller_that_does_not_tell_says_why() -> None:
    refused = UnknownPolicy(PolicyUnreadable("refused: needs\x1b[2J CAP_SYS_ADMIN"))
    lines = explain(BothPolicies(parse_devices_list("c 195:0 rw\n"), refused))
    assert lines[-1] == r"not told: refused: needs\x1b[2J CAP_SYS_ADMIN"
    assert r"trouble    refused: needs\x1b[2J CAP_SYS_ADMIN" in lines
    rows = {line.split()[0]: line.split()[3] for line in lines if line.startswith("nvidia")}
    assert rows == {"nvidia0": "unknown", "nvidia1": "deny"}


def test_what_others_say_in_place_of_the_kernel_is_shown_beside_what_it_says() -> None:
    kernel = BothPolicies(parse_devices_list("c 195:* rw\n"), UnknownPolicy(PolicyUnreadable("refused")))
    every, one = (DeviceRule(DeviceType.CHAR, 195, minor, READ_WRITE) for minor in (None, 1))
    statements = (Statement(allow=True, rule=every), Statement(allow=False, rule=one))
    lines = explain(StandInPolicy(kernel, StatedPolicy(PolicySource.OCI, statements)))
    assert "source     oci" in lines
    assert "trouble    refused" in lines
    table = {line.split()[0]: line.split()[3:] for line in lines if line.startswith("nvidia")}
    assert table["nvidia0"][:8] == ["allow", "c", "195:*", "rw", "unknown", "allow", "c", "195:*"]
    assert table["nvidia1"][:8] == ["deny", "c", "195:*", "rw", "unknown", "deny", "c", "195:1"]
    assert lines[-6:] == [
        "not told: refused",
        "",
        "oci, in place of the kernel: 2 rules; the last that covers read and write decides",
        "  allow c 195:* rw    <- nvidia0, 195:253",
        "  deny c 195:1 rw     <- nvidia1",
        "  no rule: denied     <- 1:1",
    ]


def test_where_no_gpu_is_known_the_nodes_are_shown_that_it_may_open() -> None:
    lines = explain(parse_devices_list("c 195:3 rw\nc 195:7 rw\n"), gpus=())
    assert [line.split()[0] for line in lines if line.startswith("nvidia")] == ["nvidia3", "nvidia7"]
    assert "access     explicit: it may open some GPU nodes" in lines
    assert "No GPU of this host is known: the rows are nodes that a driver could have." in lines
    nothing = explain(parse_devices_list(""), gpus=())
    assert [line.split()[:4] for line in nothing if line.startswith("nvidia")] == [["nvidia0", "-", "-", "deny"]]


def test_hostile_names_break_no_line() -> None:
    evil = Container(CgroupPath("/a\n\x1b[2J\udcff"), Runtime.PODMAN, None, "b\rc", Pod("u\n", "n\x07", "s\n", "c\n"))
    lines = explain(parse_devices_list(""), evil, is_excluded=True)
    assert all(line.isprintable() for line in lines)
    assert lines[:5] == [
        "container  without an id",
        r"name       b\rc",
        "runtime    podman",
        r"pod        u\n s\n/n\x07/c\n",
        r"cgroup     /a\n\x1b[2J\udcff",
    ]
    assert any(line.startswith("excluded   ") for line in lines)
