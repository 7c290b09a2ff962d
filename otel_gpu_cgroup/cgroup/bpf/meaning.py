# SPDX-License-Identifier: Apache-2.0
"""Pure: what of a request the instructions of a device program look at, so that a person can read a listing.

A register's meaning follows it from the load of a field of struct bpf_cgroup_dev_ctx through moves and masks. Where
two ways lead to one place only what both agree on is told, and of programs that jump back nothing is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.isa import LOAD_IMMEDIATE_64, Alu, Class, Instruction, Jump, Mode, Program

if TYPE_CHECKING:
    from collections.abc import Iterator

Registers = dict[int, str]
"""Meanings by register; a register that is not there has none."""

_REQUEST: Final = "request"
_ACCESS_AND_TYPE: Final = "access and type"
_FIELDS: Final = {
    (0, 4): _ACCESS_AND_TYPE,
    (0, 2): "type",
    (0, 1): "type",
    (2, 2): "access",
    (4, 4): "major",
    (8, 4): "minor",
}
"""By offset and width in bytes."""
_SPLIT: Final[dict[tuple[int, int], str]] = {(Alu.AND, 0xFFFF): "type", (Alu.RSH, 16): "access"}
"""What a mask and a shift leave of the field that holds two."""


def read_meanings(program: Program) -> dict[int, str]:
    """What an instruction looks at, by its place: for loads of the request and for conditions."""
    meanings: dict[int, str] = {}
    arriving: dict[int, Registers] = {0: {1: _REQUEST}}
    for at, instruction in enumerate(program):
        registers = arriving.pop(at, None)
        if instruction is None or registers is None:
            continue  # the second half of a load, or nothing leads here
        after = _after(instruction, registers)
        if (meaning := _meaning(instruction, registers, after)) is not None:
            meanings[at] = meaning
        for place in _successors(instruction, at):
            if place <= at:
                return {}
            arriving[place] = _agreed(arriving[place], after) if place in arriving else after
    return meanings


def _meaning(it: Instruction, before: Registers, after: Registers) -> str | None:
    if it.group == Class.LDX and before.get(it.src) == _REQUEST:
        return after.get(it.dst)
    if it.group in (Class.JMP, Class.JMP32):
        found = before.get(it.dst)
        return None if found == _REQUEST else found
    return None


def _successors(it: Instruction, at: int) -> Iterator[int]:
    """Where to it can go from here."""
    if it.group not in (Class.JMP, Class.JMP32) or it.operation == Jump.CALL:
        yield at + (2 if it.code == LOAD_IMMEDIATE_64 else 1)
    elif it.operation == Jump.ALWAYS:
        yield at + 1 + (it.imm if it.group == Class.JMP32 else it.off)
    elif it.operation != Jump.EXIT:
        yield at + 1
        yield at + 1 + it.off


def _after(it: Instruction, registers: Registers) -> Registers:
    """The meanings after an instruction; a call leaves none but of registers that are kept."""
    if it.code == Class.JMP | Jump.CALL:
        return {number: meaning for number, meaning in registers.items() if number > 5}
    if it.group not in (Class.LD, Class.LDX, Class.ALU, Class.ALU64):
        return registers
    written = _written(it, registers)
    others = {number: meaning for number, meaning in registers.items() if number != it.dst}
    return others if written is None else others | {it.dst: written}


def _written(it: Instruction, registers: Registers) -> str | None:
    """What the register means that an instruction writes; None where that cannot be told."""
    if it.group == Class.LDX:
        is_field = registers.get(it.src) == _REQUEST and it.mode == Mode.MEM
        return _FIELDS.get((it.off, it.width)) if is_field else None
    if it.group == Class.LD or it.takes_register != (it.operation == Alu.MOV) or it.off:
        return None
    if it.operation == Alu.MOV:
        return registers.get(it.src)
    before = registers.get(it.dst)
    if before == _ACCESS_AND_TYPE:
        return _SPLIT.get((it.operation, it.imm))
    return before if before == "access" and it.operation == Alu.AND else None


def _agreed(first: Registers, second: Registers) -> Registers:
    return {number: meaning for number, meaning in first.items() if second.get(number) == meaning}
