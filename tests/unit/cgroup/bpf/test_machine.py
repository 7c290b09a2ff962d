# SPDX-License-Identifier: Apache-2.0
"""What a program does on one request, and where it cannot be told; numbers are checked in tests/property and kernel."""

from __future__ import annotations

import pytest

from otel_gpu_cgroup.cgroup.bpf.isa import decode
from otel_gpu_cgroup.cgroup.bpf.machine import Step, request_context, run
from otel_gpu_cgroup.errors import UnsupportedProgram
from tests.support.bpf_programs import instruction

CONTEXT = request_context(6, 2, 195, 3)
EXIT = instruction(0x95)
ALLOWED = instruction(0xB7, 0, imm=1) + EXIT


def result(*pieces: bytes) -> int:
    return run(decode(b"".join(pieces)), CONTEXT)


def refusal(*pieces: bytes) -> str:
    with pytest.raises(UnsupportedProgram) as refused:
        result(*pieces)
    return str(refused.value)


def holds(register: int, value: int) -> bytes:
    """Ends the program: 1 if the register holds this number."""
    return instruction(0xB7, 0) + instruction(0x55, register, 0, 1, value) + instruction(0xB7, 0, imm=1) + EXIT


def test_the_request_is_as_the_kernel_lays_it_out() -> None:
    assert request_context(6, 2, 195, 3) == bytes.fromhex("02000600 c3000000 03000000")


@pytest.mark.parametrize(
    ("code", "at", "value"), [(0x61, 4, 195), (0x61, 8, 3), (0x69, 0, 2), (0x69, 2, 6), (0x71, 2, 6), (0x81, 8, 3)]
)
def test_parts_of_the_request(code: int, at: int, value: int) -> None:
    assert result(instruction(code, 2, 1, at), holds(2, value)) == 1


@pytest.mark.parametrize("at", [-1, 9, 12, -32768])
def test_what_is_outside_the_request(at: int) -> None:
    assert "cannot be known" in refusal(instruction(0x61, 2, 1, at), ALLOWED)


def test_the_request_cannot_be_written() -> None:
    assert "cannot be known" in refusal(instruction(0x62, 1, 0, 0, 1), ALLOWED)


def test_a_part_of_what_was_stored() -> None:
    stored = instruction(0x7A, 10, 0, -8, -2)
    assert result(stored, instruction(0x71, 2, 10, -8), holds(2, 0xFE)) == 1
    assert result(stored, instruction(0x91, 2, 10, -8), holds(2, -2)) == 1
    assert result(stored, instruction(0x6A, 10, 0, -6, 0x1234), instruction(0x61, 2, 10, -8), holds(2, 0x1234FFFE)) == 1


@pytest.mark.parametrize(("at", "width"), [(0, 0x61), (-2, 0x61), (-516, 0x61), (-513, 0x71), (8, 0x79)])
def test_what_is_outside_the_stack(at: int, width: int) -> None:
    assert "cannot be known" in refusal(instruction(width, 2, 10, at), ALLOWED)
    assert "cannot be known" in refusal(instruction(width + 1, 10, 0, at, 1), ALLOWED)


def test_the_ends_of_the_stack() -> None:
    for at in (-512, -8):
        assert result(instruction(0x7A, 10, 0, at, 5), instruction(0x79, 2, 10, at), holds(2, 5)) == 1


def test_what_was_never_written() -> None:
    for piece in (
        instruction(0x07, 5, imm=1),  # a register
        instruction(0x0F, 5, 5),
        instruction(0x1F, 5, 5),
        instruction(0x15, 5, 0, 0, 1),
        instruction(0x7B, 10, 5, -8),
        instruction(0x79, 5, 10, -8),  # the stack
        instruction(0x61, 5, 5),
    ):
        assert "instruction 0: what it computes with cannot be known" in refusal(piece, ALLOWED)
    assert "cannot be known" in refusal(instruction(0x72, 10, 0, -8, 1), instruction(0x69, 2, 10, -8), ALLOWED)
    assert "cannot be known" in refusal(EXIT)


def test_a_register_that_is_cleared_by_itself_was_maybe_never_written() -> None:
    """So the kernel shows a move of 0 where it blinds constants."""
    assert result(instruction(0xAF, 0, 0), EXIT) == 0
    assert result(instruction(0xAF, 1, 1), holds(1, 0)) == 1


def test_addresses_can_be_moved_added_to_and_kept() -> None:
    walked = instruction(0xBF, 2, 10) + instruction(0xB7, 3, imm=-16) + instruction(0x0F, 2, 3)
    stored = walked + instruction(0x7A, 2, 0, 0, 9)
    assert result(stored, instruction(0x79, 4, 10, -16), holds(4, 9)) == 1
    other_way = instruction(0xB7, 2, imm=-16) + instruction(0x0F, 2, 10) + instruction(0x7A, 2, 0, 0, 9)
    assert result(other_way, instruction(0x79, 4, 10, -16), holds(4, 9)) == 1
    back = instruction(0x07, 2, imm=16) + instruction(0x17, 2, imm=8) + instruction(0x7A, 2, 0, 0, 7)
    assert result(walked, back, instruction(0x79, 4, 10, -8), holds(4, 7)) == 1
    kept = instruction(0x7B, 10, 1, -8) + instruction(0xB7, 1) + instruction(0x79, 1, 10, -8)
    assert result(kept, instruction(0x61, 2, 1, 4), holds(2, 195)) == 1


@pytest.mark.parametrize(
    "piece",
    [
        instruction(0xBC, 2, 1),  # half of an address
        instruction(0x1F, 1, 10),
        instruction(0x0F, 1, 10),
        instruction(0x57, 1, imm=-8),
        instruction(0x87, 1),
        instruction(0x04, 1, imm=4),
        instruction(0xBF, 2, 1, 8),
        instruction(0xD7, 1, imm=64),
        instruction(0xDC, 1, imm=64),
        instruction(0x15, 1, 0, 0, 0),
        instruction(0x1D, 1, 10),
        instruction(0x2E, 1, 10),
        instruction(0x63, 10, 1, -8),  # a part of it on the stack
        instruction(0x62, 2, 0, 0, 1),  # a number as an address
        instruction(0x61, 2, 0),
    ],
)
def test_the_number_of_an_address_is_the_kernels_secret(piece: bytes) -> None:
    assert "instruction 2: what it computes with" in refusal(
        instruction(0xB7, 0, imm=1), instruction(0xB7, 2, imm=1), piece, ALLOWED
    )
    assert "cannot be known" in refusal(instruction(0xBF, 0, 1), EXIT)


@pytest.mark.parametrize("over", [instruction(0x72, 10, 0, -5, 1), instruction(0x7B, 10, 10, -12)])
def test_an_address_that_was_overwritten_in_part_is_none(over: bytes) -> None:
    """The second is another address that covers half of it."""
    kept = instruction(0x7B, 10, 1, -8)
    assert "cannot be known" in refusal(kept, over, instruction(0x79, 1, 10, -8), ALLOWED)
    assert "cannot be known" in refusal(kept, instruction(0x71, 2, 10, -8), ALLOWED)


@pytest.mark.parametrize("number", [2, -1, 1 << 30])
def test_results_that_no_device_program_has(number: int) -> None:
    assert "it returns" in refusal(instruction(0xB7, 0, imm=number), EXIT)


def test_a_64_bit_result_is_not_cut() -> None:
    high = instruction(0x18, 0, imm=1) + instruction(0, imm=1)
    assert "it returns 4294967297" in refusal(high, EXIT)


@pytest.mark.parametrize(
    "piece",
    [
        instruction(0x05, off=5),
        instruction(0x05, off=-9),
        instruction(0x06, imm=2**31 - 1),
        instruction(0xB7, 0, imm=1),
    ],
)
def test_a_program_that_goes_on_outside(piece: bytes) -> None:
    assert "where no instruction is" in refusal(piece)


def test_the_second_half_of_a_load_is_no_place_to_go_to() -> None:
    assert "at 2, where no instruction is" in refusal(
        instruction(0x05, off=1), instruction(0x18, 0, imm=1), instruction(0), EXIT
    )


@pytest.mark.parametrize("loop", [instruction(0x05, off=-1), instruction(0x06, imm=-1)])
def test_a_program_without_an_end(loop: bytes) -> None:
    assert "more than 100000 steps" in refusal(loop, EXIT)


def test_what_is_not_known_matters_only_where_it_is_reached() -> None:
    call = instruction(0x85, imm=5)
    other_minor = instruction(0x61, 2, 1, 8) + instruction(0x55, 2, 0, 1, 4)
    assert result(other_minor, call, ALLOWED) == 1
    assert refusal(call, ALLOWED) == "it calls a function of the kernel"


@pytest.mark.parametrize("register", [12, 13, 15])
def test_a_register_that_there_is_not(register: int) -> None:
    assert "cannot be known" in refusal(instruction(0xB7, register, imm=1), ALLOWED)
    assert "cannot be known" in refusal(instruction(0xBF, 2, register), ALLOWED)


def test_the_steps_that_were_taken() -> None:
    trace: list[Step] = []
    code = [instruction(0x61, 2, 1, 8), instruction(0x55, 2, 0, 2, 4), instruction(0xB7, 0), EXIT, ALLOWED]
    assert run(decode(b"".join(code)), CONTEXT, trace) == 1
    assert trace == [Step(0, 1), Step(1, 4), Step(4, 5)]
