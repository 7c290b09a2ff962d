# SPDX-License-Identifier: Apache-2.0
"""Which instructions there are, and which fields they use: what the kernel takes and what we take are the same."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.cgroup.bpf.isa import decode
from otel_gpu_cgroup.model import READ_WRITE, gpu_node
from tests.kernel.bpf.comparison import evaluate
from tests.support.bpf import Refused, loaded
from tests.support.bpf_programs import instruction

if TYPE_CHECKING:
    from tests.kernel.bpf.lab import Lab

_FRAME: Final = 10
_STORES: Final = (2, 3)
"""Classes whose first register is an address."""
_ATOMIC: Final = (0xC3, 0xDB)
_BEFORE: Final = (
    instruction(0xB7, 2, imm=5),
    instruction(0xB7, 3, imm=3),
    instruction(0x7B, _FRAME, 2, -8),
    instruction(0xB7, 0, imm=1),
)
_AFTER: Final = (instruction(0xB7, 0, imm=1), instruction(0x95))
_NO_FIELD: Final = ("reserved field", "unknown opcode", "unknown field", "invalid BPF_", "unrecognized")
"""What the verifier says of a bit that has no meaning."""


@pytest.mark.usefixtures("lab")
def test_we_know_the_instructions_that_the_kernel_takes_and_no_others() -> None:
    unlike = []
    for code, src, off, imm in product(range(256), (0, 3, _FRAME), (0, 1, 8, -8), (0, 1, 16)):
        program = _with(code, src, off, imm)
        known = getattr(decode(program)[len(_BEFORE)], "known", False)
        refusal = _refusal(program)
        if refusal is None and not known and code not in _ATOMIC:
            unlike.append(f"{code:#04x} {src} {off} {imm}: only the kernel takes it")
        # the verifier itself puts a 1 into the moves that clear an upper half
        if known and any(reason in (refusal or "") for reason in _NO_FIELD) and (code, imm) != (0xBC, 1):
            unlike.append(f"{code:#04x} {src} {off} {imm}: {refusal}")
    assert unlike == []


@pytest.mark.usefixtures("shown")
@pytest.mark.parametrize("code", _ATOMIC)
def test_what_the_kernel_takes_and_we_do_not_is_unknown_when_it_is_reached(code: int, lab: Lab) -> None:
    over = instruction(0x61, 4, 1, 8), instruction(0x55, 4, 0, 1, 3)  # skipped unless the minor is 3
    program = b"".join([*_BEFORE, *over, instruction(code, _FRAME, 3, -8), *_AFTER])
    case = lab.attempt(program)
    assert case.code == program
    assert {answer.allowed for answer in case.answers.values()} == {True}
    verdicts = [evaluate([decode(case.code)], gpu_node(minor), READ_WRITE) for minor in (2, 3)]
    assert verdicts[0] == "allow"
    assert verdicts[1].startswith("unknown: opcode")


def _with(code: int, src: int, off: int, imm: int) -> bytes:
    group = code & 7
    dst = _FRAME if group in _STORES else 0 if code in (0x05, 0x06, 0x95) else 2
    second = [instruction(0, imm=7)] if code == 0x18 else []
    return b"".join([*_BEFORE, instruction(code, dst, src, off, imm), *second, *_AFTER])


def _refusal(program: bytes) -> str | None:
    try:
        with loaded(program):
            return None
    except Refused as refused:
        return refused.log
