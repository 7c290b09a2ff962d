# SPDX-License-Identifier: Apache-2.0
"""Random programs, loaded and attached for real: what we compute of them is what the kernel does."""

from __future__ import annotations

import os
import random
from itertools import cycle, islice
from typing import TYPE_CHECKING, Final

from tests.kernel.bpf.generator import Generator
from tests.kernel.bpf.sysctl import hardening
from tests.support.bpf import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kernel.bpf.comparison import Tally
    from tests.kernel.bpf.lab import Case, Lab

_PROGRAMS: Final = int(os.environ.get("OTEL_GPU_CGROUP_TEST_PROGRAMS") or 600)
_ENOUGH: Final = 500
"""As many programs meet every opcode."""
_SETTINGS: Final = ((0, 0), (2, 0), (1, 0), (2, 1), (0, 1), (2, 0), (1, 2), (0, 2))
"""net.core.bpf_jit_harden and kernel.kptr_restrict; with both at 2 the kernel shows no instructions."""
_BATCH: Final = 25
"""Programs under the same settings."""


def test_the_kernel_agrees_on_every_random_program(lab: Lab, tally: Tally) -> None:
    chance = random.Random(tally.seed)
    generator, left = Generator(chance), _PROGRAMS
    for settings in cycle(_SETTINGS):
        if left <= 0 or tally.disagreements:
            break
        with hardening(*settings):
            for loaded, case in islice(_cases(lab, generator, tally), min(left, _BATCH)):
                tally.add_random(loaded, case.code, case.answers)
        left -= _BATCH
    assert tally.disagreements == []
    assert _PROGRAMS < _ENOUGH or tally.missing() == []


def _cases(lab: Lab, generator: Generator, tally: Tally) -> Iterator[tuple[bytes, Case]]:
    """Programs that the verifier takes, as they are loaded, and what came of them."""
    while True:
        loaded = generator.program()
        try:
            yield loaded, lab.attempt(loaded)
        except Refused:
            tally.refused += 1
