# SPDX-License-Identifier: Apache-2.0
"""The kernel as the judge of device programs, and the totals at the end of the terminal's output."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from tests.kernel.bpf.comparison import Tally
from tests.kernel.bpf.lab import Lab
from tests.kernel.bpf.sysctl import hardening
from tests.kernel.comparison import NODES
from tests.support.bpf import need_bpf, unified_cgroup, unified_hierarchy
from tests.support.devices_cgroup import KernelOracle, kernel_oracle, takes_nodes
from tests.support.need import need

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SEED: Final = "OTEL_GPU_CGROUP_TEST_SEED"
"""Set it to the number that a failed run printed to get the same programs again."""
_TALLY: Final = pytest.StashKey[Tally]()


@pytest.fixture(scope="session")
def unified_kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelOracle]:
    """What asks in any cgroup of the unified hierarchy, and leaves it again."""
    with _unified_oracle(tmp_path_factory.mktemp("bpf")) as oracle:
        yield oracle


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One cgroup with a process of its own that stays."""
    with (
        _unified_oracle(tmp_path_factory.mktemp("lab")) as oracle,
        unified_cgroup() as cgroup,
        oracle.inside(cgroup) as ask,
    ):
        yield Lab(cgroup, ask)


@contextmanager
def _unified_oracle(folder: Path) -> Iterator[KernelOracle]:
    """The v1 devices hierarchy, where there is one, must let it do anything."""
    need_bpf()
    need(takes_nodes(folder), f"no device node can be made and opened below {folder}")
    with kernel_oracle(folder, NODES, home=unified_hierarchy()) as oracle:
        with unified_cgroup() as cgroup:
            denied = [request for request, answer in oracle.ask(cgroup).items() if not answer.allowed]
        need(not denied, f"without a program devices are denied, too: {denied[:3]}")
        yield oracle


@pytest.fixture
def shown() -> Iterator[None]:
    """Keep programs from being blinded or hidden by what another test run on this machine sets."""
    need_bpf()
    with hardening(0, 0):
        yield


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> Tally:
    seed = int(os.environ.get(_SEED) or secrets.randbelow(2**32))
    return pytestconfig.stash.setdefault(_TALLY, Tally(seed))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    tally = config.stash.get(_TALLY, None)
    if tally is not None:
        terminalreporter.section("device programs: our verdicts against the kernel's")
        for line in tally.lines():
            terminalreporter.write_line(line)
