# SPDX-License-Identifier: Apache-2.0
"""A host for cAdvisor's cases: its files in a folder, its clock, and a driver whose cards can be made to fail."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.reader import PolicyReader
from otel_gpu_cgroup.errors import NvmlUnavailable, NvmlUnsupported
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import (
    AccessClass,
    CgroupPath,
    Container,
    ContainerStats,
    DeviceInventory,
    Gpu,
    GpuUuid,
    Runtime,
)
from otel_gpu_cgroup.nvidia.manager import NvidiaManager
from otel_gpu_cgroup.nvidia.nvml import ListedProcess, Memory, NvmlInstance, NvmlMeter, ProcessSample
from otel_gpu_cgroup.nvidia.readings.duty_cycle import Instant, Sample
from otel_gpu_cgroup.settings import Unrestricted
from tests.support.wiring import new_lost_watch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NOW: Final = 1_600_000_000.0
"""Seconds since the epoch on the host's clock, which stands still."""
_SECONDS: Final = 30.0


@dataclass
class Card:
    """One GPU as the driver answers for it; a query named in `errors` raises that."""

    minor: int
    uuid: str = ""
    model: str = "Tesla K80"
    total: int = 8 << 30
    used: int = 1 << 30
    samples: tuple[tuple[float, int], ...] = ((0.0, 6),)
    """Age in seconds and percent."""
    rate: int = 0
    errors: Mapping[str, Exception] = field(default_factory=dict)

    @property
    def name(self) -> GpuUuid:
        """Its UUID."""
        return GpuUuid(self.uuid or f"GPU-{self.minor}")

    def identity(self) -> Gpu:
        self._fail("identity")
        return Gpu(self.minor, self.name, self.model)

    def is_partitioned(self) -> bool:
        return False

    def slots(self) -> int:
        return 0

    def instance(self, slot: int) -> NvmlInstance | None:  # noqa: ARG002
        return None

    def meter(self, gpu_instance: int) -> NvmlMeter:
        raise NvmlUnsupported(f"GPU instance {gpu_instance}")

    def memory(self) -> Memory:
        self._fail("memory")
        return Memory(self.total, self.used)

    def utilization_samples(self) -> tuple[Sample, ...]:
        self._fail("samples")
        return tuple(Sample(int((NOW - age) * 1e6), percent) for age, percent in self.samples)

    def utilization_rate(self) -> int:
        self._fail("rate")
        return self.rate

    def processes(self) -> tuple[ListedProcess, ...]:
        return ()

    def process_samples(self, since: int) -> tuple[ProcessSample, ...]:  # noqa: ARG002
        return ()

    def _fail(self, query: str) -> None:
        if query in self.errors:
            raise self.errors[query]


@dataclass
class Driver:
    """NVML as far as the product asks it."""

    cards: list[Card] = field(default_factory=list)
    down: bool = False
    """Whether the library is missing, or the driver not loaded."""
    started: bool = False

    def start(self) -> None:
        self._must_be_up()
        self.started = True

    def stop(self) -> None:
        self.started = False

    def driver_version(self) -> str:
        self._must_be_up()
        return "450.80.02"

    def device_count(self) -> int:
        self._must_be_up()
        return len(self.cards)

    def device(self, index: int) -> Card:
        self._must_be_up()
        return self.cards[index]

    def _must_be_up(self) -> None:
        if self.down:
            raise NvmlUnavailable("libnvidia-ml.so.1: cannot open shared object file")


class StandingClock:
    """Always NOW."""

    def monotonic(self) -> float:
        return 1000.0

    def instant(self) -> Instant:
        return Instant(NOW, 1000.0)


@dataclass(frozen=True)
class Ours:
    """What we make of a container: the GPUs it has rows for, its class, and words of its one problem."""

    minors: list[int]
    access: AccessClass
    problem: str | None = None

    def assert_same(self, found: Ours) -> None:
        """Whether it is what was found; of a problem's message these words alone matter."""
        assert (found.minors, found.access) == (self.minors, self.access)
        assert (found.problem is None) == (self.problem is None), found.problem
        assert (self.problem or "") in (found.problem or "")


class Host:
    """The files of one host, its driver, and the manager that looks at both."""

    def __init__(self, root: Path, *cards: Card, unrestricted: Unrestricted = Unrestricted.USING) -> None:
        self.root = root
        self.driver = Driver(list(cards))
        self.manager = NvidiaManager(
            HostPaths(root),
            self.driver,
            PolicyReader(),
            new_lost_watch(HostPaths(root)),
            unrestricted=unrestricted,
            clock=StandingClock(),
        )

    def plug(self, name: str, vendor: str | None, kind: str | None = "0x030200") -> None:
        """A PCI device with the files that are not None."""
        folder = self.root / "sys/bus/pci/devices" / name
        folder.mkdir(parents=True)
        for file, text in (("vendor", vendor), ("class", kind)):
            if text is not None:
                (folder / file).write_text(f"{text}\n")

    def write_information(self, card: Card) -> None:
        """The file that the driver shows in /proc for as long as it is loaded."""
        folder = self.root / f"proc/driver/nvidia/gpus/0000:{card.minor:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            f"Model: \t\t {card.model}\nGPU UUID: \t {card.name}\nDevice Minor: \t {card.minor}\n"
        )

    def container(self, rules: str) -> Container:
        """The one container of this host, with these rules from now on."""
        folder = self.root / "devices/docker/one"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "devices.list").write_text(rules)
        return self.container_at(str(folder))

    def container_at(self, folder: str) -> Container:
        """A container whose cgroup is said to be in this folder."""
        return Container(CgroupPath("/docker/one"), Runtime.DOCKER, "one", devices=folder)

    def refresh(self) -> DeviceInventory:
        return self.manager.refresh(_SECONDS)

    def stats(self, container: Container | str) -> ContainerStats:
        """What one cycle finds out about a container, or about one with these rules."""
        found = self.container(container) if isinstance(container, str) else container
        stats = ContainerStats(found)
        self.manager.get_collector(found).update_stats(stats)
        return stats

    def ours(self, rules: str) -> Ours:
        """The same in short."""
        stats = self.stats(rules)
        assert len(stats.problems) <= 1, stats.problems
        return Ours(self.minors(stats), stats.access, stats.problems[0].message if stats.problems else None)

    def minors(self, stats: ContainerStats) -> list[int]:
        """The GPUs that the stats have rows for."""
        by_uuid = {card.name: card.minor for card in self.driver.cards}
        return [by_uuid[row.id] for row in stats.accelerators]
