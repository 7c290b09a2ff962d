# SPDX-License-Identifier: Apache-2.0
"""Whose the processes on the GPUs are, cycle after cycle, on hosts made of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.containers.processes.table import MOST_CYCLES
from otel_gpu_cgroup.model import CgroupPath, Container, Runtime
from tests.support.process_host import (
    BOTH,
    LISTED_AT,
    ONE,
    STAT,
    TWO,
    Host,
    OneLife,
    Source,
    container,
    inventory,
    keys,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_each_process_is_the_innermost_containers(host: Host) -> None:
    paths = {
        11: "/docker/one",
        12: "/docker/one/init.scope/a",
        13: "/docker/one/docker/inner",
        14: "/docker/one/docker/inner/payload",
        15: "/docker/two",
        16: "/docker/twofold",
        17: "/",
    }
    for pid, path in paths.items():
        host.run(pid, path)
    ownership = host.table().attribute(inventory(*paths), BOTH)
    assert keys(ownership) == {11: "one", 12: "one", 13: "inner", 14: "inner", 15: "two", 16: None, 17: None}
    assert (ownership.is_told, ownership.are_samples_told, ownership.problems) == (True, True, ())


def test_the_start_is_told_in_seconds(host: Host) -> None:
    host.run(11, "/docker/one", ticks=4321)
    assert host.table().attribute(inventory(11), BOTH).owners[11].started_at == 43.21


def test_without_v1_the_line_of_cgroup2_counts(host: Host) -> None:
    host.run(11, "/docker/two", line="5:devices:/docker/one\n0:")
    v2 = [container("/docker/one", is_v1=False), container("/docker/two", is_v1=False)]
    assert keys(host.table().attribute(inventory(11), v2)) == {11: "two"}
    assert keys(host.table().attribute(inventory(11), BOTH)) == {11: "one"}


def test_a_unit_is_a_container(host: Host) -> None:
    unit = Container(CgroupPath("/system.slice/ollama.service"), Runtime.SYSTEMD, devices="/x")
    host.run(11, unit.cgroup)
    assert keys(host.table().attribute(inventory(11), [unit])) == {11: unit.cgroup}


def test_without_containers_every_process_is_nobodys(host: Host) -> None:
    host.run(11, "/docker/one")
    assert keys(host.table().attribute(inventory(11), [])) == {11: None}


def test_a_process_that_began_after_the_list_is_another_one(host: Host) -> None:
    host.run(11, "/docker/one", ticks=9999)
    host.run(12, "/docker/one", ticks=10001)  # within a tick
    host.run(13, "/docker/one", ticks=10003)
    table = host.table()
    assert sorted(table.attribute(inventory(11, 12, 13), BOTH).owners) == [11, 12]
    assert sorted(table.attribute(inventory(11, 12, 13, listed_at=LISTED_AT + 1), BOTH).owners) == [11, 12, 13]


def test_a_pid_that_is_used_again_is_read_again(host: Host) -> None:
    table = host.table()
    host.run(11, "/docker/one", ticks=100)
    assert keys(table.attribute(inventory(11), BOTH)) == {11: "one"}
    host.run(11, "/docker/two", ticks=5000)
    ownership = table.attribute(inventory(11), BOTH)
    assert (ownership.owners[11].container, ownership.owners[11].started_at) == ("two", 50.0)


def test_a_process_that_has_ended_is_left_out_and_forgotten(host: Host) -> None:
    table = host.table()
    host.run(11, "/docker/one")
    table.attribute(inventory(11), BOTH)
    host.end(11)
    ownership = table.attribute(inventory(11), BOTH)
    assert (ownership.owners, ownership.problems) == ({}, ())


def test_a_move_is_noticed_in_so_many_cycles(host: Host) -> None:
    for phase in range(MOST_CYCLES):
        table = host.table()
        host.run(11, "/docker/one")
        for _ in range(phase + 1):
            assert keys(table.attribute(inventory(11), BOTH)) == {11: "one"}
        host.move(11, "/docker/two")
        seen = [keys(table.attribute(inventory(11), BOTH))[11] for _ in range(MOST_CYCLES)]
        assert seen[-1] == "two"
        assert seen == ["one"] * seen.count("one") + ["two"] * seen.count("two")


@pytest.mark.parametrize(
    "now",
    [
        [TWO],  # its container has ended
        [*BOTH, container("/docker/one/deeper")],  # a container has come where it was
        [container("/docker/one", inode=2), TWO],  # another one of that name
    ],
    ids=["ended", "deeper", "renewed"],
)
def test_a_move_is_noticed_at_once_where_containers_changed(host: Host, now: list[Container]) -> None:
    table = host.table()
    host.run(11, "/docker/one/deeper")
    assert keys(table.attribute(inventory(11), BOTH)) == {11: "one"}
    host.move(11, "/docker/two")
    assert keys(table.attribute(inventory(11), now)) == {11: "two"}


def test_a_container_that_comes_later_gets_the_processes_in_it(host: Host) -> None:
    table = host.table()
    host.run(11, "/docker/one/docker/inner")
    assert keys(table.attribute(inventory(11), [ONE])) == {11: "one"}
    assert keys(table.attribute(inventory(11), BOTH)) == {11: "inner"}
    assert keys(table.attribute(inventory(11), [ONE])) == {11: "one"}


def test_a_host_that_changes_its_hierarchy_is_read_anew(host: Host) -> None:
    table = host.table()
    host.run(11, "/docker/two", line="5:devices:/docker/one\n0:")
    assert keys(table.attribute(inventory(11), BOTH)) == {11: "one"}
    same = [container(it.cgroup, is_v1=False) for it in BOTH]
    assert keys(table.attribute(inventory(11), same)) == {11: "two"}


def test_a_process_that_ends_stays_where_it_was(host: Host) -> None:
    """The kernel shows it in the root of every v1 hierarchy from then on."""
    table = host.table(OneLife(host.files()))
    host.run(11, "/docker/one")
    table.attribute(inventory(11), BOTH)
    (host.root / "proc/11/stat").write_text(STAT.format(pid=11, name="python", flags=4, ticks=1000))
    host.move(11, "/")
    assert [keys(table.attribute(inventory(11), BOTH)) for _ in range(2 * MOST_CYCLES)] == [{11: "one"}] * 16
    (host.root / "proc/11/stat").write_text(STAT.format(pid=11, name="python", flags=0, ticks=1000))
    assert {keys(table.attribute(inventory(11), BOTH))[11] for _ in range(MOST_CYCLES)} == {"one", None}  # it moved


def test_one_that_is_met_when_it_ends_is_not_in_the_root(host: Host) -> None:
    root = Container(CgroupPath("/"), Runtime.UNKNOWN, "own")
    host.run(11, "/", flags=4)
    host.run(12, "/")
    assert keys(host.table(own_only=True).attribute(inventory(11, 12), [root])) == {11: None, 12: "own"}


def test_in_the_own_container_only_its_processes_count(host: Host) -> None:
    root = Container(CgroupPath("/"), Runtime.UNKNOWN, "own", devices="/sys/fs/cgroup/devices")
    for pid, path in {11: "/", 12: "/below/it", 13: "/../sibling", 14: "/..", 15: "/../../x/y"}.items():
        host.run(pid, path)
    ownership = host.table(own_only=True).attribute(inventory(11, 12, 13, 14, 15), [root])
    assert keys(ownership) == {11: "own", 12: "own", 13: None, 14: None, 15: None}


def test_the_own_containers_path_may_be_of_either_hierarchy(host: Host) -> None:
    root = Container(CgroupPath("/"), Runtime.UNKNOWN, "own")  # where no hierarchy is mounted
    host.run(11, "/", line="5:devices")
    host.run(12, "/", line="0:")
    host.run(13, "/", line="5:devices:/../x\n0:")
    assert keys(host.table(own_only=True).attribute(inventory(11, 12, 13), [root])) == {11: "own", 12: "own", 13: None}


def test_paths_are_those_of_the_mounted_tree(host: Host) -> None:
    host.mount("/../..")
    for pid, path in {11: "/../../docker/one/x", 12: "/../one", 13: "/../two", 14: "/", 15: "/../../docker"}.items():
        host.run(pid, path)
    ownership = host.table().attribute(inventory(11, 12, 13, 14, 15), BOTH)
    assert keys(ownership) == {11: "one", 12: "one", 13: "two", 14: None, 15: None}


def test_paths_are_those_of_the_mounted_part(host: Host) -> None:
    host.mount("/system.slice/node", "cgroup2 cgroup2 rw")
    host.run(11, "/system.slice/node/docker/one", line="0:")
    host.run(12, "/docker/one", line="0:")
    assert keys(host.table().attribute(inventory(11, 12), [container("/docker/one", is_v1=False)])) == {
        11: "one",
        12: None,
    }


def test_a_warm_cycle_reads_no_file_but_in_turns(host: Host) -> None:
    pids = range(11, 11 + 10 * MOST_CYCLES)
    for pid in pids:
        host.run(pid, "/docker/one")
    source = Source(host.files())
    table = host.table(source)
    counts = []
    for _ in range(MOST_CYCLES + 1):
        source.asked.clear()
        table.attribute(inventory(*pids), BOTH)
        counts.append(dict(source.asked))
    assert counts == [{"cgroup": 80, "stat": 80}] + [{"identify": 80, "cgroup": 10}] * MOST_CYCLES
