# SPDX-License-Identifier: Apache-2.0
"""The kernel oracle of a run, and its totals at the end of the terminal's output."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Final

import pytest

from tests.kernel.comparison import NODES, Comparison
from tests.support.devices_cgroup import KernelOracle, kernel_oracle, need_devices_cgroup

if TYPE_CHECKING:
    from collections.abc import Iterator

_SEED: Final = "OTEL_GPU_CGROUP_TEST_SEED"
"""Set it to the number that a failed run printed to get the same rule sets again."""
_TOTALS: Final = pytest.StashKey[Comparison]()


@pytest.fixture(scope="session")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelOracle]:
    folder = tmp_path_factory.mktemp("kernel")
    need_devices_cgroup(folder)
    with kernel_oracle(folder, NODES) as oracle:
        yield oracle


@pytest.fixture(scope="session")
def totals(pytestconfig: pytest.Config) -> Comparison:
    seed = int(os.environ.get(_SEED) or secrets.randbelow(2**32))
    return pytestconfig.stash.setdefault(_TOTALS, Comparison(seed))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    totals = config.stash.get(_TOTALS, None)
    if totals is not None:
        terminalreporter.section("our verdicts against the kernel's")
        for line in totals.lines():
            terminalreporter.write_line(line)
