# SPDX-License-Identifier: Apache-2.0
"""Names of the instructions, one for each thing that the evaluator does differently; what a run is counted by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from otel_gpu_cgroup.cgroup.bpf.isa import Instruction

_ALU: Final = ("add", "sub", "mul", "div", "or", "and", "lsh", "rsh", "neg", "mod", "xor", "mov", "arsh", "end")
_JUMPS: Final = ("ja", "jeq", "jgt", "jge", "jset", "jne", "jsgt", "jsge", "call", "exit", "jlt", "jle", "jslt", "jsle")
_SIZES: Final = ("w", "h", "b", "dw")
_MEMORY: Final = {1: "ldx", 2: "st", 3: "stx"}
_ALU64, _JMP, _JMP32 = 7, 5, 6
_MEMSX: Final = 0x80


def name_of(it: Instruction) -> str:
    """What it does, such as `add32 imm`, `jsgt64 reg`, `sdiv64 reg`, `ldsxb`, `bswap16`."""
    group = it.code & 7
    if group in _MEMORY:
        signed = "s" if it.code & 0xE0 == _MEMSX else ""
        return _MEMORY[group].replace("ldx", f"ld{signed}x") + _SIZES[it.code >> 3 & 3]
    if group == 0:
        return "lddw"
    operation = it.code >> 4
    if group in (_JMP, _JMP32):
        return _jump(group, operation, it)
    return _alu(64 if group == _ALU64 else 32, _ALU[operation], it)


def _jump(group: int, operation: int, it: Instruction) -> str:
    if operation == 0:
        return "ja" if group == _JMP else "gotol"
    if _JUMPS[operation] == "exit":
        return "exit"
    return f"{_JUMPS[operation]}{64 if group == _JMP else 32} {_operand(it)}"


def _alu(bits: int, operation: str, it: Instruction) -> str:
    if operation == "end":
        return f"{'bswap' if bits == 64 else 'be' if it.code & 8 else 'le'}{it.imm}"
    if operation == "neg":
        return f"neg{bits}"
    if operation == "mov" and it.off:
        return f"movsx{it.off} {bits}"
    signed = "s" if it.off else ""
    return f"{signed}{operation}{bits} {_operand(it)}"


def _operand(it: Instruction) -> str:
    return "reg" if it.code & 8 else "imm"


def _all() -> list[str]:
    pairs = [(bits, operand) for bits in (32, 64) for operand in ("imm", "reg")]
    binary = [operation for operation in (*_ALU, "sdiv", "smod") if operation not in ("neg", "end")]
    conditions = [jump for jump in _JUMPS if jump not in ("ja", "call", "exit")]
    return [
        *(f"{operation}{bits} {operand}" for operation in [*binary, *conditions] for bits, operand in pairs),
        *("neg32", "neg64", "movsx8 32", "movsx16 32", "movsx8 64", "movsx16 64", "movsx32 64"),
        *(f"{order}{bits}" for order in ("le", "be", "bswap") for bits in (16, 32, 64)),
        *("ja", "gotol", "exit", "lddw"),
        *(f"{move}{size}" for move in ("ldx", "st", "stx") for size in _SIZES),
        *(f"ldsx{size}" for size in _SIZES if size != "dw"),
    ]


ALL: Final = tuple(_all())
"""Every name there is."""
