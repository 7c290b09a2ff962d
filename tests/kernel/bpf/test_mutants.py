# SPDX-License-Identifier: Apache-2.0
"""The comparison is worth something: an evaluator that is wrong in one instruction is caught by few programs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.cgroup.bpf.isa import decode
from tests.kernel.bpf.comparison import differs
from tests.kernel.bpf.generator import Generator
from tests.kernel.bpf.mutants import NAMES, WIDTHS, broken, widened
from tests.kernel.bpf.sysctl import hardening
from tests.support.bpf import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from otel_gpu_cgroup.cgroup.bpf.isa import Program
    from tests.kernel.bpf.comparison import Answers, Tally
    from tests.kernel.bpf.lab import Lab

    Cases = list[tuple[Program, Answers]]

_SEED: Final = 1
"""Always the same programs: whether an evaluator is caught must not be a matter of luck."""
_WITHIN: Final = 200


@pytest.fixture(scope="module")
def cases(lab: Lab) -> Cases:
    generator = Generator(random.Random(_SEED))
    cases: Cases = []
    with hardening(0, 0):
        while len(cases) < _WITHIN:
            try:
                case = lab.attempt(generator.program())
            except Refused:
                continue
            cases.append((decode(case.code), case.answers))
    return cases


def test_the_right_evaluator_is_not_caught(cases: Cases) -> None:
    assert [at for at, (program, answers) in enumerate(cases) if differs([program], answers)] == []


@pytest.mark.parametrize(
    ("change", "names"),
    [pytest.param(broken, NAMES, id="one taken for another"), pytest.param(widened, WIDTHS, id="32 bits taken for 64")],
)
def test_a_wrong_evaluator_is_caught(
    change: Callable[[Program, str], Program], names: Iterable[str], cases: Cases, tally: Tally
) -> None:
    caught = {name: _programs_until_caught(cases, change, name) for name in names}
    tally.caught |= {f"{change.__name__} {name}": after for name, after in caught.items() if after is not None}
    assert [name for name, after in caught.items() if after is None] == []


def _programs_until_caught(cases: Cases, change: Callable[[Program, str], Program], name: str) -> int | None:
    """How many programs it takes to tell; None when all of them do not."""
    for after, (program, answers) in enumerate(cases, 1):
        try:
            changed = change(program, name)
        except ValueError:
            continue
        if differs([changed], answers):
            return after
    return None
