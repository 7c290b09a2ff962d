# SPDX-License-Identifier: Apache-2.0
"""Listings of programs; their text is compared with the kernel's own in tests/kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu_cgroup.cgroup.bpf.isa import FORMS, decode
from otel_gpu_cgroup.cgroup.bpf.listing import deciding_place, list_program
from otel_gpu_cgroup.cgroup.bpf.machine import Step, request_context, run
from otel_gpu_cgroup.errors import UnsupportedProgram

if TYPE_CHECKING:
    from otel_gpu_cgroup.cgroup.bpf.isa import Program

# c 195:0 rw as runc writes it, between its prologue and its end
RUNC: Final = decode(
    bytes.fromhex(
        "6112000000000000 54020000ffff0000 6113000000000000 7403000010000000 6114040000000000 6115080000000000"
        "5502070002000000 bc31000000000000 5401000006000000 5d31040000000000 55040300c3000000 5505020000000000"
        "b400000001000000 9500000000000000 b400000000000000 9500000000000000"
    )
)
LISTING: Final = [
    "r2 = *(u32 *)(r1 +0)",
    "w2 &= 65535",
    "r3 = *(u32 *)(r1 +0)",
    "w3 >>= 16",
    "r4 = *(u32 *)(r1 +4)",
    "r5 = *(u32 *)(r1 +8)",
    "if r2 != 2 goto 14",
    "w1 = w3",
    "w1 &= 6",
    "if r1 != r3 goto 14",
    "if r4 != 195 goto 14",
    "if r5 != 0 goto 14",
    "w0 = 1",
    "exit",
    "w0 = 0",
    "exit",
]
LOOP: Final = decode(bytes.fromhex("6112040000000000 0702000001000000 5502feff00000000 9500000000000000"))


def trace(program: Program, major: int, minor: int, access: int = 6, kind: int = 2) -> list[Step]:
    steps: list[Step] = []
    run(program, request_context(access, kind, major, minor), steps)
    return steps


def test_a_program_is_one_line_an_instruction() -> None:
    lines = list_program(RUNC)
    assert [line.text for line in lines] == LISTING
    assert [line.at for line in lines] == list(range(16))
    assert not any(line.executed or line.decides for line in lines)


@pytest.mark.parametrize(
    ("steps", "executed", "decision"),
    [
        (trace(RUNC, 195, 0), range(14), 11),
        (trace(RUNC, 195, 1), [*range(12), 14, 15], 11),
        (trace(RUNC, 1, 3), [*range(11), 14, 15], 10),
        (trace(RUNC, 195, 0, access=1), [*range(10), 14, 15], 9),
        (trace(RUNC, 195, 0, kind=1), [*range(7), 14, 15], 6),
    ],
    ids=["allowed", "another minor", "another major", "mknod alone", "a block device"],
)
def test_the_path_of_a_request_and_what_decided(steps: list[Step], executed: list[int], decision: int) -> None:
    lines = list_program(RUNC, steps)
    assert [line.at for line in lines if line.executed] == list(executed)
    assert [line.at for line in lines if line.decides] == [decision]


def test_a_program_without_conditions_decides_nowhere() -> None:
    always = decode(bytes.fromhex("b700000001000000 9500000000000000"))
    steps = trace(always, 195, 0)
    assert deciding_place(always, steps) is None
    assert [line.executed for line in list_program(always, steps)] == [True, True]


def test_a_run_that_breaks_off_is_marked_to_where_it_came() -> None:
    helper = decode(bytes.fromhex("b702000001000000 8500000005000000 9500000000000000"))
    steps: list[Step] = []
    with pytest.raises(UnsupportedProgram):
        run(helper, request_context(6, 2, 195, 0), steps)
    lines = list_program(helper, steps)
    assert [(line.text, line.executed) for line in lines] == [("r2 = 1", True), ("call 5", True), ("exit", False)]


def test_loads_and_conditions_say_what_of_the_request_they_look_at() -> None:
    meanings = {line.at: line.meaning for line in list_program(RUNC) if line.meaning}
    loads = {0: "access and type", 2: "access and type", 4: "major", 5: "minor"}
    assert meanings == loads | {6: "type", 9: "access", 10: "major", 11: "minor"}


def test_a_meaning_that_depends_on_the_way_is_not_told() -> None:
    # r2 is the major number, or the minor where the access is 0; then it is compared
    code = "6113000000000000 6112040000000000 5503010000000000 6112080000000000 5502000001000000 9500000000000000"
    assert [line.meaning for line in list_program(decode(bytes.fromhex(code)))] == [
        "access and type",
        "major",
        "access and type",
        "minor",
        "",
        "",
    ]


def test_of_a_program_that_jumps_back_no_meaning_is_told() -> None:
    assert [line.meaning for line in list_program(LOOP)] == ["", "", "", ""]
    assert list_program(LOOP)[2].text == "if r2 != 0 goto 1"


def test_a_64_bit_load_takes_two_places() -> None:
    wide = decode(bytes.fromhex("1802000001000000 0000000002000000 9500000000000000"))
    assert [(line.at, line.text) for line in list_program(wide)] == [(0, "r2 = 0x200000001"), (2, "exit")]


def test_what_is_not_known_is_shown_by_its_fields() -> None:
    atomic = decode(bytes.fromhex("db2af8ff00000000"))
    assert [line.text for line in list_program(atomic)] == ["not known: opcode 0xdb dst 10 src 2 off -8 imm 0x0"]


@given(st.lists(st.binary(min_size=8, max_size=8), max_size=8))
def test_whatever_decodes_can_be_listed(instructions: list[bytes]) -> None:
    try:
        program = decode(b"".join(instructions))
    except UnsupportedProgram:
        return
    lines = list_program(program)
    assert [line.at for line in lines] == [at for at, instruction in enumerate(program) if instruction is not None]
    assert all(line.text.isprintable() for line in lines)


@given(st.sampled_from(sorted(FORMS)), st.integers(0, 255), st.integers(-(2**15), 2**15 - 1), st.integers(0, 2**31))
def test_every_opcode_can_be_listed_with_any_fields(code: int, registers: int, off: int, imm: int) -> None:
    raw = bytes([code, registers]) + off.to_bytes(2, "little", signed=True) + imm.to_bytes(4, "little")
    [line] = list_program(decode(raw + bytes(8) if code == 0x18 else raw))[:1]
    assert line.text
