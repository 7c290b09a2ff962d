# SPDX-License-Identifier: Apache-2.0
"""What a reload of systemd leaves of a container's rules and programs, and what only looks like it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import tests
from otel_gpu_cgroup.cgroup.bpf.isa import decode
from otel_gpu_cgroup.cgroup.bpf.policy import BpfPolicy, DeviceProgram
from otel_gpu_cgroup.cgroup.devices_list import parse_devices_list
from otel_gpu_cgroup.cgroup.signature import (
    DevMounts,
    is_systemd_shaped,
    list_signature,
    parse_dev_mounts,
    program_signature,
)
from otel_gpu_cgroup.model import gpu_node
from tests.support import bpf_programs
from tests.support.bpf_programs import instruction, parse_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

_RECORDED: Final = sorted((Path(tests.__file__).parent / "data/bpf").glob("*.bin"))
_DEFAULTS: Final = ("allow c 1:3 rwm", "allow c *:* m", "allow b *:* m")
_ONE: Final = [parse_rule(rule) for rule in ("allow c 195:0 rw", "allow c 195:255 rw", *_DEFAULTS)]
_NONE: Final = [parse_rule(rule) for rule in _DEFAULTS]
_RUNTIMES: Final = (bpf_programs.runc, bpf_programs.crun, bpf_programs.lxc)
_DENY_ALL: Final = bpf_programs.systemd([])
EVERY_MAJOR: Final = "c 1:* m\nc 4:* m\nc 195:* m\nc 236:* m\nb 7:* m\n"
"""`char-* m` and `block-* m` as systemd 239 writes them for every container (nvidia-container-toolkit #251)."""


@pytest.mark.parametrize(
    ("rules", "sign", "of_any_minor"),
    [
        ("c 195:0 m\n", "195:0", "195:0"),
        ("c *:* m\nc 195:0 m\nc 1:3 rwm\n", "195:0", "195:0"),
        ("c 195:* m\n", None, "195:*"),
        ("c 195:* m\nc 1:3 rwm\nc 5:0 m\n", None, "195:*"),
        ("c 195:* m\nc 195:0 m\n", "195:0", "195:0"),
        ("", None, None),
        ("c *:* m\n", None, None),
        ("c *:* m\nc 195:* m\n", None, None),
        (EVERY_MAJOR, None, None),
        (f"{EVERY_MAJOR}c 195:0 m\n", "195:0", "195:0"),
        ("c 195:1 m\n", None, None),
        ("b 195:0 m\n", None, None),
        ("c 195:0 r\n", None, None),
        ("c 195:0 rm\n", None, None),
        ("c 226:* m\n", None, None),
        ("c *:0 m\n", None, None),
    ],
)
def test_mknod_left_alone(rules: str, sign: str | None, of_any_minor: str | None) -> None:
    policy = parse_devices_list(rules)
    for any_minor, expected in ((False, sign), (True, of_any_minor)):
        text = expected and f"its devices.list has mknod alone for {expected}, as systemd leaves it at daemon-reload"
        assert list_signature(policy, [gpu_node(0)], any_minor=any_minor) == text


def test_all_nodes_of_a_device_must_have_lost_the_rest_of_their_rules() -> None:
    node, capability = gpu_node(0), gpu_node(7)
    one, both = parse_devices_list("c 195:0 m\n"), parse_devices_list("c 195:0 m\nc 195:7 m\n")
    assert list_signature(one, [node, capability], any_minor=True) is None
    text = list_signature(both, [node, capability], any_minor=True)
    assert text is not None
    assert "195:0, 195:7" in text
    assert list_signature(both, [], any_minor=True) is None


def test_programs_of_systemds_shape_are_told_from_those_of_runtimes() -> None:
    existing = bpf_programs.runc(_NONE)
    for rules in (_ONE, _NONE, _ONE[:1], [], _ONE * 20):
        assert is_systemd_shaped(decode(bpf_programs.systemd(rules)))
    others = [
        *(
            shape(rules)
            for shape in (bpf_programs.runc, bpf_programs.crun, bpf_programs.lxc)
            for rules in (_ONE, _NONE)
        ),
        bpf_programs.slurm([parse_rule("deny c 195:0 rwm")]),
        bpf_programs.nvcgo(_ONE[:1], existing),
        bpf_programs.nvcgo(_ONE[:1], bpf_programs.systemd(_NONE)),
        b"",
        instruction(0xB7),
    ]
    assert [is_systemd_shaped(decode(code)) for code in others] == [False] * len(others)


@pytest.mark.parametrize("file", _RECORDED, ids=lambda file: file.stem)
def test_no_program_of_a_real_container_that_looks_at_a_request_is_of_systemds_shape(file: Path) -> None:
    assert not is_systemd_shaped(decode(file.read_bytes())) or file.stem in ("runc.privileged", "crun.privileged")


def test_a_program_with_one_exit_whose_rules_do_not_jump_as_systemds_is_not_its() -> None:
    zero, one, exit_ = instruction(0xB7), instruction(0xB7, imm=1), instruction(0x95)
    minor, unless_3 = instruction(0x61, 1, 1, 8), instruction(0x55, 1, off=1, imm=3)
    tail = zero + instruction(0x05, off=1) + one + exit_
    assert is_systemd_shaped(decode(minor + unless_3 + instruction(0x05, off=2) + tail))
    blinded_one = instruction(0xB7, 11, imm=6) + instruction(0xA7, 11, imm=7) + instruction(0xBF, 0, 11)
    blinded = instruction(0xAF) + instruction(0x05, off=3) + blinded_one + exit_
    assert is_systemd_shaped(decode(minor + unless_3 + instruction(0x05, off=2) + blinded))
    to_the_exit = minor + unless_3 + instruction(0x05, off=3) + tail
    no_result = minor + unless_3 + instruction(0x05, off=2) + tail.replace(one, minor)
    as_compilers_do = minor + one + instruction(0x15, 1, off=1, imm=3) + zero + exit_
    two_exits = minor + unless_3 + exit_ + tail
    for code in (to_the_exit, no_result, as_compilers_do, two_exits):
        assert not is_systemd_shaped(decode(code))


def _policy(*programs: tuple[int, bytes, str]) -> BpfPolicy:
    return BpfPolicy([DeviceProgram(code, name) for _, code, name in programs], [number for number, _, _ in programs])


RUNC: Final = (1, bpf_programs.runc(_ONE), "")
CRUN: Final = (1, bpf_programs.crun(_ONE), "")
NVCGO: Final = (1, bpf_programs.nvcgo(_ONE[:1], bpf_programs.systemd(_NONE)), "")
SYSTEMD: Final = (2, bpf_programs.systemd(_NONE), "")
SYSTEMD_STRICT: Final = (2, _DENY_ALL, "")
SYSTEMD_NAMED: Final = (2, bpf_programs.runc(_NONE), "sd_devices")
SYSTEMD_WITH: Final = (3, bpf_programs.systemd(_ONE), "")
SLURM: Final = (2, bpf_programs.slurm([parse_rule("deny c 195:0 rwm")]), "Slurm_Cgroup_v2")
PRIVILEGED: Final = (1, bpf_programs.runc([], default=True), "")
ANOTHER_RUNC: Final = (2, bpf_programs.runc(_NONE), "")


@pytest.mark.parametrize(
    ("programs", "cgroups", "count"),
    [
        ([RUNC, SYSTEMD], [[1, 2]], 2),
        ([CRUN, SYSTEMD], [[1, 2]], 2),
        ([NVCGO, SYSTEMD], [[1, 2]], 2),
        ([RUNC, SYSTEMD_STRICT], [[1, 2]], 2),
        ([RUNC, SYSTEMD_NAMED], [[2, 1]], 2),
        ([RUNC, SYSTEMD], [[], [1, 2]], 2),
        ([RUNC, SYSTEMD], [[1, 2, 9]], 3),
        ([RUNC, SYSTEMD], [[1], [2]], None),
        ([RUNC, SYSTEMD], [[1]], None),
        ([RUNC, SYSTEMD], [], None),
        ([RUNC, SYSTEMD, (3, *SYSTEMD[1:])], [[1, 2]], None),
        ([RUNC, SYSTEMD, (3, *ANOTHER_RUNC[1:])], [[1, 2, 3]], None),
        ([RUNC, SLURM], [[1, 2]], None),
        ([RUNC, ANOTHER_RUNC], [[1, 2]], None),
        ([PRIVILEGED, SYSTEMD], [[1, 2]], None),
        ([SYSTEMD_WITH, SYSTEMD], [[2, 3]], None),
        ([SYSTEMD], [[2]], None),
        ([RUNC], [[1]], None),
        ([], [[]], None),
    ],
    ids=[
        *("runc", "crun", "nvcgo", "strict", "named", "on the scope", "three on one"),
        *("systemd's from above", "systemd's from elsewhere", "cgroups not told", "and one from above"),
        *("and a runtime's", "slurm's", "two of runc", "privileged", "two of systemd", "systemd's", "runc's", "none"),
    ],
)
def test_programs_of_one_cgroup_that_differ(
    programs: Sequence[tuple[int, bytes, str]], cgroups: Sequence[Sequence[int]], count: int | None
) -> None:
    found = program_signature(_policy(*programs), [gpu_node(0)], lambda: cgroups)
    assert found == (count and f"of the {count} programs on its cgroup systemd's denies it")


def test_cgroups_are_asked_only_where_programs_differ() -> None:
    def never() -> Sequence[Sequence[int]]:
        raise AssertionError

    for programs, minor in (([SYSTEMD], 0), ([RUNC, SYSTEMD], 1), ([RUNC, ANOTHER_RUNC], 0), ([], 0)):
        assert program_signature(_policy(*programs), [gpu_node(minor)], never) is None
    assert program_signature(_policy(RUNC, SYSTEMD), [], never) is None
    assert program_signature(_policy(RUNC, SYSTEMD), [gpu_node(0), gpu_node(1)], never) is None


_HOSTS: Final = "24 27 0:6 / /dev rw,relatime - devtmpfs devtmpfs rw,size=12334432k"
_OWN: Final = "500 490 0:61 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755"
_SUB: Final = "24 27 0:6 /lxc/one /dev rw,relatime - devtmpfs devtmpfs rw"
_PTS: Final = "501 500 0:62 / /dev/pts rw,nosuid - devpts devpts rw"
_GPU: Final = "510 500 0:6 /nvidia0 /dev/nvidia0 ro,nosuid,noexec master:2 - devtmpfs devtmpfs rw"
_CONTROL: Final = "511 500 0:6 /nvidiactl /dev/nvidiactl ro,nosuid - devtmpfs devtmpfs rw"


@pytest.mark.parametrize(
    ("lines", "is_hosts", "nodes"),
    [
        ([_HOSTS, _PTS], True, []),
        ([_HOSTS, _GPU], True, ["nvidia0"]),
        ([_OWN, _PTS], False, []),
        ([_OWN, _PTS, _GPU, _CONTROL], False, ["nvidia0", "nvidiactl"]),
        ([_OWN, _GPU, _GPU], False, ["nvidia0"]),
        ([_HOSTS, _OWN], False, []),
        ([_OWN, _HOSTS], True, []),
        ([_SUB, _GPU], False, ["nvidia0"]),
        ([_GPU], False, ["nvidia0"]),
        (["", "nonsense", "1 2 3 4 5 - devtmpfs", "\udcff - \udcff"], False, []),
    ],
)
def test_mounts_on_dev(lines: Sequence[str], *, is_hosts: bool, nodes: Sequence[str]) -> None:
    found = parse_dev_mounts("\n".join([*lines, ""]))
    assert found == DevMounts(is_hosts, tuple(f"/dev/{name}" for name in nodes))
