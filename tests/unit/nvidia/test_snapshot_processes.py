# SPDX-License-Identifier: Apache-2.0
"""Who runs on each GPU, pass by pass, driven through real pynvml by the C fake; time is what the test says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pytest

from otel_gpu_cgroup.model import GpuProcess, GpuReading, GpuUuid
from otel_gpu_cgroup.nvidia.nvml import PyNvml
from otel_gpu_cgroup.nvidia.readings.duty_cycle import Instant
from otel_gpu_cgroup.nvidia.readings.snapshot import SnapshotReader, SystemClock
from tests.fakes.fake_nvml import (
    GIB,
    FakeGpu,
    FakeMemory,
    FakeProcess,
    FakeShare,
    Recorded,
    Steady,
    World,
    uniform_gpus,
)
from tests.fakes.grants import TICK, read_grants
from tests.fakes.nvml_world import FakeGrant

if TYPE_CHECKING:
    from pathlib import Path

    from otel_gpu_cgroup.model import GpuSnapshot
    from tests.conftest import LoadedDriver

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
SECOND = 1_000_000
WALL, BOOT = 1_800_000_000, 500_000
"""Seconds since 1970 and since boot at the first pass."""
MOST_CALLS = 20
PROCESSES = (
    FakeProcess(pid=11, memory=GIB),
    FakeProcess(pid=12, memory=None),
    FakeProcess(pid=11, memory=2 * GIB, kind="graphics"),
    FakeProcess(pid=13, memory=5, kind="mps"),
    FakeProcess(pid=13, memory=5),
    FakeProcess(pid=0, memory=5),
    FakeProcess(pid=4294967295, memory=5),
    FakeProcess(pid=14, memory=2**63),
)
KINDS: tuple[Literal["graphics", "mps"], ...] = ("graphics", "mps")
OLD = ((60 * SECOND, 50),)
COMPUTE, GRAPHICS, MPS = (f"nvmlDeviceGet{kind}RunningProcesses*" for kind in ("Compute", "Graphics", "MPSCompute"))
USE = "nvmlDeviceGetProcessUtilization"


@dataclass
class Host:
    """One host whose clocks stand at so many microseconds after the first pass."""

    driver: LoadedDriver
    at: int = 0

    def __post_init__(self) -> None:
        nvml = PyNvml(self.driver.library)
        nvml.start()
        self.reader = SnapshotReader(nvml, self)

    def monotonic(self) -> float:
        return self.at / SECOND

    def instant(self) -> Instant:
        return Instant(WALL + self.at / SECOND, BOOT + self.at / SECOND)

    def look(self, at: float, *gpus: FakeGpu, **world: Any) -> GpuSnapshot:
        self.at = round(at * SECOND)
        self.driver.set(World(gpus=gpus, now=(WALL * SECOND + self.at, BOOT * SECOND + self.at), **world))
        return self.reader.read()


@pytest.fixture
def host(driver: LoadedDriver) -> Host:
    return Host(driver)


def gpu(uuid: GpuUuid = A, **differences: Any) -> FakeGpu:
    described: dict[str, Any] = {"minor": 0 if uuid == A else 1, "memory": FakeMemory(total=80 * GIB, used=5 * GIB)}
    return FakeGpu(uuid=uuid, **(described | differences))


def test_every_process_is_in_the_reading_once(host: Host) -> None:
    snapshot = host.look(0, gpu(processes=PROCESSES, shares=(FakeShare(pid=11, sm=40),)))
    [eleven, *others] = snapshot.readings[A].processes or ()
    assert (eleven.pid, eleven.memory, eleven.utilization) == (11, 2 * GIB, 0.4)
    assert eleven.sampled_at == pytest.approx(BOOT, abs=TICK / SECOND)
    assert others == [GpuProcess(12, None, 0.0), GpuProcess(13, 5, None), GpuProcess(14, None, 0.0)]
    assert (snapshot.readings[A].covered, snapshot.booted_at) == (None, BOOT)
    assert not snapshot.problems


def test_the_time_of_a_pass_is_its_beginning_since_boot(driver: LoadedDriver) -> None:
    driver.set(World(gpus=(gpu(),)))
    nvml, clock = PyNvml(driver.library), SystemClock()
    nvml.start()
    before, snapshot, after = clock.instant().boot, SnapshotReader(nvml, clock).read(), clock.instant().boot
    assert before <= snapshot.booted_at <= after


@pytest.mark.parametrize("missing", [GRAPHICS, MPS])
def test_a_list_that_the_gpu_does_not_have_leaves_the_others(host: Host, missing: str) -> None:
    reading = host.look(0, gpu(processes=PROCESSES, unsupported=(missing,))).readings[A]
    memory = {process.pid: process.memory for process in reading.processes or ()}
    assert memory == {11: GIB if missing == GRAPHICS else 2 * GIB, 12: None, 13: 5, 14: None}


def test_without_a_list_of_compute_processes_nobody_knows_who_runs(host: Host) -> None:
    for at in (0, 15):
        snapshot = host.look(at, gpu(processes=PROCESSES, unsupported=(COMPUTE,)))
        reading = snapshot.readings[A]
        assert (reading.processes, reading.covered, reading.memory_used) == (None, None, 5 * GIB)
        assert not snapshot.problems


@pytest.mark.parametrize("failing", [COMPUTE, GRAPHICS, MPS])
def test_a_list_that_fails_is_a_problem_and_the_rest_of_the_reading_stays(host: Host, failing: str) -> None:
    well = gpu(processes=PROCESSES, samples=Steady((60,)))
    host.look(0, well)
    snapshot = host.look(15, gpu(processes=PROCESSES, samples=Steady((60,)), errors={failing: 999}))
    assert snapshot.readings[A] == GpuReading(80 * GIB, 5 * GIB, 60.0, 0.6)
    assert [problem.subject for problem in snapshot.problems] == [A]
    reading = host.look(30, well).readings[A]
    assert len(reading.processes or ()) == 4
    assert reading.covered == 15


@pytest.mark.parametrize("failing", [COMPUTE, GRAPHICS, MPS, USE])
def test_a_gpu_that_is_lost_amid_a_pass_has_no_reading_and_the_others_go_on(host: Host, failing: str) -> None:
    other = gpu(B, processes=(FakeProcess(pid=21, memory=GIB),))
    snapshot = host.look(0, gpu(processes=PROCESSES, errors={failing: 15}), other)
    assert snapshot.readings[A] == GpuReading()
    assert snapshot.readings[B].processes == (GpuProcess(21, GIB, 0.0),)
    assert {(problem.subject, problem.message) for problem in snapshot.problems} == {(A, "GPU is lost")}


@pytest.mark.parametrize(("code", "problems"), [(3, 0), (13, 0), (999, 1)])
def test_use_that_is_not_told_costs_nothing_but_itself(host: Host, code: int, problems: int) -> None:
    only = (FakeProcess(pid=11, memory=GIB),)
    for at in (0, 15):
        snapshot = host.look(at, gpu(processes=only, errors={USE: code}))
        reading = snapshot.readings[A]
        assert (reading.processes, reading.covered) == ((GpuProcess(11, GIB),), None)
        assert len(snapshot.problems) == problems
    assert host.driver.counts()[USE] > 0


def test_use_that_is_not_supported_is_asked_for_once(host: Host) -> None:
    before = host.driver.counts()[USE]
    for at in (0, 15, 30):
        host.look(at, gpu(unsupported=(USE,)))
    assert host.driver.counts()[USE] - before == 1


@pytest.mark.parametrize(
    ("samples", "covered"),
    [(Steady((60,)), 15), (Recorded(), 15), (Recorded(((8 * SECOND, 60), (SECOND, 60))), 8)],
    ids=["kept", "dry", "a part"],
)
def test_covered_is_what_the_driver_keeps_of_the_time_since_the_previous_pass(
    host: Host, samples: Steady | Recorded, covered: float
) -> None:
    host.look(0, gpu(samples=samples))
    assert host.look(15, gpu(samples=samples)).readings[A].covered == pytest.approx(covered)


def test_what_was_remembered_outlives_a_gpu_that_did_not_answer(host: Host) -> None:
    busy = gpu(processes=(FakeProcess(pid=11),), shares=(FakeShare(pid=11, sm=40),))
    host.look(0, busy, gpu(B))
    host.look(15, busy, gpu(B, errors={"*": 15}))
    reading = host.look(30, busy, gpu(B, errors={"*": 15})).readings[A]
    assert reading.covered == 15
    assert [process.utilization for process in reading.processes or ()] == [0.4]


@pytest.mark.parametrize("clock", ["epoch", "boottime"])
@pytest.mark.parametrize("interval", [4, 15])
def test_the_use_of_processes_adds_up_to_what_the_driver_granted(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Literal["epoch", "boottime"], interval: int
) -> None:
    monkeypatch.setenv("FAKE_NVML_GRANTS", str(tmp_path / "grants"))
    grants = tuple(
        FakeGrant(pid=pid, sm=percent, start=(BOOT + start) * SECOND, end=(BOOT + end) * SECOND)
        for pid, percent, start, end in ((11, 50, 33, 70), (12, 30, 5, 47), (12, 20, 90, 91), (13, 1, 0, 120))
    )
    processes = tuple(FakeProcess(pid=pid) for pid in (11, 12, 13, 14))
    used = dict.fromkeys((11, 12, 13, 14), 0.0)
    for at in range(0, 121, interval):
        reading = host.look(at, gpu(processes=processes, grants=grants, clock=clock)).readings[A]
        for process in reading.processes or ():
            used[process.pid] += (process.utilization or 0) * (reading.covered or 0)
    log = read_grants(tmp_path / "grants")
    granted = {pid: sum(it.seconds(BOOT * SECOND, 2**62) for it in log if it.pid == pid) for pid in used}
    # the driver's percents are whole numbers, and its ticks do not end when a pass begins
    tolerance = 120 * 0.005 + TICK / SECOND
    assert used == pytest.approx(granted, abs=tolerance)
    assert used[14] == 0


def test_calls_do_not_grow_with_processes_and_stay_within_the_budget(host: Host) -> None:
    counted = []
    for each in (1, 32):
        gpus = tuple(replace(it, samples=Recorded(OLD), processes=_in_every_list(it)) for it in _gpus(each))
        for at in (0, 15):
            host.look(at, *gpus)
        before = _calls(host)
        host.look(30, *gpus)
        counted.append(_calls(host) - before)
    # driver version and count; for each GPU its MIG mode, memory and rate, and one call for the size and one for what
    # is asked: samples, three lists and the use of processes
    assert counted == [2 + 8 * (3 + 2 * 5)] * 2
    assert counted[0] <= 8 * MOST_CALLS


def _gpus(processes_each: int) -> tuple[FakeGpu, ...]:
    return uniform_gpus(8, processes_each=processes_each)


def _in_every_list(gpu: FakeGpu) -> tuple[FakeProcess, ...]:
    others = (replace(process, kind=kind) for kind in KINDS for process in gpu.processes)
    return (*gpu.processes, *others)


def _calls(host: Host) -> int:
    return sum(count for name, count in host.driver.counts().items() if name.startswith("nvml"))
