# SPDX-License-Identifier: Apache-2.0
"""Pure: a device program as text, one line an instruction, in the notation of the kernel's verifier.

Two things differ from the kernel's: a jump names the place that it goes to, and numbers of jumps are decimal, as
device numbers are written everywhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.isa import Alu, Class, Instruction, Jump, Mode, Program
from otel_gpu_cgroup.cgroup.bpf.meaning import read_meanings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_gpu_cgroup.cgroup.bpf.machine import Step

_ALU_SIGNS: Final = {
    Alu.ADD: "+",
    Alu.SUB: "-",
    Alu.MUL: "*",
    Alu.DIV: "/",
    Alu.OR: "|",
    Alu.AND: "&",
    Alu.LSH: "<<",
    Alu.RSH: ">>",
    Alu.MOD: "%",
    Alu.XOR: "^",
    Alu.MOV: "",
    Alu.ARSH: "s>>",
}
_JUMP_SIGNS: Final = {
    Jump.EQ: "==",
    Jump.GT: ">",
    Jump.GE: ">=",
    Jump.SET: "&",
    Jump.NE: "!=",
    Jump.SGT: "s>",
    Jump.SGE: "s>=",
    Jump.LT: "<",
    Jump.LE: "<=",
    Jump.SLT: "s<",
    Jump.SLE: "s<=",
}
_NARROW: Final = frozenset({Class.ALU, Class.JMP32})
"""Classes that work with the lower half of a register, which is then called w."""


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction of a listing."""

    at: int
    """Its place, in which jumps count."""
    text: str
    meaning: str = ""
    """What of the request it looks at; empty where that is nothing, or cannot be told."""
    executed: bool = False
    decides: bool = False
    """Whether it is the last condition on the executed path: what comes after it is the answer."""


def list_program(program: Program, steps: Sequence[Step] = ()) -> tuple[Line, ...]:
    """The lines of a program; `steps` are what a run of it added to its trace."""
    path = [step.at for step in steps]
    executed = {*path, *(step.next for step in steps[-1:])}
    decision = deciding_place(program, steps)
    meanings = read_meanings(program)
    return tuple(
        Line(at, disassemble(instruction, at), meanings.get(at, ""), at in executed, at == decision)
        for at, instruction in enumerate(program)
        if instruction is not None
    )


def deciding_place(program: Program, steps: Sequence[Step]) -> int | None:
    """Where the last condition of a run is; None for a program that answers always the same."""
    conditions = (step.at for step in reversed(steps) if _is_condition(program[step.at]))
    return next(conditions, None)


def disassemble(instruction: Instruction, at: int) -> str:
    """One instruction at this place; what is not known is shown by its fields."""
    if _is_helper_call(instruction):
        return f"call {instruction.imm}"
    if not instruction.known:
        return _fields(instruction)
    return _WRITERS[instruction.group](instruction, at)


def _is_helper_call(instruction: Instruction) -> bool:
    """Which cannot be run, but told."""
    return instruction.code == Class.JMP | Jump.CALL and instruction.src == 0


def _is_condition(instruction: Instruction | None) -> bool:
    return (
        instruction is not None
        and instruction.group in (Class.JMP, Class.JMP32)
        and instruction.operation in _JUMP_SIGNS
    )


def _alu(it: Instruction, _: int) -> str:
    target = _register(it, it.dst)
    if it.operation == Alu.NEG:
        return f"{target} = -{target}"
    if it.operation == Alu.END:
        return f"r{it.dst} = {_order(it)}{it.imm} r{it.dst}"
    extended = f"(s{it.off})" if it.operation == Alu.MOV and it.off else ""
    sign = "s" if it.operation in (Alu.DIV, Alu.MOD) and it.off else ""
    return f"{target} {sign}{_ALU_SIGNS[Alu(it.operation)]}= {extended}{_operand(it)}"


def _order(it: Instruction) -> str:
    if it.group == Class.ALU64:
        return "bswap"
    return "be" if it.takes_register else "le"


def _jump(it: Instruction, at: int) -> str:
    if it.operation == Jump.EXIT:
        return "exit"
    if it.operation == Jump.ALWAYS:
        return f"goto {at + 1 + (it.imm if it.group == Class.JMP32 else it.off)}"
    sign = _JUMP_SIGNS[Jump(it.operation)]
    return f"if {_register(it, it.dst)} {sign} {_operand(it)} goto {at + 1 + it.off}"


def _load_immediate(it: Instruction, _: int) -> str:
    return f"r{it.dst} = {it.imm:#x}"


def _load(it: Instruction, _: int) -> str:
    return f"r{it.dst} = {_place(it, it.src, 's' if it.mode == Mode.MEMSX else 'u')}"


def _store(it: Instruction, _: int) -> str:
    value = it.imm if it.group == Class.ST else f"r{it.src}"
    return f"{_place(it, it.dst, 'u')} = {value}"


def _place(it: Instruction, base: int, sign: str) -> str:
    return f"*({sign}{it.width * 8} *)(r{base} {it.off:+d})"


def _register(it: Instruction, number: int) -> str:
    return f"{'w' if it.group in _NARROW else 'r'}{number}"


def _operand(it: Instruction) -> str:
    return _register(it, it.src) if it.takes_register else str(it.imm)


def _fields(it: Instruction) -> str:
    return f"not known: opcode {it.code:#04x} dst {it.dst} src {it.src} off {it.off} imm {it.imm:#x}"


_WRITERS: Final[dict[int, Callable[[Instruction, int], str]]] = {
    Class.LD: _load_immediate,
    Class.LDX: _load,
    Class.ST: _store,
    Class.STX: _store,
    Class.ALU: _alu,
    Class.JMP: _jump,
    Class.JMP32: _jump,
    Class.ALU64: _alu,
}
