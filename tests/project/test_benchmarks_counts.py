# SPDX-License-Identifier: Apache-2.0
"""The budgets that do not depend on the machine, as the benchmarks measure them: counts, and a ratio."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.counts import CycleCounts, count_cycle
from benchmarks.peer import compare_with_peer, is_peer_here
from benchmarks.table import Row, Section, limited, render
from benchmarks.trees import why_not_real
from otel_gpu_cgroup.model import CgroupMode
from tests.support.need import need

if TYPE_CHECKING:
    from pathlib import Path

GPUS = 8
ONE, MANY = 1, 100
PODS_OF_MANY = 25
FEW = 12
PODS_OF_FEW = 3


@pytest.fixture(scope="module")
def counted(fake_library_dir: Path) -> dict[int, CycleCounts]:
    return {containers: count_cycle(fake_library_dir, containers) for containers in (ONE, MANY)}


@pytest.mark.parametrize("containers", [ONE, MANY])
def test_the_cycle_that_is_counted_reports_a_gpu_for_each_container(
    counted: dict[int, CycleCounts], containers: int
) -> None:
    assert (counted[containers].containers, counted[containers].rows) == (containers, containers)


def test_the_number_of_nvml_calls_does_not_depend_on_containers(counted: dict[int, CycleCounts]) -> None:
    assert counted[ONE].calls == counted[MANY].calls


def test_a_gpu_costs_at_most_20_nvml_calls_a_cycle(counted: dict[int, CycleCounts]) -> None:
    assert GPUS < counted[ONE].calls <= 20 * GPUS


def test_a_further_container_opens_nothing_and_a_further_pod_one_folder(
    counted: dict[int, CycleCounts],
) -> None:
    assert counted[MANY].files - counted[ONE].files == PODS_OF_MANY - 1


@pytest.fixture(scope="module", params=[CgroupMode.V2, CgroupMode.HYBRID])
def mode(request: pytest.FixtureRequest) -> CgroupMode:
    found: CgroupMode = request.param
    reason = why_not_real(found)
    need(reason is None, str(reason))
    return found


@pytest.fixture(scope="module")
def counted_programs(mode: CgroupMode, fake_library_dir: Path) -> dict[int, CycleCounts]:
    return {containers: count_cycle(fake_library_dir, containers, mode) for containers in (ONE, FEW)}


@pytest.mark.parametrize("containers", [ONE, FEW])
def test_the_cycle_with_programs_that_is_counted_reports_a_gpu_for_each_container(
    counted_programs: dict[int, CycleCounts], containers: int
) -> None:
    assert (counted_programs[containers].containers, counted_programs[containers].rows) == (containers, containers)


@pytest.mark.parametrize("containers", [ONE, FEW])
def test_a_warm_cycle_asks_exactly_once_about_each_container(
    counted_programs: dict[int, CycleCounts], containers: int
) -> None:
    assert counted_programs[containers].queries == containers


@pytest.mark.parametrize("containers", [ONE, FEW])
def test_each_program_is_read_once_and_never_again(counted_programs: dict[int, CycleCounts], containers: int) -> None:
    assert (counted_programs[containers].read_before, counted_programs[containers].read) == (containers, 0)


def test_a_further_container_with_a_program_opens_nothing_either(counted_programs: dict[int, CycleCounts]) -> None:
    assert counted_programs[FEW].files - counted_programs[ONE].files == PODS_OF_FEW - 1


def test_a_cycle_costs_at_most_a_fifth_of_a_collection_of_nvitop_exporter(fake_library_dir: Path) -> None:
    need(is_peer_here(), "nvitop-exporter is not installed (dependency group bench)")
    costs = compare_with_peer(fake_library_dir)
    assert min(costs["ours"]) <= min(costs["theirs"]) / 5  # what else runs on the machine adds to the others


def test_the_table_says_of_each_budget_whether_it_is_held() -> None:
    rows = (limited("less", 1.5, "ms", 2), limited("more", 2.5, "ms", 2), Row("no budget", "7"))
    *_, less, more, none = render([Section("times", rows)]).splitlines()
    assert less.split() == ["less", "1.5", "ms", "<=", "2", "ms", "held"]
    assert more.split() == ["more", "2.5", "ms", "<=", "2", "ms", "missed"]
    assert none.split() == ["no", "budget", "7", "-"]
