# SPDX-License-Identifier: Apache-2.0
"""What cannot be read of a process, is hidden, or is none of the kernel's, and costs no other process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.containers.processes.table import MOST_CYCLES, ProcessTable
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import DeviceInventory, Stage
from tests.support.process_host import (
    BOTH,
    Host,
    Source,
    inventory,
    keys,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize("pid", [0, -1, -11, 99, 1 << 22, 1 << 31, 1 << 40, 1 << 80])
def test_pids_of_no_process_are_left_out(host: Host, pid: int) -> None:
    host.run(11, "/docker/one")
    ownership = ProcessTable(HostPaths(host.root), is_host=False).attribute(inventory(11, pid), BOTH)
    assert keys(ownership) == {11: "one"}
    assert ownership.problems == ()


@pytest.mark.parametrize("pid", [0, -1, 1 << 22, (1 << 31) - 1, 1 << 31, 1 << 40])
def test_nor_does_the_kernel_know_them(pid: int) -> None:
    ownership = ProcessTable(HostPaths(), own_only=True, is_host=False).attribute(inventory(pid), BOTH)
    assert (ownership.is_told, ownership.owners, ownership.problems) == (True, {}, ())


def test_a_hostile_name_hides_nothing(host: Host) -> None:
    host.run(11, "/docker/one", ticks=555, name="a) R 1 (b) S 1 1 1 0 -1 4 (")
    assert host.table().attribute(inventory(11), BOTH).owners[11].started_at == 5.55


def raise_error(error: OSError) -> None:
    raise error


@pytest.mark.parametrize("cycle", range(3))
@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "No such file"), ProcessLookupError(3, "No such process"), OSError(24, "Too many")]
)
def test_a_read_that_fails_costs_that_process_alone(host: Host, cycle: int, error: OSError) -> None:
    """Whichever it is; in the next cycle nothing is amiss."""
    whole = {pid: "one" if pid % 2 else "two" for pid in range(11, 11 + MOST_CYCLES)}
    for pid, name in whole.items():
        host.run(pid, f"/docker/{name}")
    step = 0
    while True:
        source = Source(host.files(), happen=partial(raise_error, error))
        table = host.table(source)
        for _ in range(cycle):
            table.attribute(inventory(*whole), BOTH)
        source.at = source.asked.total() + step
        ownership = table.attribute(inventory(*whole), BOTH)
        if source.asked.total() <= source.at:
            break
        found = keys(ownership)
        assert len(found) == len(whole) - 1
        assert found.items() <= whole.items()
        assert ownership.is_told
        assert len(ownership.problems) == (error.errno == 24)
        assert keys(table.attribute(inventory(*whole), BOTH)) == whole
        step += 1
    assert step >= len(whole)


@pytest.mark.parametrize("cycle", range(MOST_CYCLES + 1))
def test_whenever_a_pid_is_used_again_who_has_it_then_is_not_who_was_listed(host: Host, cycle: int) -> None:
    for step in range(5):
        host.run(11, "/docker/one", ticks=100)
        again = partial(host.run, 11, "/docker/two", ticks=20_000)
        source = Source(host.files(), happen=again)
        table = host.table(source)
        for _ in range(cycle):
            assert keys(table.attribute(inventory(11), BOTH)) == {11: "one"}
        source.at = source.asked.total() + step
        ownership = table.attribute(inventory(11), BOTH)
        assert keys(ownership) in ({}, {11: "one"})
        assert ownership.problems == ()
        if source.asked.total() > source.at:
            assert keys(table.attribute(inventory(11, listed_at=300.0), BOTH)) == {11: "two"}


def test_most_processes_hidden_is_nothing_told(host: Host) -> None:
    source = Source(host.files())
    source.hidden = frozenset({12, 13})
    host.run(11, "/docker/one")
    ownership = host.table(source).attribute(inventory(11, 12, 13, 14), BOTH)
    assert (ownership.is_told, ownership.are_samples_told, ownership.owners) == (False, False, {})
    [problem] = ownership.problems
    assert (problem.stage, problem.subject) == (Stage.SHARE, "processes")
    assert "hidepid" in problem.message


def test_some_processes_hidden_is_a_problem(host: Host) -> None:
    source = Source(host.files())
    source.hidden = frozenset({13})
    host.run(11, "/docker/one")
    host.run(12, "/docker/two")
    ownership = host.table(source).attribute(inventory(11, 12, 13, 14), BOTH)
    assert keys(ownership) == {11: "one", 12: "two"}
    [problem] = ownership.problems
    assert problem.message.startswith("some processes on the GPUs cannot be read")


def test_what_is_not_the_kernels_is_not_believed(host: Host) -> None:
    for pid in (11, 12, 13):
        host.run(pid, "/docker/one")
    (host.root / "proc/12/stat").write_text("nonsense")
    (host.root / "proc/13/cgroup").write_text("5:devices:/docker/one\n" * 100_000)
    ownership = host.table().attribute(inventory(11, 12, 13), BOTH)
    assert (ownership.is_told, len(ownership.problems)) == (False, 1)
    host.run(12, "/docker/two")
    host.move(13, "\n".join(["/docker/two", *("4:memory:/x" for _ in range(4000))]))
    assert keys(host.table().attribute(inventory(11, 12, 13), BOTH)) == {11: "one", 12: "two", 13: "two"}


def test_a_process_without_a_cgroup_is_nobodys(host: Host) -> None:
    host.run(11, "/docker/one", line="7:cpu")
    assert keys(host.table().attribute(inventory(11), BOTH)) == {11: None}


def test_a_cgroup_of_two_hundred_names(host: Host) -> None:
    host.run(11, "/docker/one" + "/d" * 200)
    host.run(12, "/d" * 200)
    assert keys(host.table().attribute(inventory(11, 12), BOTH)) == {11: "one", 12: None}


def test_who_is_in_no_namespace_of_the_hosts_can_tell_nothing(host: Host) -> None:
    """The /proc of that root is of a namespace of its own, as far as its links say."""
    host.run(11, "/docker/one")
    (host.root / "proc/1/ns").mkdir(parents=True)
    (host.root / "proc/1/ns/pid").symlink_to("pid:[4026532999]")
    ownership = ProcessTable(HostPaths(host.root)).attribute(inventory(11), BOTH)
    assert (ownership.is_told, ownership.are_samples_told, ownership.owners) == (False, False, {})
    [problem] = ownership.problems
    assert problem.message.startswith("needs the host PID namespace")
    assert ProcessTable(HostPaths(host.root)).attribute(DeviceInventory(), BOTH).problems == ()  # nothing to tell
