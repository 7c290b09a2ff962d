# SPDX-License-Identifier: Apache-2.0
"""Instructions from bytes, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import tests
from otel_gpu_cgroup.cgroup.bpf.isa import Instruction, decode, encode
from otel_gpu_cgroup.errors import UnsupportedProgram

_RECORDED: Final = sorted((Path(tests.__file__).parent / "data/bpf").glob("*.bin"))


def test_fields_are_where_the_kernel_puts_them() -> None:
    """if r5 != -2 goto -3, and *(u16 *)(r10 -8) = r9."""
    code = bytes.fromhex("5505fdfffeffffff 6b9af8ff00000000")
    assert decode(code) == (Instruction(0x55, 5, 0, -3, -2), Instruction(0x6B, 10, 9, -8, 0))


def test_a_64_bit_load_takes_two_places() -> None:
    code = bytes.fromhex("1802000078563412 00000000f0debc9a 9500000000000000")
    assert decode(code) == (Instruction(0x18, 2, 0, 0, 0x9ABCDEF012345678), None, Instruction(0x95, 0, 0, 0, 0))


@pytest.mark.parametrize(
    "code",
    [
        "95",  # less than an instruction
        "b70000000100000095",
        "1800000001000000",  # nothing behind it
        "1800000001000000 9500000000000000",  # something else behind it
        "1800000001000000 0001000001000000",
        "1800000001000000 0000010001000000",
    ],
)
def test_bytes_that_are_no_instructions(code: str) -> None:
    with pytest.raises(UnsupportedProgram):
        decode(bytes.fromhex(code))


def test_no_bytes_are_no_instructions() -> None:
    assert decode(b"") == ()


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("8500000005000000", "a helper call"),
        ("8510000005000000", "a call of another function of the program"),
        ("e500000001000000", "a loop that the kernel bounds"),
        ("db3af8ff00000000", "an atomic addition"),
        ("1812000001000000 0000000000000000", "the address of a map"),
        ("3000000000000000", "a load from a packet"),
        ("bf23010001000000", "a cast between address spaces"),
        ("0d02000000000000", "a jump to a register"),
        ("8f32000000000000", "a negation of another register"),
        ("df02000010000000", "an unconditional swap in the other form"),
        ("d702000008000000", "a swap of 8 bits"),
        ("dc020000ffffffff", "a swap of -1 bits"),
        ("9902000000000000", "a load of 64 bits that extends their sign"),
        ("c200000000000000", "a speculation barrier"),
        ("0722000001000000", "a register in an addition of a number"),
        ("0f32000001000000", "a number in an addition of a register"),
        ("0f32010000000000", "an offset in an addition"),
        ("3732020001000000", "a division of a third kind"),
        ("bc32200000000000", "a 32-bit move that extends the sign of 32 bits"),
        ("5532010001000000", "a register in a comparison with a number"),
        ("0500010001000000", "a number in a jump by the offset"),
        ("0600010001000000", "an offset in a jump by the number"),
        ("9500000001000000", "a number in an exit"),
    ],
)
def test_what_has_another_meaning_is_not_known(code: str, what: str) -> None:
    first = decode(bytes.fromhex(code))[0]
    assert first is not None
    assert not first.known, what


def test_the_move_by_which_the_verifier_clears_an_upper_half_is_known() -> None:
    (move,) = decode(bytes.fromhex("bc22000001000000"))
    assert move is not None
    assert move.known


@pytest.mark.parametrize("file", _RECORDED, ids=lambda file: file.stem)
def test_recorded_programs_come_back_as_they_were(file: Path) -> None:
    code = file.read_bytes()
    program = decode(code)
    assert encode(program) == code
    assert all(instruction.known for instruction in program if instruction is not None)


def test_a_64_bit_load_comes_back_as_it_was() -> None:
    code = bytes.fromhex("1802000078563412 00000000f0debc9a")
    assert encode(decode(code)) == code
