# SPDX-License-Identifier: Apache-2.0
"""Random device programs that the verifier takes (nearly always) and whose verdict depends on all that they compute.

Every register and stack slot that is read was written before, loops count down from a small number, and the result
is mixed from all registers at the end, so that one wrong bit on the way turns the verdict of many requests.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from tests.support.bpf_programs import instruction

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

Block = list[bytes]
"""Instructions, 8 bytes each: jumps count them."""

_ALU32, _ALU64, _JMP, _JMP32 = 0x04, 0x07, 0x05, 0x06
_REGISTER: Final = 0x08
_BINARY: Final = (0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90, 0xA0, 0xB0, 0xC0)
_DIVISIONS: Final = (0x30, 0x90)
_SHIFTS: Final = (0x60, 0x70, 0xC0)
_MOVE: Final = 0xB0
_CONDITIONS: Final = (0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xA0, 0xB0, 0xC0, 0xD0)
_SIZES: Final = {0x10: 1, 0x08: 2, 0x00: 4, 0x18: 8}
_LOAD, _LOAD_SIGNED, _STORE, _STORE_REGISTER = 0x61, 0x81, 0x62, 0x63
_CONTEXT, _SUM, _COUNTER, _POINTER, _FRAME = 1, 7, 8, 9, 10
_POOL: Final = (0, 2, 3, 4, 5, 6)
"""Registers that hold numbers; what is computed in them is added up in another."""
_STACK: Final = 64
"""Bytes of the stack that hold numbers; the context's address is kept behind them."""
_MIDDLE: Final = -32
"""Where the pointer register points."""
_WRITING: Final = (1, _ALU32, _ALU64)
"""Classes of instructions that write a register."""
_FIELDS: Final = (*((0x00, at) for at in (0, 4, 8)), *((0x08, at) for at in (0, 2)), *((0x10, at) for at in range(4)))
"""Sizes and places that can be loaded from the request."""
_NUMBERS: Final = (
    *(0, 1, 2, 3, 4, 5, 7, 8, 10, 12, 15, 16, 17, 19, 20, 31, 32, 63, 64, 127, 128, 195, 254, 255, 256),
    *(0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, -1, -2, -19, -128, -195, -256, -0x8000, -0x80000000),
)


class Generator:
    """Makes one program after another from one source of chance."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._branches = 0

    def program(self) -> bytes:
        """Bytes of a program, most of which the verifier takes."""
        self._branches = 8  # each may double what the verifier has to look at
        body = [piece for _ in range(self._chance.randint(8, 24)) for piece in self._statement()]
        return b"".join([*self._beginning(), *body, *self._end()])

    def _beginning(self) -> Block:
        fields = [instruction(_LOAD, register, _CONTEXT, at) for register, at in zip((2, 3, 4), (0, 4, 8), strict=True)]
        numbers = [piece for register in (0, 5, 6, _SUM) for piece in self._constant(register)]
        pointer = [instruction(0xBF, _POINTER, _FRAME), instruction(0x07, _POINTER, imm=_MIDDLE)]
        slots = [piece for at in range(-_STACK, 0, 8) for piece in self._slot(at)]
        kept = instruction(_STORE_REGISTER | 0x18, _FRAME, _CONTEXT, -_STACK - 8)
        return [*fields, *numbers, *pointer, *slots, kept]

    def _slot(self, at: int) -> Block:
        if self._chance.random() < 0.5:
            return [instruction(_STORE | 0x18, _FRAME, 0, at, self._number())]
        return [instruction(_STORE_REGISTER | 0x18, _FRAME, self._any(), at)]

    def _constant(self, register: int) -> Block:
        kind = self._chance.randrange(3)
        if kind == 0:
            low, high = struct.unpack("<ii", self._chance.randbytes(8))
            return [instruction(0x18, register, imm=low), instruction(0, imm=high)]
        return [instruction(0xB7 if kind == 1 else 0xB4, register, imm=self._number())]

    def _statement(self) -> Block:
        makers: tuple[tuple[Callable[[], Block], int], ...] = (
            *((self._binary, 8), (self._unary, 4), (self._extension, 2), (self._division, 2), (self._field, 4)),
            *((self._store, 3), (self._load, 3), (self._branch, 7), (self._either, 4), (self._loop, 2)),
            *((self._early_end, 2), (self._kept_context, 1), (self._walk, 2), (lambda: self._constant(self._any()), 1)),
        )
        return self._one(makers)

    def _straight(self) -> Block:
        """Statements without a jump."""
        makers: tuple[tuple[Callable[[], Block], int], ...] = (
            *((self._binary, 6), (self._unary, 2), (self._extension, 1), (self._division, 1), (self._field, 2)),
            *((self._store, 1), (self._load, 1)),
        )
        return [piece for _ in range(self._chance.randint(1, 4)) for piece in self._one(makers)]

    def _one(self, makers: tuple[tuple[Callable[[], Block], int], ...]) -> Block:
        """One of them, by their weights; the number that it ends with is summed up."""
        block = self._chance.choices([maker for maker, _ in makers], [weight for _, weight in makers])[0]()
        register = block[-1][1] & 0x0F if block else None
        if register not in _POOL or block[-1][0] & 7 not in _WRITING or self._chance.random() < 0.1:
            return block
        summed = instruction(self._chance.choice((0xAF, 0x0F, 0x1F)), _SUM, register)
        return [*block, summed, instruction(0x27, _SUM, imm=self._chance.randrange(1, 2**31, 2))]

    def _binary(self) -> Block:
        """An operation on a register and a register or number."""
        group, bits = self._chance.choice(((_ALU32, 32), (_ALU64, 64)))
        operation = self._chance.choice(_BINARY)
        signed = int(operation in _DIVISIONS and self._chance.random() < 0.5)
        target = self._any()
        prepared = self._upper_half(target) if bits == 32 and self._chance.random() < 0.6 else []
        if self._chance.random() < 0.5:
            return [*prepared, instruction(group | operation | _REGISTER, target, self._any(), signed)]
        number = self._number()
        if operation in _SHIFTS:
            number = self._chance.randrange(bits)
        elif operation in _DIVISIONS and number == 0:
            number = 3
        return [*prepared, instruction(group | operation, target, 0, signed, number)]

    def _upper_half(self, register: int) -> Block:
        """Bits in the half that an operation of 32 bits must not see."""
        other = self._chance.choice([one for one in _POOL if one != register])
        high = self._chance.randrange(-(2**31), 2**31)
        return [instruction(0x18, other), instruction(0, imm=high), instruction(0x4F, register, other)]

    def _unary(self) -> Block:
        """A negation, or another byte order."""
        bits = self._chance.choice((16, 32, 64))
        codes = ((0x84, 0), (0x87, 0), (0xD4, bits), (0xDC, bits), (0xD7, bits))
        code, number = self._chance.choice(codes)
        return [instruction(code, self._any(), imm=number)]

    def _extension(self) -> Block:
        """A move that extends the sign."""
        code, bits = self._chance.choice(((0xBC, 8), (0xBC, 16), (0xBF, 8), (0xBF, 16), (0xBF, 32)))
        return [instruction(code, self._any(), self._any(), bits)]

    def _division(self) -> Block:
        """By a register that is small, of either sign, or 0, more often than by chance."""
        divisor, group = self._any(), self._chance.choice((_ALU32, _ALU64))
        divided = self._chance.choice([register for register in _POOL if register != divisor])
        small = (
            [instruction(0x57, divisor, imm=1)],
            [instruction(0x57, divisor, imm=1), instruction(0x87, divisor)],
            self._near_zero(divisor),
            [*self._near_zero(divisor), *self._upper_half(divided)],
        )
        code = group | self._chance.choice(_DIVISIONS) | _REGISTER
        return [*self._chance.choice(small), instruction(code, divided, divisor, self._chance.randrange(2))]

    def _field(self) -> Block:
        """A part of the request."""
        size, at = self._chance.choice(_FIELDS)
        load = self._chance.choice((_LOAD, _LOAD_SIGNED))
        return [instruction(load | size, self._any(), _CONTEXT, at)]

    def _store(self) -> Block:
        size, base, at = self._place()
        if self._chance.random() < 0.5:
            return [instruction(_STORE | size, base, 0, at, self._number())]
        return [instruction(_STORE_REGISTER | size, base, self._any(), at)]

    def _load(self) -> Block:
        size, base, at = self._place()
        signed = _SIZES[size] < 8 and self._chance.random() < 0.4
        return [instruction((_LOAD_SIGNED if signed else _LOAD) | size, self._any(), base, at)]

    def _place(self) -> tuple[int, int, int]:
        """A size, and where something of this size is on the stack: a register and an offset."""
        size, width = self._chance.choice(tuple(_SIZES.items()))
        at = self._chance.randrange(-_STACK, 0, width)
        return (size, _FRAME, at) if self._chance.random() < 0.5 else (size, _POINTER, at - _MIDDLE)

    def _kept_context(self) -> Block:
        """The context's address, taken back from the stack."""
        gone = instruction(0xB7, _CONTEXT, imm=self._number())
        return [gone, instruction(_LOAD | 0x18, _CONTEXT, _FRAME, -_STACK - 8)]

    def _walk(self) -> Block:
        """A load or store at a place on the stack that a number decides, or a load through a copied pointer."""
        if self._chance.random() < 0.3:
            return [instruction(0xBF, _COUNTER, _CONTEXT), instruction(_LOAD, self._any(), _COUNTER, 4)]
        by, size = self._any(), self._chance.choice(tuple(_SIZES))
        lowest = [instruction(0xBF, _COUNTER, _FRAME), instruction(0x07, _COUNTER, imm=-_STACK)]
        pointer = [*lowest, instruction(0x57, by, imm=0x38), instruction(0x0F, _COUNTER, by)]
        code = self._chance.choice((_LOAD, _STORE_REGISTER)) | size
        registers = (self._any(), _COUNTER) if code & 7 == 1 else (_COUNTER, self._any())
        return [*pointer, instruction(code, *registers)]

    def _branch(self) -> Block:
        """Something that is done or skipped."""
        if not self._may_branch():
            return []
        skipped = self._straight()
        return [*self._condition(len(skipped)), *skipped]

    def _either(self) -> Block:
        """One of two things is done."""
        if not self._may_branch():
            return []
        first, second = self._straight(), self._straight()
        over = self._always(len(second))
        return [*self._condition(len(first) + 1), *first, over, *second]

    def _early_end(self) -> Block:
        if not self._may_branch():
            return []
        return [*self._condition(2), instruction(0xB7, 0, imm=self._chance.randrange(2)), instruction(0x95)]

    def _may_branch(self) -> bool:
        self._branches -= 1
        return self._branches >= 0

    def _condition(self, over: int) -> Block:
        """A conditional jump, often on two numbers of either sign that differ by little."""
        group = self._chance.choice((_JMP, _JMP32))
        code, left, near = group | self._chance.choice(_CONDITIONS), self._any(), self._chance.random() < 0.7
        prepared = self._near_zero(left) if near else []
        if group == _JMP32 and self._chance.random() < 0.3:
            prepared += self._upper_half(left)
        number = self._chance.randrange(-3, 4) if near else self._number()
        if self._chance.random() < 0.5:
            return [*prepared, instruction(code, left, 0, over, number)]
        right = self._chance.choice([register for register in _POOL if register != left])
        if near:
            prepared.append(instruction(self._chance.choice((0xB4, 0xB7)), right, imm=number))
        return [*prepared, instruction(code | _REGISTER, left, right, over)]

    def _near_zero(self, register: int) -> Block:
        """The minor of the request, less a number that some minors are above and some below."""
        less = instruction(self._chance.choice((0x14, 0x17)), register, imm=self._chance.randrange(20))
        return [instruction(_LOAD, register, _CONTEXT, 8), less]

    def _always(self, over: int) -> bytes:
        return instruction(0x05, off=over) if self._chance.random() < 0.5 else instruction(0x06, imm=over)

    def _loop(self) -> Block:
        """A body that is run a few times, with its condition in front or behind."""
        body = self._straight()
        if self._chance.random() < 0.2 and self._may_branch():
            count = [instruction(_LOAD, _COUNTER, _CONTEXT, 8), instruction(0x57, _COUNTER, imm=3)]
            return [*count, *self._head_tested(body)]
        form = self._chance.choice((self._head_tested, self._tail_tested, self._tail_tested))
        return [instruction(0xB7, _COUNTER, imm=self._chance.randint(1, 5)), *form(body)]

    def _head_tested(self, body: Block) -> Block:
        out = instruction(0x15, _COUNTER, 0, len(body) + 2, 0)
        down = instruction(0x17, _COUNTER, imm=1)
        return [out, *body, down, self._always(-len(body) - 3)]

    def _tail_tested(self, body: Block) -> Block:
        down, back = instruction(0x17, _COUNTER, imm=1), -len(body) - 2
        tests = (*((0x55, 0), (0x25, 0), (0x35, 1), (0x45, 7), (0x65, 0), (0x75, 1)),)
        narrow = tuple((code + 1, number) for code, number in tests)
        up = ((0xA5, 4), (0xB5, 3), (0xC5, 4), (0xD5, 3), (0xA6, 4), (0xB6, 3), (0xC6, 4), (0xD6, 3))
        if self._chance.random() < 0.4:
            code, number = self._chance.choice(up)
            return [*body, instruction(0x07, _COUNTER, imm=1), instruction(code, _COUNTER, 0, back, number)]
        code, number = self._chance.choice((*tests, *narrow))
        return [*body, down, instruction(code, _COUNTER, 0, back, number)]

    def _end(self) -> Block:
        if self._chance.random() < 0.1:
            jump = self._chance.choice((_JMP, _JMP32)) | self._chance.choice(_CONDITIONS) | _REGISTER
            result = [instruction(0xB7, 0, imm=1), instruction(0x95), instruction(0xB4, 0), instruction(0x95)]
            return [instruction(_LOAD, 5, _CONTEXT, 8), instruction(jump, self._any(), 5, 2), *result]
        cuts = (instruction(0x77, 0, imm=63), instruction(0x74, 0, imm=31))
        return [*self._mixed(), self._chance.choice(cuts), instruction(0x95)]

    def _mixed(self) -> Block:
        """Every bit of the sum and of the stack decides on the highest bits of both halves of the result."""
        loads = [instruction(_LOAD | 0x18, 2, _FRAME, at) for at in range(-_STACK, 0, 8)]
        stack = [piece for load in loads for piece in (load, instruction(0xAF, 0, 2))]
        folded = [instruction(0xBF, 2, 0), instruction(0x77, 2, imm=32), instruction(0xAF, 0, 2)]
        spread = instruction(0x27, 0, imm=self._chance.randrange(1, 2**31, 2))
        return [instruction(0xBF, 0, _SUM), *stack, *folded, spread]

    def _any(self) -> int:
        return self._chance.choice(_POOL)

    def _number(self) -> int:
        if self._chance.random() < 0.6:
            return self._chance.choice(_NUMBERS)
        return self._chance.randrange(-(2**31), 2**31)
