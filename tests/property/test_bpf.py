# SPDX-License-Identifier: Apache-2.0
"""Any bytes have a verdict or none; assembled rules have the verdict of the rules; any valid program has a verdict."""

from __future__ import annotations

import ctypes
import math
import random
from fractions import Fraction
from typing import Final, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu_cgroup.cgroup.bpf.isa import FORMS, decode
from otel_gpu_cgroup.cgroup.bpf.machine import request_context, run
from otel_gpu_cgroup.errors import UnsupportedProgram
from otel_gpu_cgroup.model import READ_WRITE, DeviceNode, DeviceType, Permission
from tests.kernel.bpf.generator import Generator
from tests.support import bpf_programs
from tests.support.bpf_programs import Rule, first_match, first_named, instruction

_ARBITRARY: Final = 100_000
_CONTEXT: Final = request_context(6, 2, 195, 3)
_CODES: Final = tuple(FORMS)
_KINDS: Final = {DeviceType.BLOCK: 1, DeviceType.CHAR: 2}
_EXIT: Final = instruction(0x95)
_LARGEST: Final = 2**64 - 1

rules = st.lists(
    st.builds(
        Rule,
        st.booleans(),
        st.sampled_from(["b", "c", None]),
        st.sampled_from([195, 1, None]),
        st.one_of(st.none(), st.integers(0, 4)),
        st.integers(1, 7),
    ),
    max_size=8,
)
nodes = st.builds(DeviceNode, st.sampled_from(DeviceType), st.sampled_from([195, 1, 507]), st.integers(0, 5))
requests = st.integers(1, 7).map(Permission)
numbers = st.integers(0, _LARGEST) | st.sampled_from(
    [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, _LARGEST]
)


class Shape(Protocol):
    """Assembles a list of rules with a default."""

    def __call__(self, rules: list[Rule], /, *, default: bool) -> bytes: ...


def test_arbitrary_bytes_have_a_verdict_or_none() -> None:
    """Half of them of known opcodes, so that runs get somewhere; some return, some go on until the step limit."""
    chance = random.Random()
    outcomes = {"verdict": 0, "none": 0}
    for number in range(_ARBITRARY):
        code = _bytes_of_opcodes(chance) if number % 2 else chance.randbytes(chance.randrange(80))
        outcomes["none" if _verdict(code) is None else "verdict"] += 1
    assert min(outcomes.values()) > _ARBITRARY // 100


@pytest.mark.parametrize("otherwise", ["allow", "deny"])
@pytest.mark.parametrize("shape", [bpf_programs.runc, bpf_programs.crun, bpf_programs.lxc])
@given(given_rules=rules, node=nodes, asked=requests)
def test_a_list_of_rules(
    shape: Shape, otherwise: str, given_rules: list[Rule], node: DeviceNode, asked: Permission
) -> None:
    default = otherwise == "allow"
    expected = first_match(given_rules, node, asked, default=default)
    assert _answer(shape(given_rules, default=default), node, asked) == expected


@given(rules, nodes, requests)
def test_a_list_that_does_not_look_at_the_access(given_rules: list[Rule], node: DeviceNode, asked: Permission) -> None:
    assert _answer(bpf_programs.slurm(given_rules), node, asked) == first_named(given_rules, node, asked, default=True)


@given(rules, rules, nodes, requests)
def test_rules_before_a_program(added: list[Rule], existing: list[Rule], node: DeviceNode, asked: Permission) -> None:
    code = bpf_programs.nvcgo(added, bpf_programs.runc(existing))
    assert _answer(code, node, asked) == first_match([*reversed(added), *existing], node, asked, default=False)


@given(rules, nodes, requests)
def test_a_list_that_allows_by_a_jump(given_rules: list[Rule], node: DeviceNode, asked: Permission) -> None:
    allowing = [rule for rule in given_rules if rule.allow]
    assert _answer(bpf_programs.systemd(allowing), node, asked) == first_match(allowing, node, asked, default=False)


@given(st.integers(0, 2**32))
def test_a_valid_program_has_a_verdict_for_every_request(seed: int) -> None:
    program = decode(Generator(random.Random(seed)).program())
    for minor in (*range(20), 255):
        assert run(program, request_context(READ_WRITE.value, 2, 195, minor)) in (0, 1)


@pytest.mark.parametrize("bits", [32, 64])
@given(a=numbers, b=numbers)
def test_arithmetic_is_that_of_c(bits: int, a: int, b: int) -> None:
    """Told by ctypes' integers and exact fractions; results of 32 bits have no upper half."""
    group = 0x07 if bits == 64 else 0x04
    unsigned, signed = (ctypes.c_uint64, ctypes.c_int64) if bits == 64 else (ctypes.c_uint32, ctypes.c_int32)
    x, y = unsigned(a).value, unsigned(b).value
    p, q = signed(a).value, signed(b).value
    shift = y % bits
    expected: dict[tuple[int, int], int] = {
        (0x00, 0): x + y,
        (0x10, 0): x - y,
        (0x20, 0): x * y,
        (0x30, 0): math.floor(Fraction(x, y)) if y else 0,
        (0x30, 1): math.trunc(Fraction(p, q)) if q else 0,
        (0x40, 0): x | y,
        (0x50, 0): x & y,
        (0x60, 0): x << shift,
        (0x70, 0): x >> shift,
        (0x90, 0): x - math.floor(Fraction(x, y)) * y if y else x,
        (0x90, 1): p - math.trunc(Fraction(p, q)) * q if q else p,
        (0xA0, 0): x ^ y,
        (0xB0, 0): y,
        (0xC0, 0): math.floor(Fraction(p, 2**shift)),
    }
    for (operation, off), value in expected.items():
        computed = _computed(instruction(group | operation | 0x08, 2, 3, off), a, b)
        assert computed == unsigned(value).value, f"operation {operation:#x} with offset {off}"


@pytest.mark.parametrize("bits", [32, 64])
@given(a=numbers, b=numbers)
def test_comparison_is_that_of_c(bits: int, a: int, b: int) -> None:
    group = 0x05 if bits == 64 else 0x06
    unsigned, signed = (ctypes.c_uint64, ctypes.c_int64) if bits == 64 else (ctypes.c_uint32, ctypes.c_int32)
    x, y, p, q = unsigned(a).value, unsigned(b).value, signed(a).value, signed(b).value
    unsigned_ones = {0x10: x == y, 0x50: x != y, 0x40: x & y != 0, 0x20: x > y, 0x30: x >= y, 0xA0: x < y, 0xB0: x <= y}
    expected = unsigned_ones | {0x60: p > q, 0x70: p >= q, 0xC0: p < q, 0xD0: p <= q}
    for condition, holds in expected.items():
        taken = _numbers(a, b) + instruction(group | condition | 0x08, 2, 3, 2) + _returned(0) + _returned(1)
        assert run(decode(taken), _CONTEXT) == holds, f"condition {condition:#x}"


def _bytes_of_opcodes(chance: random.Random) -> bytes:
    """Known opcodes with fields that are often within bounds."""
    pieces = [
        instruction(
            chance.choice(_CODES),
            chance.randrange(12),
            chance.randrange(12),
            chance.choice((0, 0, 1, 4, -8, -16, chance.randrange(-(2**15), 2**15))),
            chance.choice((0, 1, 16, 64, chance.randrange(-(2**31), 2**31))),
        )
        for _ in range(chance.randrange(12))
    ]
    begun = instruction(0xB7, 0, imm=1) if chance.random() < 0.5 else b""
    return b"".join([begun, *pieces, _EXIT])


def _verdict(code: bytes) -> int | None:
    try:
        verdict = run(decode(code), _CONTEXT)
    except UnsupportedProgram as error:
        refusal = str(error)
    except BaseException as error:
        error.add_note(f"the program: {code.hex()}")
        raise
    else:
        assert verdict in (0, 1), code.hex()
        return verdict
    assert refusal.isprintable()
    return None


def _answer(code: bytes, node: DeviceNode, asked: Permission) -> bool:
    return run(decode(code), request_context(asked.value, _KINDS[node.type], node.major, node.minor)) == 1


def _numbers(a: int, b: int) -> bytes:
    """The two in registers 2 and 3."""
    return _constant(2, a) + _constant(3, b)


def _constant(register: int, value: int) -> bytes:
    return instruction(0x18, register, imm=ctypes.c_int32(value).value) + instruction(
        0, imm=ctypes.c_int32(value >> 32).value
    )


def _returned(result: int) -> bytes:
    return instruction(0xB7, 0, imm=result) + _EXIT


def _computed(operation: bytes, a: int, b: int) -> int:
    """What it leaves in register 2, asked bit by bit: a program returns no more than one."""
    return sum(_bit(_numbers(a, b) + operation, bit) << bit for bit in range(64))


def _bit(code: bytes, bit: int) -> int:
    ask = instruction(0xBF, 0, 2) + instruction(0x77, 0, imm=bit) + instruction(0x57, 0, imm=1) + _EXIT
    return run(decode(code + ask), _CONTEXT)
