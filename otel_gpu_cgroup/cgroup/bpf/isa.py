# SPDX-License-Identifier: Apache-2.0
"""Pure: the instruction set of BPF, decoded from the bytes that the kernel hands out (RFC 9669).

An instruction is 8 bytes: opcode, registers (destination in the low nibble), a signed 16-bit offset and a signed
32-bit immediate, in the byte order of the machine, which is little-endian wherever NVIDIA's driver runs.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from otel_gpu_cgroup.errors import UnsupportedProgram

_LAYOUT: Final = struct.Struct("<BBhi")
SIZE: Final = _LAYOUT.size
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


class Form(NamedTuple):
    """What the fields of an opcode may hold; None is anything."""

    registers: int
    """Which of the bits of the two registers may be set."""
    off: frozenset[int] | None
    imm: frozenset[int] | None


_NO_REGISTER, _DST, _SRC = 0x00, 0x0F, 0xF0
_ZERO: Final = frozenset({0})
_WITH_IMMEDIATE: Final = Form(_DST, _ZERO, None)
_WITH_REGISTER: Final = Form(_DST | _SRC, _ZERO, _ZERO)
_ONE_TOO: Final = frozenset({0, 1})
_BITS: Final = frozenset({16, 32, 64})
"""What can be put into another byte order."""


def _alu(group: Class, extended: frozenset[int]) -> dict[int, Form]:
    """The forms of one width; `extended` are the bits from which a move can extend the sign."""
    forms = {}
    for operation in set(Alu) - {Alu.NEG, Alu.END}:
        offsets = _ONE_TOO if operation in (Alu.DIV, Alu.MOD) else _ZERO
        forms[group | operation] = _WITH_IMMEDIATE._replace(off=offsets)
        forms[group | operation | FROM_REGISTER] = _WITH_REGISTER._replace(off=offsets)
    # where 32-bit operations keep the upper half, the verifier clears it by a move that it marks with 1
    marks = _ONE_TOO if group is Class.ALU else _ZERO
    forms[group | Alu.MOV | FROM_REGISTER] = Form(_DST | _SRC, extended | _ZERO, marks)
    return forms | {group | Alu.NEG: Form(_DST, _ZERO, _ZERO), group | Alu.END: Form(_DST, _ZERO, _BITS)}


def _jumps(group: Class) -> dict[int, Form]:
    """The conditional ones of one width."""
    conditions = set(Jump) - {Jump.ALWAYS, Jump.CALL, Jump.EXIT}
    return {
        **{group | condition: Form(_DST, None, None) for condition in conditions},
        **{group | condition | FROM_REGISTER: Form(_DST | _SRC, None, _ZERO) for condition in conditions},
    }


FORMS: Final[dict[int, Form]] = {
    **_alu(Class.ALU, frozenset({8, 16})),
    **_alu(Class.ALU64, frozenset({8, 16, 32})),
    Class.ALU | Alu.END | FROM_REGISTER: Form(_DST, _ZERO, _BITS),
    **_jumps(Class.JMP),
    **_jumps(Class.JMP32),
    Class.JMP | Jump.ALWAYS: Form(_NO_REGISTER, None, _ZERO),
    Class.JMP32 | Jump.ALWAYS: Form(_NO_REGISTER, _ZERO, None),
    Class.JMP | Jump.EXIT: Form(_NO_REGISTER, _ZERO, _ZERO),
    LOAD_IMMEDIATE_64: _WITH_IMMEDIATE,
    **{Class.LDX | Mode.MEM | size: Form(_DST | _SRC, None, _ZERO) for size in WIDTHS},
    **{Class.LDX | Mode.MEMSX | size: Form(_DST | _SRC, None, _ZERO) for size, width in WIDTHS.items() if width < 8},
    **{Class.ST | Mode.MEM | size: Form(_DST, None, None) for size in WIDTHS},
    **{Class.STX | Mode.MEM | size: Form(_DST | _SRC, None, _ZERO) for size in WIDTHS},
}
"""The instructions that the machine runs. A bit set elsewhere is a map, a helper, or what a later kernel gave a
meaning to: an instruction that is not known."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; `imm` of a 64-bit load has all its bits."""

    code: int
    dst: int
    src: int
    off: int
    imm: int
    known: bool = True
    """Whether it is one of `FORMS`; what another does nobody here can tell."""

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
    raw = [_decoded(*fields) for fields in _LAYOUT.iter_unpack(code)]
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


def _decoded(code: int, registers: int, off: int, imm: int) -> Instruction:
    form = FORMS.get(code)
    known = (
        form is not None
        and not registers & ~form.registers
        and (form.off is None or off in form.off)
        and (form.imm is None or imm in form.imm)
    )
    return Instruction(code, registers & 0x0F, registers >> 4, off, imm, known)


def _joined(first: Instruction, rest: list[Instruction]) -> Instruction:
    """A 64-bit load, whose upper half is the immediate of the place after it."""
    if not rest or rest[0].code or rest[0].dst or rest[0].src or rest[0].off:
        raise UnsupportedProgram("a 64-bit load without its second half")
    value = (first.imm & 0xFFFFFFFF) | (rest[0].imm & 0xFFFFFFFF) << 32
    return replace(first, imm=value)


def _encoded(it: Instruction) -> bytes:
    if it.code != LOAD_IMMEDIATE_64:
        return _LAYOUT.pack(it.code, it.src << 4 | it.dst, it.off, it.imm)
    low, high = struct.unpack("<ii", struct.pack("<Q", it.imm))
    return _LAYOUT.pack(it.code, it.src << 4 | it.dst, it.off, low) + _LAYOUT.pack(0, 0, 0, high)
