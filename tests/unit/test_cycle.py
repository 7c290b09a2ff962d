# SPDX-License-Identifier: Apache-2.0
"""The cycle over the simulated host's files, which the test changes as a kernel would."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.cgroup.reader import PolicyReader
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import AccessClass, CgroupMode, Container, ContainerReport, GpuUuid, NodeStats, RowKey, Stage
from otel_gpu_cgroup.nvidia.manager import NvidiaManager
from otel_gpu_cgroup.settings import Unrestricted
from otel_gpu_cgroup.simulate.containers import CONTAINERS, SimulatedContainer
from otel_gpu_cgroup.simulate.machine import GPUS
from otel_gpu_cgroup.simulate.nvml import SimulatedNvml
from otel_gpu_cgroup.simulate.tree import devices_list, write_tree
from tests.support.wiring import new_cycle, new_lost_watch

if TYPE_CHECKING:
    from pathlib import Path

    from otel_gpu_cgroup.nvidia.collector import NvidiaCollector

NOW = 1_790_000_000.0
SHARED = [container for container in CONTAINERS if container.minors == (4,)]
TRAINER = next(container for container in CONTAINERS if container.minors == (0, 1))
PRIVILEGED = next(container for container in CONTAINERS if container.privileged)
EMPTY = next(container for container in CONTAINERS if not container.minors and not container.privileged)


class Host:
    """The simulated host in a folder, looked at by the real code."""

    def __init__(self, root: Path, *, unrestricted: Unrestricted = Unrestricted.USING) -> None:
        self.root = root
        write_tree(root, "v1")
        paths = HostPaths(root)
        manager = NvidiaManager(
            paths, SimulatedNvml(lambda: NOW), PolicyReader(), new_lost_watch(paths), unrestricted=unrestricted
        )
        self.excluded: set[str] = set()
        self.cycle = new_cycle(paths, manager, lambda container: container.key in self.excluded)

    def rules(self, container: SimulatedContainer) -> Path:
        return devices_list(self.root, container.path("v1"))

    def report(self, container: SimulatedContainer) -> ContainerReport:
        return find(self.cycle.collect(), container)


def find(stats: NodeStats, container: SimulatedContainer) -> ContainerReport:
    [report] = [report for report in stats.containers if report.container.cgroup == container.path("v1")]
    return report


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def uuids(*minors: int) -> list[str]:
    by_minor = {gpu.minor: gpu.uuid for gpu in GPUS}
    return [by_minor[minor] for minor in minors]


def usable(container: SimulatedContainer) -> list[str]:
    """What it has rows for: the GPUs that it was given, and of a partitioned one its instance."""
    instances = [
        instance.uuid
        for gpu in GPUS
        for instance in gpu.instances
        if gpu.minor in container.minors and set(instance.capabilities(gpu.minor)) <= set(container.capabilities)
    ]
    return [*uuids(*(minor for minor in container.minors if not partitioned(minor))), *instances]


def partitioned(minor: int) -> bool:
    return any(gpu.instances for gpu in GPUS if gpu.minor == minor)


def test_every_container_gets_the_gpus_that_its_rules_name(host: Host) -> None:
    stats = host.cycle.collect()
    assert stats.cgroup_mode is CgroupMode.V1
    assert not stats.problems
    works = (Stage.DISCOVERY, Stage.POLICY, Stage.NVML, Stage.SHARE, Stage.NAMES)
    assert stats.up == dict.fromkeys(works, True)
    found = {
        report.container.cgroup: [row.id for row in report.accelerators if not row.lost] for report in stats.containers
    }
    given = {one.path("v1"): [] if one.is_lost else usable(one) for one in CONTAINERS}
    assert found == given


def test_a_gpu_knows_who_may_open_it(host: Host) -> None:
    holders = {
        (report.gpu.minor, report.gpu.instance and report.gpu.instance.gpu_instance): len(report.containers)
        for report in host.cycle.collect().gpus
    }
    whole: dict[tuple[int, int | None], int] = {
        (minor, None): count for minor, count in enumerate((1, 1, 1, 1, 2, 2, 0, 0))
    }
    assert holders == {**whole, (4, None): 2, (5, None): 2, (6, None): 0, (7, None): 0, (5, 2): 1, (5, 3): 1, (5, 9): 0}


def test_values_are_those_of_the_gpu_with_that_minor(host: Host) -> None:
    by_uuid = {gpu.uuid: gpu for gpu in GPUS}
    for row in host.report(TRAINER).accelerators:
        assert row.memory_used == by_uuid[row.id].memory_used(NOW)
        assert row.own is not None
        assert 0 < (row.own.memory or 0) <= row.memory_used


def test_rw_changed_to_m_takes_the_row_away(host: Host) -> None:
    rules = host.rules(SHARED[0])
    assert len(host.report(SHARED[0]).accelerators) == 1
    rules.write_text(rules.read_text().replace("c 195:4 rw", "c 195:4 m"))
    stats = host.cycle.collect()
    assert find(stats, SHARED[0]).accelerators == ()
    assert find(stats, SHARED[0]).access is AccessClass.NONE
    assert len(find(stats, SHARED[1]).accelerators) == 1


def test_rules_that_are_written_after_the_container_appeared_are_seen(host: Host) -> None:
    assert host.report(EMPTY).accelerators == ()
    with host.rules(EMPTY).open("a") as rules:
        rules.write("c 195:7 rw\n")
    assert [row.id for row in host.report(EMPTY).accelerators] == uuids(7)


@pytest.mark.parametrize(
    ("unrestricted", "rows"), [(Unrestricted.ALL, 10), (Unrestricted.USING, 0), (Unrestricted.NONE, 0)]
)
def test_an_unrestricted_container_gets_rows_only_where_that_is_asked_for(
    tmp_path: Path, unrestricted: Unrestricted, rows: int
) -> None:
    report = Host(tmp_path, unrestricted=unrestricted).report(PRIVILEGED)
    assert report.access is AccessClass.UNRESTRICTED
    assert len(report.accelerators) == rows


def test_one_malformed_list_costs_no_other_container_anything(host: Host) -> None:
    host.rules(SHARED[0]).write_text("c 195:4 rw\nnonsense\n")
    stats = host.cycle.collect()
    assert find(stats, SHARED[0]).access is AccessClass.UNKNOWN
    assert len(find(stats, SHARED[1]).accelerators) == 1
    [problem] = stats.problems
    assert (problem.stage, problem.subject) == (Stage.POLICY, SHARED[0].cgroup)
    assert "nonsense" in problem.message


def test_a_container_that_ends_is_gone_without_a_problem(host: Host) -> None:
    host.cycle.collect()
    shutil.rmtree(host.rules(EMPTY).parent)
    stats = host.cycle.collect()
    assert EMPTY.cgroup not in {report.container.cgroup for report in stats.containers}
    assert not stats.problems


def test_a_container_that_ends_between_the_walk_and_the_read_is_left_out(host: Host) -> None:
    host.rules(EMPTY).unlink()  # as a cgroup that is removed while it is looked at
    stats = host.cycle.collect()
    assert EMPTY.cgroup not in {report.container.cgroup for report in stats.containers}
    assert not stats.problems


def test_an_excluded_container_stays_in_the_count_and_has_no_row(host: Host) -> None:
    key = host.report(SHARED[0]).container.key
    host.excluded.add(key)
    stats = host.cycle.collect()
    assert find(stats, SHARED[0]) == ContainerReport(
        find(stats, SHARED[0]).container, AccessClass.EXCLUDED, find(stats, SHARED[0]).source
    )
    assert {report.gpu.minor: len(report.containers) for report in stats.gpus}[4] == 1
    assert find(stats, SHARED[1]).accelerators[0].own is not None


def test_two_cgroups_with_one_id_are_one_container(host: Host) -> None:
    key = host.report(SHARED[1]).container.key
    twin = host.root / "sys/fs/cgroup/devices/z" / f"docker-{key}.scope"
    twin.mkdir(parents=True)
    (twin / "devices.list").write_text("c 195:7 rw\n")
    stats = host.cycle.collect()
    assert sum(report.container.key == key for report in stats.containers) == 1
    [problem] = stats.problems
    assert problem.stage is Stage.DISCOVERY


def test_a_host_without_cgroups_is_a_problem_and_still_tells_its_gpus(host: Host) -> None:
    (host.root / "proc/1/mountinfo").write_text("22 1 0:21 / /proc rw - proc proc rw\n")
    stats = host.cycle.collect()
    assert stats.cgroup_mode is None
    assert stats.up[Stage.DISCOVERY] is False
    assert [problem.stage for problem in stats.problems] == [Stage.DISCOVERY]
    assert len({report.gpu.minor for report in stats.gpus}) == 8
    assert {report.unattributed for report in stats.gpus} == {None}


def test_what_nobody_foresaw_costs_one_container_and_is_told(tmp_path: Path) -> None:
    host = Host(tmp_path)

    class Faulty(NvidiaManager):
        def get_collector(self, container: Container) -> NvidiaCollector:
            if container.cgroup == TRAINER.cgroup:
                raise RuntimeError("a defect")
            return super().get_collector(container)

    paths = HostPaths(tmp_path)
    manager = Faulty(paths, SimulatedNvml(lambda: NOW), PolicyReader(), new_lost_watch(paths))
    stats = new_cycle(paths, manager).collect()
    assert find(stats, TRAINER).access is AccessClass.UNKNOWN
    assert len(find(stats, SHARED[0]).accelerators) == 1
    assert [(problem.stage, problem.subject) for problem in stats.problems] == [(Stage.CYCLE, TRAINER.cgroup)]
    assert len(host.cycle.collect().problems) == 0


def test_a_cycle_without_cgroups_ends_no_rows(host: Host) -> None:
    key = RowKey(host.report(TRAINER).container.key, GpuUuid(uuids(0)[0]))
    before = host.cycle.collect().held[key]
    mounts = host.root / "proc/1/mountinfo"
    text = mounts.read_text()
    mounts.unlink()
    shutil.move(host.root / "sys/fs/cgroup/devices", host.root / "away")
    blind = host.cycle.collect()
    assert (blind.is_blind, blind.held) == (True, {})
    shutil.move(host.root / "away", host.root / "sys/fs/cgroup/devices")
    mounts.write_text(text)
    after = host.cycle.collect().held[key]
    assert after.active + after.idle + after.unknown > before.active + before.idle + before.unknown


def test_a_cycle_that_finds_nothing_but_units_without_gpus_and_cannot_look_everywhere_ends_no_rows(host: Host) -> None:
    """What speaks of containers, the ledger and who makes their series, must agree on when they ended."""
    key = RowKey(host.report(TRAINER).container.key, GpuUuid(uuids(0)[0]))
    before = host.cycle.collect().held[key]
    devices = host.root / "sys/fs/cgroup/devices"
    shutil.move(devices, host.root / "away")
    unit = devices / "system.slice/ssh.service"
    unit.mkdir(parents=True)
    (unit / "devices.list").write_text("a *:* rwm\n")
    make_unreadable(devices / "unreadable")
    blind = host.cycle.collect()
    assert [problem.stage for problem in blind.problems] == [Stage.DISCOVERY]
    assert (blind.is_blind, blind.held) == (True, {})
    shutil.rmtree(devices)
    shutil.move(host.root / "away", devices)
    after = host.cycle.collect().held[key]
    assert after.active + after.idle + after.unknown > before.active + before.idle + before.unknown


def make_unreadable(folder: Path) -> None:
    """For root, too: a folder in it has a path that is longer than the kernel takes."""
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(17):
        os.mkdir("x" * 250, dir_fd=descriptor)
        inner = os.open("x" * 250, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)


def test_no_cgroup_inside_a_container_takes_the_id_of_another(host: Host) -> None:
    """A container may make cgroups below its own, and give them any name."""
    victim = host.report(SHARED[1])
    inside = host.rules(EMPTY).parent / f"docker-{victim.container.id}.scope"  # its path comes first
    inside.mkdir()
    (inside / "devices.list").write_text("")
    stats = host.cycle.collect()
    assert find(stats, SHARED[1]).accelerators == host.report(SHARED[1]).accelerators != ()
    assert [problem.subject for problem in stats.problems] == [f"{EMPTY.cgroup}/docker-{victim.container.id}.scope"]
