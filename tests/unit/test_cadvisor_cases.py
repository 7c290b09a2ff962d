# SPDX-License-Identifier: Apache-2.0
"""cAdvisor's accelerators (v0.46): each of its test cases keeps its input and gets its output, or a better one.

A row of a table has cAdvisor's name for the case, the input, what cAdvisor makes of it and what we make of it. The
branches that cAdvisor never tested are in `test_cadvisor_branches.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.errors import Gone
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import AcceleratorStats, AccessClass, GpuUuid, Stage
from otel_gpu_cgroup.nvidia.devices.files import PciBus
from tests.unit.cadvisor_host import Card, Host, Ours

if TYPE_CHECKING:
    from pathlib import Path

EXPLICIT, UNRESTRICTED = AccessClass.EXPLICIT, AccessClass.UNRESTRICTED
NONE, UNKNOWN = AccessClass.NONE, AccessClass.UNKNOWN
TWO_AND_THREE: Final = "c 195:2 rw\nc 195:3 rw\n"
"""The minors that cAdvisor's test of GetCollector lets its parser return."""
K80: Final = Card(0, "GPU-deadbeef-0123-4567-89ab-feedfacecafe", "Tesla K80", 10203040506, 1020304050, ((0.0, 6),))
P100: Final = Card(1, "GPU-deadbeef-0123-4567-89ab-feedfaceface", "Tesla P100", 20304050607, 2030405060, ((0.0, 12),))


@pytest.mark.parametrize(
    ("devices", "cadvisor", "ours"),
    [
        pytest.param(None, "none", [], id="TestDetectDevices 1: no such folder"),
        pytest.param({"device0": None, "device1": "0x8086"}, "none", [], id="TestDetectDevices 2: none of NVIDIA"),
        pytest.param(
            {"device0": None, "device1": "0x8086", "device2": "0x10de"},
            "found",
            ["device2"],
            id="TestDetectDevices 3: one of NVIDIA",
        ),
    ],
)
def test_detect_devices(devices: dict[str, str | None] | None, cadvisor: str, ours: list[str], tmp_path: Path) -> None:
    """Vendor files as in cAdvisor's test, and the class file that sysfs gives every device."""
    host = Host(tmp_path)
    for name, vendor in (devices or {}).items():
        host.plug(name, vendor)
    assert list(PciBus(HostPaths(tmp_path)).read()) == ours


@pytest.mark.parametrize(
    ("bus", "listed", "cadvisor", "ours"),
    [
        pytest.param([], None, "no-op", Ours([], EXPLICIT), id="TestGetCollector 1: no device present"),
        pytest.param(["0x10de"], None, "no-op", Ours([], EXPLICIT), id="TestGetCollector 2: NVML not initialised"),
        pytest.param(["0x10de"], [], "no-op", Ours([], EXPLICIT), id="TestGetCollector 3: NVML lists nothing"),
        pytest.param(
            ["0x10de"],
            [0, 1],
            "no-op and an error",
            Ours([], NONE, "allows c 195:2, c 195:3, which no GPU of this host has"),
            id="TestGetCollector 4: minors that NVML does not list",
        ),
        pytest.param(
            ["0x10de"],
            [0, 1, 2, 3],
            "two devices",
            Ours([2, 3], EXPLICIT),
            id="TestGetCollector 5: minors that it lists",
        ),
    ],
)
def test_get_collector(bus: list[str], listed: list[int] | None, cadvisor: str, ours: Ours, tmp_path: Path) -> None:
    host = Host(tmp_path, *(Card(minor) for minor in listed or ()))
    host.driver.down = listed is None
    for vendor in bus:
        host.plug("0000:3b:00.0", vendor)
    host.refresh()
    ours.assert_same(host.ours(TWO_AND_THREE))


@pytest.mark.parametrize(
    ("rules", "cadvisor", "ours"),
    [
        pytest.param(
            "c 1:2 rwm badformat",
            "error",
            Ours([], UNKNOWN, "'c 1:2 rwm badformat' is not a rule"),
            id="TestParseDevicesCgroup 3: four fields",
        ),
        pytest.param(
            "c badformat rwm",
            "error",
            Ours([], UNKNOWN, "'c badformat rwm' is not a rule"),
            id="TestParseDevicesCgroup 4: no colon",
        ),
        pytest.param(
            "c 195:0 rwm\nc 195:255 rwm\nc 195:1 rwm",
            "[0, 1]",
            Ours([0, 1], EXPLICIT),
            id="TestParseDevicesCgroup 5: two GPUs and nvidiactl, without a last newline",
        ),
        pytest.param(
            "a *:* rwm", "[]", Ours([], UNRESTRICTED), id="TestParseDevicesCgroup 6: everything is no GPU of its own"
        ),
        pytest.param("", "[]", Ours([], NONE), id="TestParseDevicesCgroup 7: an empty file"),
    ],
)
def test_parse_devices_cgroup(rules: str, cadvisor: str, ours: Ours, tmp_path: Path) -> None:
    host = Host(tmp_path, Card(0), Card(1), Card(2))
    host.refresh()
    ours.assert_same(host.ours(rules))


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("", id="TestParseDevicesCgroup 1: no path"),
        pytest.param("/non-existent-path", id="TestParseDevicesCgroup 2: no such path"),
    ],
)
def test_parse_devices_cgroup_that_is_gone(path: str, tmp_path: Path) -> None:
    """For cAdvisor an error; for us a container that has ended, which the cycle drops."""
    host = Host(tmp_path, Card(0))
    host.refresh()
    with pytest.raises(Gone, match="cannot be read"):
        host.stats(host.container_at(path))


def test_update_nvidia_stats_without_devices(tmp_path: Path) -> None:
    """TestUpdateNvidiaStats 1: nil error, stats unchanged."""
    host = Host(tmp_path, Card(0))
    host.refresh()
    stats = host.stats("")
    assert stats.accelerators == []
    assert stats.problems == []


def test_update_nvidia_stats_without_nvml(tmp_path: Path) -> None:
    """TestUpdateNvidiaStats 2: an error, stats unchanged; ours are the same GPUs without values, and a problem."""
    host = Host(tmp_path, Card(0, model="K80"), Card(1, model="P100"))
    for card in host.driver.cards:
        host.write_information(card)
    host.driver.down = True
    (problem,) = host.refresh().problems
    assert (problem.stage, problem.subject) == (Stage.NVML, "NVML")
    assert host.stats("c 195:0 rw\nc 195:1 rw\n").accelerators == [
        AcceleratorStats("nvidia", model, GpuUuid(f"GPU-{minor}"), None, None, None)
        for minor, model in enumerate(("K80", "P100"))
    ]


def test_the_golden_values(tmp_path: Path) -> None:
    """The numbers of cAdvisor's golden files, its K80 and its P100."""
    host = Host(tmp_path, K80, P100)
    host.refresh()
    assert host.stats("c 195:0 rw\nc 195:1 rw\n").accelerators == [
        AcceleratorStats("nvidia", "Tesla K80", GpuUuid(K80.uuid), 10203040506, 1020304050, 6.0),
        AcceleratorStats("nvidia", "Tesla P100", GpuUuid(P100.uuid), 20304050607, 2030405060, 12.0),
    ]
