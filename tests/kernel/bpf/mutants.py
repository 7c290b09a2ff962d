# SPDX-License-Identifier: Apache-2.0
"""Evaluators that are wrong in one instruction, to show that the comparison with the kernel would tell.

None is built by changing the product: the instruction is exchanged in the program that is given to it, so that it
computes what an evaluator would that took the one for the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tests.kernel.bpf.opcodes import ALL, name_of

if TYPE_CHECKING:
    from otel_gpu_cgroup.cgroup.bpf.isa import Instruction, Program

_ALU32, _ALU64, _JMP = 4, 7, 5
_OTHER_OPERATIONS: Final = dict(
    zip(
        (0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90, 0xA0, 0xB0, 0xC0),
        (0x10, 0x00, 0x00, 0x90, 0x50, 0x40, 0x70, 0xC0, 0x30, 0x40, 0x00, 0x70),
        strict=True,
    )
)
_OTHER_CONDITIONS: Final = dict(
    zip(
        (0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xA0, 0xB0, 0xC0, 0xD0),
        (0x50, 0x30, 0x20, 0x10, 0x10, 0x20, 0x60, 0xB0, 0xA0, 0xA0, 0xC0),
        strict=True,
    )
)
_SIZES: Final = {0x00: 0x08, 0x08: 0x10, 0x10: 0x08, 0x18: 0x00}


def broken(program: Program, name: str) -> Program:
    """The program with another instruction for every one of this name; raises ValueError where it has none."""
    found = [it is not None and name_of(it) == name for it in program]
    if not any(found):
        raise ValueError(name)
    return tuple(exchange(it) if hit and it else it for it, hit in zip(program, found, strict=True))


def exchange(it: Instruction) -> Instruction:
    """The instruction that it is taken for."""
    return _BY_CLASS[it.code & 7](it)


def _arithmetic(it: Instruction) -> Instruction:
    operation, rest = it.code & 0xF0, it.code & 0x0F
    if operation == 0xD0:
        return replace(it, imm={16: 32, 32: 16, 64: 32}[it.imm])
    if operation == 0x80:
        return replace(it, code=rest | 0xA0, imm=-1)  # not, instead of negated
    if it.off:
        return replace(it, off=0)  # unsigned, or moved as it is
    return replace(it, code=rest | _OTHER_OPERATIONS[operation])


def _jump(it: Instruction) -> Instruction:
    if name_of(it) in ("ja", "gotol"):
        return replace(it, off=0, imm=0)
    return replace(it, code=_OTHER_CONDITIONS[it.code & 0xF0] | it.code & 0x0F)


def _memory(it: Instruction) -> Instruction:
    if it.code & 0xE0 == 0x80:
        return replace(it, code=it.code & 0x1F | 0x60)
    return replace(it, code=it.code & ~0x18 | _SIZES[it.code & 0x18])


def _immediate(it: Instruction) -> Instruction:
    return replace(it, imm=it.imm & 0xFFFFFFFF)


_BY_CLASS: Final = (_immediate, _memory, _memory, _memory, _arithmetic, _jump, _jump, _arithmetic)
NAMES: Final = tuple(name for name in ALL if name != "exit")
"""What can be exchanged."""
WIDTHS: Final = tuple(name for name in ALL if "32 " in name and not name.startswith("movsx"))
"""What can be taken for the same with 64 bits."""


def widened(program: Program, name: str) -> Program:
    """The program with the 64-bit form of every 32-bit instruction of this name; raises ValueError without one."""
    found = [it is not None and name_of(it) == name for it in program]
    if not any(found):
        raise ValueError(name)
    return tuple(_wide(it) if hit and it else it for it, hit in zip(program, found, strict=True))


def _wide(it: Instruction) -> Instruction:
    return replace(it, code=it.code & 0xF8 | (_ALU64 if it.code & 7 == _ALU32 else _JMP))
