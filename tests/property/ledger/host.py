# SPDX-License-Identifier: Apache-2.0
"""Plays a schedule: the C fake below real pynvml tells what the schedule says, and the product looks at it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.ledger import Ledger
from otel_gpu_cgroup.model import (
    AcceleratorStats,
    AccessClass,
    CgroupPath,
    Container,
    ContainerReport,
    DeviceInventory,
    GpuSnapshot,
    GpuUuid,
    Pod,
    PolicySource,
    Runtime,
)
from otel_gpu_cgroup.nvidia.nvml import PyNvml
from otel_gpu_cgroup.nvidia.readings.duty_cycle import Instant
from otel_gpu_cgroup.nvidia.readings.snapshot import SnapshotReader
from otel_gpu_cgroup.nvidia.share import Shares, own_shares
from otel_gpu_cgroup.reports import gpu_reports
from otel_gpu_cgroup.worker import Worker
from tests.fakes.fake_nvml import GIB, FakeError, FakeGpu, FakeMemory, FakeProcess, Steady, World
from tests.property.ledger.schedule import GPUS, SECOND, Gap, Life, Schedule, Step, Trouble
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_gpu_cgroup.containers.processes.table import ProcessTable
    from otel_gpu_cgroup.model import Account, GpuReading, HeldTime, RowKey
    from tests.conftest import LoadedDriver
    from tests.property.ledger.proc import ProcTree

MODEL: Final = "NVIDIA H100 80GB HBM3"
TOTAL: Final = 1000 * GIB
_WALL: Final = 1_790_000_000 * SECOND
_HISTORY: Final = 40 * SECOND
"""Of grants that the driver's world holds; it keeps samples of less."""
_PATIENCE: Final = 0.02
"""Seconds; a GPU that hangs does so until the schedule says otherwise."""
_ERRORS: Final[Mapping[Trouble, Mapping[str, int | FakeError]]] = {
    Trouble.LOST: {"*": 15},
    Trouble.LISTS: {"nvmlDeviceGet*RunningProcesses*": 999},
    Trouble.SAMPLES: {"nvmlDeviceGetProcessUtilization": 999},
    Trouble.MEMORY: {"nvmlDeviceGetMemoryInfo*": 999},
    Trouble.HANG: {},
}


class StoppedClock:
    """The product's clock, which stands where the schedule is."""

    at = 0

    def monotonic(self) -> float:
        return self.at / SECOND

    def instant(self) -> Instant:
        return Instant((_WALL + self.at) / SECOND, self.at / SECOND)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the product made of one step."""

    step: Step
    readings: Mapping[GpuUuid, GpuReading]
    reports: tuple[ContainerReport, ...]
    lives: tuple[Life, ...]
    """Those of the reports, in their order."""
    rest: Mapping[str, int | None]
    """Unattributed bytes by GPU."""
    excesses: frozenset[str]
    """GPUs of which it says that their processes hold more than is in use."""
    held: Mapping[RowKey, HeldTime]
    usage: Mapping[Account, HeldTime]


@dataclass(slots=True)
class PlayedHost:
    """One host with the product on it."""

    schedule: Schedule
    driver: LoadedDriver
    proc: ProcTree
    table: ProcessTable
    clock: StoppedClock = field(default_factory=StoppedClock)
    ledger: Ledger = field(default_factory=Ledger)
    worker: Worker[GpuSnapshot] = field(default_factory=lambda: Worker("test-ledger-nvml"))

    def play(self) -> list[Seen]:
        first = self.schedule.steps[0]
        self.clock.at = first.at
        self.driver.set(self._world(first, is_well=True, at=first.at - _HISTORY))  # the log begins here
        nvml = PyNvml(self.driver.library)
        nvml.start()
        reader = SnapshotReader(nvml, self.clock)
        try:
            return [self._play(step, reader) for step in self.schedule.steps]
        finally:
            self._let_go(self.schedule.steps[-1])
            nvml.stop()

    def _play(self, step: Step, reader: SnapshotReader) -> Seen:
        self._let_go(step)
        self.clock.at = step.at
        self.driver.set(self._world(step))
        is_hanging = Trouble.HANG in step.troubles.values()
        snapshot = None if step.is_silent else self.worker.ask(reader.read, _PATIENCE if is_hanging else 30)
        readings = {} if snapshot is None else snapshot.readings
        lives = tuple(life for life in self.schedule.lives if life.is_there(step.at))
        containers = [_container(life, step.at) for life in lives]
        self.proc.set(step)
        inventory = DeviceInventory() if snapshot is None else _inventory(snapshot)
        ownership = self.table.attribute(inventory, containers)
        shares = own_shares(readings, ownership)
        reports = tuple(_report(life, it, step.at, shares) for life, it in zip(lives, containers, strict=True))
        gpus, excesses = gpu_reports(inventory, reports, ownership, discovered=True, complete=True)
        self.ledger.credit(step.at / SECOND, reports, readings)
        return Seen(
            step,
            readings,
            reports,
            lives,
            {report.gpu.uuid: report.unattributed for report in gpus if report.gpu.uuid is not None},
            frozenset(problem.subject for problem in excesses),
            self.ledger.held,
            self.ledger.usage,
        )

    def _let_go(self, step: Step) -> None:
        """End a hang where the clock still stands; what the late pass brings is of no use to anybody."""
        if self.worker.busy:
            self.driver.set(self._world(step, is_well=True, at=self.clock.at))
            eventually(lambda: not self.worker.busy)

    def _world(self, step: Step, *, is_well: bool = False, at: int | None = None) -> World:
        at = step.at if at is None else at
        troubles = {} if is_well else step.troubles
        gpus = tuple(self._gpu(gpu, minor, step, at, troubles.get(gpu)) for minor, gpu in enumerate(GPUS))
        return World(gpus=gpus, now=(_WALL + at, at))

    def _gpu(self, gpu: str, minor: int, step: Step, at: int, trouble: Trouble | None) -> FakeGpu:
        there = [work for work in self.schedule.works if work.gpu == gpu and work.is_there(at)]
        return FakeGpu(
            uuid=gpu,
            minor=minor,
            name=MODEL,
            memory=FakeMemory(total=TOTAL, used=self.used(gpu, step, at)),
            samples=Steady((50,)),
            clock=self.schedule.clock[gpu],
            processes=tuple(
                FakeProcess(pid=work.pid, memory=work.memory, kind=kind) for work in there for kind in work.kinds
            ),
            grants=tuple(
                grant
                for work in self.schedule.works
                if work.gpu == gpu
                for grant in work.grants
                if grant.end > at - _HISTORY and grant.start < at
            ),
            lag=self.schedule.lag[gpu],
            errors={} if trouble is None else _ERRORS[trouble],
            hangs=("nvmlDeviceGetMemoryInfo*",) if trouble is Trouble.HANG else (),
        )

    def used(self, gpu: str, step: Step, at: int) -> int:
        """Bytes in use on the device, which the fake is told."""
        there = [work for work in self.schedule.works if work.gpu == gpu and work.is_there(at)]
        return max(0, sum(work.memory or 0 for work in there) + step.rest[gpu])


def _inventory(snapshot: GpuSnapshot) -> DeviceInventory:
    return DeviceInventory(snapshot.gpus, snapshot.readings, booted_at=snapshot.booted_at)


def _container(life: Life, at: int) -> Container:
    is_named = at >= life.named_from
    pod = Pod(life.key, namespace=life.namespace if is_named else None) if life.namespace else None
    path = CgroupPath(f"/{life.key}")
    return Container(path, Runtime.CONTAINERD, life.key, pod=pod, inode=life.inode, is_named=is_named)


def _report(life: Life, container: Container, at: int, shares: Shares) -> ContainerReport:
    rows = tuple(_row(life, GpuUuid(gpu), at, shares) for gpu in life.gpus if life.gap(gpu, at) is not Gap.DENIED)
    return ContainerReport(container, AccessClass.EXPLICIT, PolicySource.DEVICES_LIST, rows)


def _row(life: Life, gpu: GpuUuid, at: int, shares: Shares) -> AcceleratorStats:
    lost = life.gap(gpu, at) is Gap.LOST
    own = None if lost else shares.of(life.key, gpu)
    return AcceleratorStats("nvidia", MODEL, gpu, None, None, None, own=own, lost=lost)
