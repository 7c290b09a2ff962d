# SPDX-License-Identifier: Apache-2.0
"""The branches of cAdvisor's accelerators (v0.46) that it never tested, and what we do instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.containers.identity import parse_container
from otel_gpu_cgroup.errors import NvmlDeviceLost, NvmlQueryFailed, NvmlUnsupported
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import AccessClass, CgroupPath, Container, Runtime, Stage
from otel_gpu_cgroup.nvidia.devices.files import PciBus
from otel_gpu_cgroup.settings import Unrestricted
from tests.unit.cadvisor_host import Card, Host, Ours

if TYPE_CHECKING:
    from pathlib import Path

EXPLICIT, UNRESTRICTED = AccessClass.EXPLICIT, AccessClass.UNRESTRICTED
NONE, UNKNOWN = AccessClass.NONE, AccessClass.UNKNOWN
UNSUPPORTED: Final = NvmlUnsupported("Not Supported")
FAILED: Final = NvmlQueryFailed("Unknown Error")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """With GPUs of which one has a minor above cAdvisor's limit of 127."""
    made = Host(tmp_path, Card(0), Card(1), Card(130))
    made.plug("0000:3b:00.0", "0x10de")
    made.refresh()
    return made


@pytest.mark.parametrize(
    ("rules", "cadvisor", "ours"),
    [
        pytest.param("c 195:* rwm", "error, all lost", Ours([0, 1, 130], EXPLICIT), id="a wildcard is every GPU"),
        pytest.param("c *:* rw", "[]", Ours([], UNRESTRICTED), id="every character device is everything"),
        pytest.param(
            "c *:* m\nb *:* m\nc 195:1 rw", "[1]", Ours([1], EXPLICIT), id="the runtimes' mknod rules give nothing"
        ),
        pytest.param("c 195:0 m", "[0]", Ours([], NONE), id="mknod is no access"),
        pytest.param("c 195:0 r", "[0]", Ours([], NONE), id="reading alone is no access"),
        pytest.param("c 195:* r\nc 195:0 w", "error, all lost", Ours([], NONE), id="one rule must cover both"),
        pytest.param("c 195:1 mrw", "[1]", Ours([1], EXPLICIT), id="letters in any order"),
        pytest.param(
            "c 195:* m\nc *:* m", "error, all lost", Ours([], NONE), id="what a reload of systemd leaves is no access"
        ),
        pytest.param(
            "c 195:0 rw\n\n",
            "error, all lost",
            Ours([], UNKNOWN, "'' is not a rule"),
            id="a blank line is not the kernel's",
        ),
        pytest.param("c 195:130 rw", "[]", Ours([130], EXPLICIT), id="minors of 128 and above are GPUs"),
        pytest.param("c 195:254 rw\nc 195:255 rw", "[]", Ours([], NONE), id="control nodes are no GPUs"),
        pytest.param(
            "c 195:0 rw\nc 195:9 rw",
            "error, all lost",
            Ours([0], EXPLICIT, "allows c 195:9, which no GPU of this host has"),
            id="an unknown minor costs no other GPU",
        ),
        pytest.param(
            "c 195:247 rw\nc 195:248 rw",
            "[]",
            Ours([], NONE, "allows c 195:247, which no GPU"),
            id="unused minors above the last GPU are no GPUs",
        ),
        pytest.param("c 195:0 rw\nc 195:0 rwm", "[0, 0]", Ours([0], EXPLICIT), id="a GPU named twice has one row"),
        pytest.param("b 195:0 rw\nc 507:0 rw", "[]", Ours([], NONE), id="other nodes are no GPUs"),
    ],
)
def test_rules(rules: str, cadvisor: str, ours: Ours, host: Host) -> None:
    ours.assert_same(host.ours(rules))


@pytest.mark.parametrize(("minor", "access"), [(0, EXPLICIT), (31, EXPLICIT), (32, NONE)])
def test_while_no_gpu_is_known_any_that_a_driver_can_have_counts(
    minor: int, access: AccessClass, tmp_path: Path
) -> None:
    host = Host(tmp_path)
    host.driver.down = True
    host.refresh()
    Ours([], access).assert_same(host.ours(f"c 195:{minor} rw"))


def test_privileged_containers_have_rows_where_they_are_asked_for(tmp_path: Path) -> None:
    host = Host(tmp_path, Card(0), Card(1), unrestricted=Unrestricted.ALL)
    host.refresh()
    Ours([0, 1], UNRESTRICTED).assert_same(host.ours("a *:* rwm"))


@pytest.mark.parametrize(
    ("kind", "found"),
    [("0x030000", True), ("0x030200", True), ("0x040300", False), ("0x0c0330", False), ("0x068000", False)],
)
def test_only_display_controllers_of_nvidia_are_gpus(kind: str, found: object, tmp_path: Path) -> None:
    Host(tmp_path).plug("0000:3b:00.0", "0x10DE", kind)
    assert bool(PciBus(HostPaths(tmp_path)).read()) is found


def test_rules_are_read_again_after_the_container_was_made(host: Host) -> None:
    container = host.container("a *:* rwm\n")  # what runc shows for some milliseconds
    seen = [host.stats(container).access]
    for rules in ("c 195:0 rw\n", "c 195:0 rw\nc 195:1 rw\n", "c 195:* m\n"):
        host.container(rules)
        host.refresh()
        seen.append(host.stats(container).access)
    assert seen == [UNRESTRICTED, EXPLICIT, EXPLICIT, NONE]


def test_a_library_that_comes_later_is_used(tmp_path: Path) -> None:
    host = Host(tmp_path, Card(0))
    host.driver.down = True
    assert host.refresh().nvml_gpus is None
    host.driver.down = False
    assert host.refresh().nvml_gpus == 1
    Ours([0], EXPLICIT).assert_same(host.ours("c 195:0 rw"))


def test_a_gpu_that_is_plugged_in_later_is_found(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.refresh().pci_gpus == 0
    host.plug("0000:3b:00.0", "0x10de")
    host.driver.cards.append(Card(0))
    inventory = host.refresh()
    assert (inventory.pci_gpus, inventory.nvml_gpus) == (1, 1)
    Ours([0], EXPLICIT).assert_same(host.ours("c 195:0 rw"))


def test_an_empty_list_is_asked_for_again(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.refresh().nvml_gpus == 0
    host.driver.cards += [Card(0), Card(1)]
    assert host.refresh().nvml_gpus == 2


def test_a_gpu_that_cannot_be_listed_costs_no_other_and_heals(tmp_path: Path) -> None:
    sick = Card(1, errors={"identity": FAILED})
    host = Host(tmp_path, Card(0), sick, Card(2))
    (problem,) = host.refresh().problems
    assert problem.subject == "GPU 1"
    assert host.minors(host.stats("c 195:* rw")) == [0, 2]
    sick.errors = {}
    assert host.refresh().problems == ()
    assert host.minors(host.stats("c 195:* rw")) == [0, 1, 2]


@pytest.mark.parametrize("error", [UNSUPPORTED, FAILED])
def test_a_value_that_fails_costs_no_other_value(error: Exception, tmp_path: Path) -> None:
    host = Host(
        tmp_path,
        Card(0, errors={"memory": error}),
        Card(1, errors={"samples": error, "rate": error}),  # as on a GPU in MIG mode
        Card(2),
    )
    host.refresh()
    values = [(row.memory_used, row.duty_cycle) for row in host.stats("c 195:* rw").accelerators]
    assert values == [(None, 6.0), (1 << 30, None), (1 << 30, 6.0)]


def test_what_is_not_supported_is_no_problem(tmp_path: Path) -> None:
    host = Host(tmp_path, Card(0, errors={"samples": UNSUPPORTED, "rate": UNSUPPORTED}))
    assert host.refresh().problems == ()


def test_a_lost_gpu_keeps_its_row_and_costs_no_other(tmp_path: Path) -> None:
    lost = NvmlDeviceLost("GPU is lost")
    host = Host(tmp_path, Card(0, errors=dict.fromkeys(("memory", "samples", "rate"), lost)), Card(1))
    (problem,) = host.refresh().problems
    rows = host.stats("c 195:* rw").accelerators
    assert problem.subject == "GPU-0"
    assert [(row.id, row.memory_total, row.duty_cycle) for row in rows] == [
        ("GPU-0", None, None),
        ("GPU-1", 8 << 30, 6.0),
    ]


@pytest.mark.parametrize(
    ("samples", "rate", "duty_cycle"),
    [
        pytest.param(((0, 10), (1, 11)), 0, 10.5, id="the mean is not cut to a whole number"),
        pytest.param(((0, 50), (9.9, 100), (10.1, 100), (15, 100)), 0, 75.0, id="samples of the last ten seconds"),
        pytest.param((), 42, 42.0, id="no samples are no division by zero"),
        pytest.param(((11, 100),), 0, 0.0, id="old samples alone are none"),
        pytest.param(((0, 101), (1, 20)), 0, 20.0, id="above 100 percent is not credible"),
    ],
)
def test_duty_cycle(samples: tuple[tuple[float, int], ...], rate: int, duty_cycle: float, tmp_path: Path) -> None:
    host = Host(tmp_path, Card(0, samples=samples, rate=rate))
    host.refresh()
    (row,) = host.stats("c 195:0 rw").accelerators
    assert row.duty_cycle == duty_cycle


@pytest.mark.parametrize(
    "parent", ["/", "/docker", "/kubepods.slice", "/kubepods/burstable/pod7f0dd8f9-4b9c-4d5e-a5b3-9a1c1f0d1b2e"]
)
def test_cgroups_above_containers_report_nothing(parent: str) -> None:
    assert parse_container(CgroupPath(parent)) is None


def test_a_container_without_v1_rules_is_not_passed_over_in_silence(host: Host) -> None:
    stats = host.stats(Container(CgroupPath("/docker/two"), Runtime.DOCKER, "two"))
    assert stats.access is not NONE
    assert [problem.stage for problem in stats.problems] == [Stage.POLICY]


def test_nvml_is_let_go_of(host: Host) -> None:
    assert host.driver.started
    host.manager.destroy()
    assert not host.driver.started
