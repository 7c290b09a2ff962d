# SPDX-License-Identifier: Apache-2.0
"""Pure: the instruction set of BPF, decoded from the bytes that the kernel hands out (RFC 9669).

An instruction is 8 bytes: opcode, registers (destination in the low nibble), a signed 16-bit offset and a signed
32-bit immediate, in the byte order of the machine, which is little-endian wherever NVIDIA's driver runs.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

from otel_gpu_cgroup.errors import UnsupportedProgram

_FORM: Final = struct.Struct("<BBhi")
SIZE: Final = _FORM.size
"""Bytes of one instruction; jumps count in it, and a 64-bit immediate takes two."""


class Class(enum.IntEnum):
    """The low three bits of an opcode."""

    LD = 0
    LDX = 1
    ST = 2
    STX = 3
    ALU = 4
    JMP = 5
    JMP32 = 6
    ALU64 = 7


class Alu(enum.IntEnum):
    """The high four bits of an opcode of a class ALU or ALU64."""

    ADD = 0x00
    SUB = 0x10
    MUL = 0x20
    DIV = 0x30
    OR = 0x40
    AND = 0x50
    LSH = 0x60
    RSH = 0x70
    NEG = 0x80
    MOD = 0x90
    XOR = 0xA0
    MOV = 0xB0
    ARSH = 0xC0
    END = 0xD0


class Jump(enum.IntEnum):
    """The high four bits of an opcode of a class JMP or JMP32."""

    ALWAYS = 0x00
    EQ = 0x10
    GT = 0x20
    GE = 0x30
    SET = 0x40
    NE = 0x50
    SGT = 0x60
    SGE = 0x70
    CALL = 0x80
    EXIT = 0x90
    LT = 0xA0
    LE = 0xB0
    SLT = 0xC0
    SLE = 0xD0


class Mode(enum.IntEnum):
    """The high three bits of an opcode that loads or stores."""

    IMM = 0x00
    MEM = 0x60
    MEMSX = 0x80


WIDTHS: Final = {0x00: 4, 0x08: 2, 0x10: 1, 0x18: 8}
"""Bytes that a load or store moves, by the two bits below the mode."""
LOAD_IMMEDIATE_64: Final = 0x18
FROM_REGISTER: Final = 0x08
"""The bit of an ALU or jump opcode that takes the second operand from a register."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; `imm` of a 64-bit load has all its bits."""

    code: int
    dst: int
    src: int
    off: int
    imm: int

    @property
    def group(self) -> int:
        """Its class."""
        return self.code & 0x07

    @property
    def operation(self) -> int:
        """What an ALU instruction or a jump does."""
        return self.code & 0xF0

    @property
    def mode(self) -> int:
        """How a load or store finds its memory."""
        return self.code & 0xE0

    @property
    def width(self) -> int:
        """Bytes that a load or store moves."""
        return WIDTHS[self.code & 0x18]

    @property
    def takes_register(self) -> bool:
        """Whether an ALU instruction's or a jump's second operand is a register."""
        return bool(self.code & FROM_REGISTER)


Program = tuple[Instruction | None, ...]
"""Instructions by their place; None is the second half of a 64-bit load, where nothing can be executed."""


def decode(code: bytes) -> Program:
    """The instructions of a program; UnsupportedProgram when the bytes are none."""
    if len(code) % SIZE:
        raise UnsupportedProgram(f"{len(code)} bytes are not whole instructions")
    raw = [Instruction(code, regs & 0x0F, regs >> 4, off, imm) for code, regs, off, imm in _FORM.iter_unpack(code)]
    program: list[Instruction | None] = []
    while len(program) < len(raw):
        instruction = raw[len(program)]
        if instruction.code == LOAD_IMMEDIATE_64:
            program += [_joined(instruction, raw[len(program) + 1 : len(program) + 2]), None]
        else:
            program.append(instruction)
    return tuple(program)


def encode(program: Program) -> bytes:
    """The bytes of a program, as the kernel takes them."""
    return b"".join(_encoded(instruction) for instruction in program if instruction is not None)


def _joined(first: Instruction, rest: list[Instruction]) -> Instruction:
    """A 64-bit load, whose upper half is the immediate of the place after it."""
    if not rest or rest[0].code or rest[0].dst or rest[0].src or rest[0].off:
        raise UnsupportedProgram("a 64-bit load without its second half")
    value = (first.imm & 0xFFFFFFFF) | (rest[0].imm & 0xFFFFFFFF) << 32
    return Instruction(first.code, first.dst, first.src, first.off, value)


def _encoded(it: Instruction) -> bytes:
    if it.code != LOAD_IMMEDIATE_64:
        return _FORM.pack(it.code, it.src << 4 | it.dst, it.off, it.imm)
    low, high = struct.unpack("<ii", struct.pack("<Q", it.imm))
    return _FORM.pack(it.code, it.src << 4 | it.dst, it.off, low) + _FORM.pack(0, 0, 0, high)
