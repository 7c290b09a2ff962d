# SPDX-License-Identifier: Apache-2.0
"""Hundreds of real containers that start and stop under cycles without a pause: none is ever called lost."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.reader import PolicyReader
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import AccessClass
from otel_gpu_cgroup.nvidia.manager import NvidiaManager
from otel_gpu_cgroup.nvidia.nvml import PyNvml
from tests.fakes.fake_nvml import FakeGpu, World
from tests.integration.gpu_nodes import nodes
from tests.support.runc import DENY_ALL, PRIVILEGED, RuncSpec, docker_cgroup, need_runc, runc_container
from tests.support.wiring import new_cycle, new_lost_watch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from tests.conftest import LoadedDriver
    from tests.support.runc import Bind

CONTAINERS: Final = 500
AT_ONCE: Final = 4
"""As many runcs run beside the cycles."""
MINORS: Final = (0, 1, 2, 3)
CONTROL: Final = "allow c 195:255 rw"
KINDS: Final[tuple[tuple[Sequence[str], Sequence[int]], ...]] = (
    ((DENY_ALL, "allow c 195:0 rw", CONTROL), (0,)),
    ((DENY_ALL, *(f"allow c 195:{minor} rwm" for minor in MINORS), CONTROL), MINORS),
    ((DENY_ALL, "allow c 195:* rw"), (2,)),
    ((DENY_ALL,), ()),
    (PRIVILEGED, MINORS),
)
"""Rules, and the GPUs whose nodes are in the container's own /dev."""
PROGRAMS: Final = (("/bin/busybox", "true"), ("/bin/busybox", "sleep", "0.05"), ("/bin/busybox", "sleep", "0.2"))
"""Some end before a cycle can see them, some live through a few."""


def test_containers_that_come_and_go_have_lost_nothing(
    tmp_path: Path, driver: LoadedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    need_runc()
    driver.set(World(gpus=tuple(FakeGpu(uuid=f"GPU-{minor}", minor=minor) for minor in MINORS)))
    host = HostPaths()
    manager = NvidiaManager(host, PyNvml(driver.library), PolicyReader(host), new_lost_watch(host))
    cycle = new_cycle(host, manager, is_host=True)
    binds = {minors: nodes(tmp_path, minors) for _, minors in KINDS}
    ours = [docker_cgroup() for _ in range(CONTAINERS)]
    seen: dict[str, set[AccessClass]] = {}
    lost: list[tuple[str, str | None]] = []
    cycles = 0
    manager.setup()
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool, caplog.at_level(logging.INFO):
            futures = [pool.submit(_run, tmp_path, number, cgroup, binds) for number, cgroup in enumerate(ours)]
            while not all(future.done() for future in futures):
                stats = cycle.collect()
                cycles += 1
                for report in stats.containers:
                    seen.setdefault(report.container.cgroup, set()).add(report.access)
                    lost += [(report.container.cgroup, row.reason) for row in report.accelerators if row.lost]
            for future in futures:
                future.result()
    finally:
        manager.destroy()
    met = [seen[cgroup] for cgroup in ours if cgroup in seen]
    figures = f"{cycles} cycles met {len(met)} of {CONTAINERS} containers, {_passing(met)} of them while they changed"
    logging.getLogger(__name__).info(figures)
    assert [it for it in lost if it[0] in ours] == [], figures
    assert [record.message for record in caplog.records if any(cgroup[8:] in record.message for cgroup in ours)] == []
    assert len(met) > CONTAINERS / 5, figures  # else it proves nothing
    assert {AccessClass.EXPLICIT, AccessClass.NONE, AccessClass.UNRESTRICTED} <= set().union(*met)


def _run(tmp_path: Path, number: int, cgroup: str, binds: dict[Sequence[int], list[Bind]]) -> None:
    """One container's life: it is made, runs, ends by itself and is deleted."""
    rules, minors = KINDS[number % len(KINDS)]
    with runc_container(tmp_path, RuncSpec(cgroup, rules, PROGRAMS[number % len(PROGRAMS)], binds=binds[minors])):
        pass


def _passing(met: Sequence[set[AccessClass]]) -> int:
    """How many were met as more than one class: while runc set them up."""
    return sum(len(classes) > 1 for classes in met)
