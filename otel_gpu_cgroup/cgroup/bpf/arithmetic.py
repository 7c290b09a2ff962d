# SPDX-License-Identifier: Apache-2.0
"""Pure: what BPF computes with two numbers (RFC 9669, sections 4.1 and 4.3).

Operands come as unsigned numbers of the operation's width, results may be wider or negative: who asked cuts them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.isa import Alu, Jump

if TYPE_CHECKING:
    from collections.abc import Callable

_SIGNED: Final = 1
"""The offset that makes a division one of signed numbers (instruction set version 4)."""


def signed(value: int, bits: int) -> int:
    """The number that the lowest bits are in two's complement."""
    half = 1 << (bits - 1)
    return ((value & ((1 << bits) - 1)) ^ half) - half


def swap(value: int, bits: int) -> int:
    """The lowest bits with their bytes in the other order."""
    size = bits // 8
    return int.from_bytes((value & ((1 << bits) - 1)).to_bytes(size, "little"), "big")


def _operations(bits: int) -> dict[tuple[int, int], Callable[[int, int], int]]:
    """Operations of this width by (operation, offset of the instruction)."""
    plain: dict[int, Callable[[int, int], int]] = {
        Alu.ADD: lambda a, b: a + b,
        Alu.SUB: lambda a, b: a - b,
        Alu.MUL: lambda a, b: a * b,
        Alu.DIV: lambda a, b: a // b if b else 0,
        Alu.OR: lambda a, b: a | b,
        Alu.AND: lambda a, b: a & b,
        Alu.LSH: lambda a, b: a << (b & (bits - 1)),
        Alu.RSH: lambda a, b: a >> (b & (bits - 1)),
        Alu.NEG: lambda a, _: -a,
        Alu.MOD: lambda a, b: a % b if b else a,
        Alu.XOR: lambda a, b: a ^ b,
        Alu.ARSH: lambda a, b: signed(a, bits) >> (b & (bits - 1)),
    }
    of_signed: dict[int, Callable[[int, int], int]] = {
        Alu.DIV: lambda a, b: _quotient(signed(a, bits), signed(b, bits)),
        Alu.MOD: lambda a, b: _remainder(signed(a, bits), signed(b, bits)),
    }
    return {
        **{(operation, 0): function for operation, function in plain.items()},
        **{(operation, _SIGNED): function for operation, function in of_signed.items()},
    }


def _quotient(a: int, b: int) -> int:
    """Towards zero; by zero it is 0."""
    if b == 0:
        return 0
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int:
    """With the dividend's sign; by zero it is the dividend."""
    return a - _quotient(a, b) * b


ALU64: Final = _operations(64)
ALU32: Final = _operations(32)

JUMPS: Final[dict[int, Callable[[int, int, int], bool]]] = {
    Jump.EQ: lambda a, b, _: a == b,
    Jump.GT: lambda a, b, _: a > b,
    Jump.GE: lambda a, b, _: a >= b,
    Jump.SET: lambda a, b, _: bool(a & b),
    Jump.NE: lambda a, b, _: a != b,
    Jump.SGT: lambda a, b, bits: signed(a, bits) > signed(b, bits),
    Jump.SGE: lambda a, b, bits: signed(a, bits) >= signed(b, bits),
    Jump.LT: lambda a, b, _: a < b,
    Jump.LE: lambda a, b, _: a <= b,
    Jump.SLT: lambda a, b, bits: signed(a, bits) < signed(b, bits),
    Jump.SLE: lambda a, b, bits: signed(a, bits) <= signed(b, bits),
}
"""Conditions of two numbers and their width."""
