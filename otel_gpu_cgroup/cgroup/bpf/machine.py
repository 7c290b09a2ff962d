# SPDX-License-Identifier: Apache-2.0
"""Pure: runs a device program as the kernel does, on one request.

Registers hold unsigned 64-bit numbers, or a `Pointer` into the request or the stack. A pointer's number is the
kernel's secret, so whatever would make a result depend on it, as well as a helper call, a map, an atomic operation or
an unknown opcode on the way, is UnsupportedProgram: the verdict is then unknown. Twelve registers: the kernel's
constant blinding (net.core.bpf_jit_harden) works with the last one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.arithmetic import ALU32, ALU64, JUMPS, signed, swap
from otel_gpu_cgroup.cgroup.bpf.isa import FROM_REGISTER, Alu, Class, Instruction, Jump, Mode, Program
from otel_gpu_cgroup.cgroup.bpf.memory import Memory, Pointer, Value
from otel_gpu_cgroup.errors import ProgramTooLong, UnsupportedProgram

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_STEPS: Final = 100_000
"""The longest program of 4096 instructions without loops takes 4096; a kernel allows a million with loops."""
_U64: Final = 0xFFFFFFFFFFFFFFFF
_U32: Final = 0xFFFFFFFF
_REGISTERS: Final = 12
_CONTEXT: Final = 1
_FRAME: Final = 10
_XOR_64: Final = Class.ALU64 | Alu.XOR | FROM_REGISTER


@dataclass(frozen=True, slots=True)
class Step:
    """One executed instruction: where, and where to it went next."""

    at: int
    next: int


def run(program: Program, context: bytes, trace: list[Step] | None = None) -> int:
    """What the program returns for this context (struct bpf_cgroup_dev_ctx), 0 or 1; steps are added to `trace`.

    Raises UnsupportedProgram.
    """
    machine = _Machine(program, context)
    try:
        return _verdict(machine.run(trace))
    except (TypeError, IndexError) as error:
        # an operand that is no number: a pointer, or a register or byte that nothing was written to
        raise UnsupportedProgram(f"instruction {machine.at}: what it computes with cannot be known") from error


class _Machine:
    """The state of one run."""

    def __init__(self, program: Program, context: bytes) -> None:
        self._program = program
        self._memory = Memory(context)
        self._registers: list[Value] = [None] * _REGISTERS
        self._registers[_CONTEXT] = Pointer("context", 0)
        self._registers[_FRAME] = Pointer("stack", 0)
        self.at = 0

    def run(self, trace: list[Step] | None) -> int:
        for _ in range(_MAX_STEPS):
            instruction = self._fetch()
            if instruction.code == Class.JMP | Jump.EXIT:
                return self._number(0)
            at = self.at
            self.at = at + 1 + _EXECUTE[instruction.group](self, instruction)
            if trace is not None:
                trace.append(Step(at, self.at))
        raise ProgramTooLong(f"it takes more than {_MAX_STEPS} steps")

    def _fetch(self) -> Instruction:
        instruction = self._program[self.at] if 0 <= self.at < len(self._program) else None
        if instruction is None:
            raise UnsupportedProgram(f"it goes on at {self.at}, where no instruction is")
        if not instruction.known:
            raise _unsupported(instruction)
        return instruction

    def _number(self, register: int) -> int:
        value = self._registers[register]
        if not isinstance(value, int):
            raise TypeError(register)
        return value

    def _pointer(self, register: int) -> Pointer:
        value = self._registers[register]
        if not isinstance(value, Pointer):
            raise TypeError(register)
        return value

    def _operand(self, it: Instruction) -> Value:
        """The second operand: a register, or the immediate with its sign extended."""
        return self._registers[it.src] if it.takes_register else it.imm & _U64

    def alu64(self, it: Instruction) -> int:
        operand = self._operand(it)
        if it.operation == Alu.MOV:
            self._registers[it.dst] = self._moved(it, operand)
        elif it.operation == Alu.END:
            self._registers[it.dst] = swap(self._number(it.dst), it.imm)
        elif it.code == _XOR_64 and it.dst == it.src:
            self._registers[it.dst] = 0  # what it held, if anything, is no matter: blinded, a move of 0 is this
        elif isinstance(self._registers[it.dst], Pointer) or isinstance(operand, Pointer):
            self._registers[it.dst] = self._moved_pointer(it, operand)
        else:
            result = ALU64[it.operation, it.off](self._number(it.dst), _known(operand))
            self._registers[it.dst] = result & _U64
        return 0

    def alu32(self, it: Instruction) -> int:
        operand = self._operand(it)
        if it.operation == Alu.MOV:
            self._registers[it.dst] = _known(self._moved(it, operand)) & _U32
        elif it.operation == Alu.END:
            self._registers[it.dst] = self._ordered(it)
        else:
            result = ALU32[it.operation, it.off](self._number(it.dst) & _U32, _known(operand) & _U32)
            self._registers[it.dst] = result & _U32
        return 0

    def _moved(self, it: Instruction, operand: Value) -> Value:
        """A move; with an offset it extends the sign of that many bits (instruction set version 4)."""
        return signed(_known(operand), it.off) & _U64 if it.off else operand

    def _moved_pointer(self, it: Instruction, operand: Value) -> Value:
        """A number added to, or taken from, a pointer: the one thing that may be computed with one."""
        base = self._registers[it.dst]
        if it.operation == Alu.ADD and isinstance(operand, Pointer):
            base, operand = operand, base
        if not isinstance(base, Pointer) or it.operation not in (Alu.ADD, Alu.SUB):
            raise TypeError(it)
        distance = signed(_known(operand), 64)
        return Pointer(base.region, base.offset + (distance if it.operation == Alu.ADD else -distance))

    def _ordered(self, it: Instruction) -> int:
        """To little-endian, which the machine is: only cut; to big-endian: swapped and cut."""
        value = self._number(it.dst)
        return swap(value, it.imm) if it.takes_register else value & ((1 << it.imm) - 1)

    def jump64(self, it: Instruction) -> int:
        if it.operation == Jump.ALWAYS:
            return it.off
        return it.off if JUMPS[it.operation](self._number(it.dst), _known(self._operand(it)), 64) else 0

    def jump32(self, it: Instruction) -> int:
        if it.operation == Jump.ALWAYS:
            return it.imm
        first, second = self._number(it.dst) & _U32, _known(self._operand(it)) & _U32
        return it.off if JUMPS[it.operation](first, second, 32) else 0

    def load(self, it: Instruction) -> int:
        value = self._memory.load(self._pointer(it.src), it.off, it.width)
        self._registers[it.dst] = value if it.mode == Mode.MEM else signed(_known(value), it.width * 8) & _U64
        return 0

    def load_immediate(self, it: Instruction) -> int:
        self._registers[it.dst] = it.imm
        return 1

    def store(self, it: Instruction) -> int:
        value = self._registers[it.src] if it.group == Class.STX else it.imm & _U64
        self._memory.store(self._pointer(it.dst), it.off, it.width, value)
        return 0


_EXECUTE: Final[dict[int, Callable[[_Machine, Instruction], int]]] = {
    Class.LD: _Machine.load_immediate,
    Class.LDX: _Machine.load,
    Class.ST: _Machine.store,
    Class.STX: _Machine.store,
    Class.ALU: _Machine.alu32,
    Class.JMP: _Machine.jump64,
    Class.JMP32: _Machine.jump32,
    Class.ALU64: _Machine.alu64,
}
"""What executes an instruction of a class, and says by how much more than one to go on."""


def _verdict(value: int) -> int:
    if value not in (0, 1):
        raise UnsupportedProgram(f"it returns {value}, which the kernel lets no device program do")
    return value


def _known(value: Value) -> int:
    if not isinstance(value, int):
        raise TypeError(value)
    return value


def _unsupported(it: Instruction) -> UnsupportedProgram:
    if it.code == Class.JMP | Jump.CALL:
        return UnsupportedProgram("it calls a function of the kernel")
    return UnsupportedProgram(f"opcode {it.code:#04x} with offset {it.off} and immediate {it.imm:#x}")


def request_context(access: int, kind: int, major: int, minor: int) -> bytes:
    """The struct bpf_cgroup_dev_ctx of linux/bpf.h: access in the upper half of the first word, type in the lower."""
    return struct.pack("<III", access << 16 | kind, major, minor)
