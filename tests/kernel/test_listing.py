# SPDX-License-Identifier: Apache-2.0
"""Our listing of a program beside the one that the kernel's verifier writes when it refuses the program."""

from __future__ import annotations

import re
from typing import Final

import pytest

from otel_gpu_cgroup.cgroup.bpf.isa import (
    FORMS,
    LOAD_IMMEDIATE_64,
    Alu,
    Class,
    Instruction,
    Jump,
    Mode,
    Program,
    encode,
)
from otel_gpu_cgroup.cgroup.bpf.listing import list_program
from tests.support.bpf import Refused, load, need_bpf

_LINE: Final = re.compile(r"(\d+): \([0-9a-f]{2}\) (.*?)\s*(?:;.*)?")
_EXIT: Final = Class.JMP | Jump.EXIT
_MOVE: Final = 0xB7
_MOVE_REGISTER: Final = 0xBF
_STORE: Final = 0x7A
_FRAME: Final = 10


def _preparation() -> list[Instruction]:
    """Numbers in r2 and r3, and on the stack."""
    return [
        Instruction(_MOVE, 2, 0, 0, 195),
        Instruction(_MOVE, 3, 0, 0, 7),
        Instruction(_STORE, _FRAME, 0, -8, 5),
    ]


def _examples(code: int) -> list[Instruction]:
    """One instruction of each variety that an opcode has."""
    form, group = FORMS[code], code & 0x07
    if group == Class.LDX:
        return [Instruction(code, 2, _FRAME, -8, 0)]
    if group in (Class.ST, Class.STX):
        return [Instruction(code, _FRAME, 3, -8, 0) if group == Class.STX else Instruction(code, _FRAME, 0, -8, 9)]
    registers = (2 if form.registers & 0x0F else 0, 3 if form.registers & 0xF0 else 0)
    offsets = {0} if form.off is None else form.off
    return [Instruction(code, *registers, off, imm) for off in sorted(offsets) for imm in sorted(_immediates(code))]


def _immediates(code: int) -> set[int]:
    """Those of an opcode that the kernel lets a program be loaded with."""
    allowed = FORMS[code].imm
    if allowed is not None:
        return {imm for imm in allowed if imm != 1}  # the kernel's own mark on moves
    if code == LOAD_IMMEDIATE_64:
        return {0x1234567890ABCDEF}
    if code == Class.JMP32 | Jump.ALWAYS:
        return {0}
    return {5} if code & 0xF0 in (Alu.LSH, Alu.RSH, Alu.ARSH) and code & 0x07 in (Class.ALU, Class.ALU64) else {5, -5}


def _program(instruction: Instruction) -> Program:
    wide = [None] if instruction.code == LOAD_IMMEDIATE_64 else []
    end = [Instruction(_MOVE, 0, 0, 0, 2), Instruction(_EXIT, 0, 0, 0, 0)]  # no verdict: the kernel refuses it
    return (*_preparation(), instruction, *wide, *end)


def _kernels_lines(program: Program) -> dict[int, str]:
    with pytest.raises(Refused) as refused:
        load(encode(program))
    matches = (_LINE.fullmatch(line) for line in refused.value.log.splitlines())
    return {int(match[1]): _in_our_words(int(match[1]), match[2]) for match in matches if match is not None}


def _in_our_words(at: int, text: str) -> str:
    """A jump's distance as the place that it goes to, its number as a signed decimal one."""
    if "goto" not in text:
        return text
    text = re.sub(r"gotol?\b", "goto", text)
    text = re.sub(r"pc([+-]\d+)", lambda match: str(at + 1 + int(match[1])), text)
    return re.sub(r"0x([0-9a-f]+)", lambda match: str((int(match[1], 16) ^ 1 << 31) - (1 << 31)), text)


@pytest.mark.parametrize("code", sorted(set(FORMS) - {_EXIT}), ids=hex)
def test_an_instruction_reads_as_in_the_kernels_own_listing(code: int) -> None:
    need_bpf()
    for instruction in _examples(code):
        program = _program(instruction)
        ours = {line.at: line.text for line in list_program(program)}
        kernels = _kernels_lines(program)
        place = len(_preparation())
        assert place in kernels, f"the kernel did not come to {instruction}"
        assert kernels.items() <= ours.items()


def test_a_pointer_that_is_moved_reads_as_in_the_kernels_own_listing() -> None:
    need_bpf()
    load_field = Instruction(Class.LDX | Mode.MEM, 4, 6, 4, 0)
    program = (Instruction(_MOVE_REGISTER, 6, 1, 0, 0), load_field, *_program(Instruction(_MOVE, 2, 0, 0, -1)))
    kernels = _kernels_lines(program)
    assert kernels == {line.at: line.text for line in list_program(program)}
    assert kernels[1] == "r4 = *(u32 *)(r6 +4)"
