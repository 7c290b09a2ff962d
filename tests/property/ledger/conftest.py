# SPDX-License-Identifier: Apache-2.0
"""Schedules that were played once, and the totals at the end of the terminal's output."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.containers.processes.table import ProcessTable
from otel_gpu_cgroup.host import HostPaths
from tests.conftest import LoadedDriver
from tests.fakes.fake_nvml import LIBRARY_NAME
from tests.fakes.grants import read_grants
from tests.property.ledger.account import Played
from tests.property.ledger.host import PlayedHost
from tests.property.ledger.proc import ProcTree
from tests.property.ledger.schedule import make_schedule
from tests.property.ledger.tally import Tally

if TYPE_CHECKING:
    from pathlib import Path

_SCHEDULES: Final = int(os.environ.get("OTEL_GPU_CGROUP_TEST_SCHEDULES") or 40)
_FIRST: Final = int(os.environ.get("OTEL_GPU_CGROUP_TEST_SEED") or 1)
"""Set it to the number that a failed run printed, and the number of schedules to 1."""
_TALLY: Final = pytest.StashKey[Tally]()


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> Tally:
    return pytestconfig.stash.setdefault(_TALLY, Tally())


@pytest.fixture(scope="module", params=range(_FIRST, _FIRST + _SCHEDULES), ids=str)
def played(
    request: pytest.FixtureRequest,
    fake_library_dir: Path,
    counts_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
    tally: Tally,
) -> Played:
    """One schedule, played to its end."""
    seed: int = request.param
    folder = tmp_path_factory.mktemp(f"ledger-{seed}")
    driver = LoadedDriver(fake_library_dir / LIBRARY_NAME, folder / "world", counts_file)
    grants, schedule = folder / "grants", make_schedule(seed)
    table = ProcessTable(HostPaths(folder), is_host=False)
    host = PlayedHost(schedule, driver, ProcTree(folder, schedule), table)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("FAKE_NVML_FILE", str(driver.world_file))
        environment.setenv("FAKE_NVML_COUNTS", str(driver.counts_file))
        environment.setenv("FAKE_NVML_GRANTS", str(grants))
        played = Played(host, host.play(), read_grants(grants))
    tally.add(played)
    return played


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    tally = config.stash.get(_TALLY, None)
    if tally is not None and tally.seeds:
        terminalreporter.section("the ledger against the driver's log")
        for line in tally.lines():
            terminalreporter.write_line(line)
