# SPDX-License-Identifier: Apache-2.0
"""What the kernel's files about a process are taken to say."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from otel_gpu_cgroup.containers.processes.texts import DEVICES, UNIFIED, parse_cgroup, parse_stat
from otel_gpu_cgroup.errors import ParseError

REST: Final = "S 9547 9548 792 0 -1 {flags} 328 707 0 3 0 0 0 0 20 0 1 0 1356167 4595712 425 18446744073709551615 1 2\n"
RUNNING: Final = REST.format(flags=4194368)
HYBRID: Final = """\
9:name=systemd:/system.slice/a.service
5:cpu,devices:/docker/abc
4:memory:/elsewhere
0::/docker/def
"""


@pytest.mark.parametrize(
    "name",
    ["bash", "", "a) R 1 (b", ") S 0 0 0 0 0 4 (", "(((", ")))", "a b\tc", "\\n", "\udcff\udcfe", "x" * 64, "1 2 3"],
)
def test_the_start_is_told_whatever_the_name(name: str) -> None:
    stat = parse_stat(f"9548 ({name}) {RUNNING}", 100)
    assert (stat.started_at, stat.is_exiting) == (13561.67, False)


def test_a_tick_need_not_be_a_hundredth() -> None:
    assert parse_stat(f"1 (init) {RUNNING}", 1000).started_at == 1356.167


def test_a_process_that_ends_says_so() -> None:
    exiting = [
        flags for flags in (4194560, 4194564, 4, 0) if parse_stat(f"1 (x) {REST.format(flags=flags)}", 100).is_exiting
    ]
    assert exiting == [4194564, 4]


@pytest.mark.parametrize("text", ["", "1 (init) S 1 2", "1 (init)", "nonsense", f"1 (x) {REST.format(flags='many')}"])
def test_what_is_no_stat_is_named(text: str) -> None:
    with pytest.raises(ParseError, match="is not the stat of a process"):
        parse_stat(text, 100)


@pytest.mark.parametrize(
    ("text", "devices", "unified"),
    [
        (HYBRID, "/docker/abc", "/docker/def"),
        ("0::/kubepods.slice/a.scope\n", None, "/kubepods.slice/a.scope"),
        ("7:devices:/x\n", "/x", None),
        ("7:devices,freezer:/x\n", "/x", None),
        ("7:devices:/../x\n0::/..\n", "/../x", "/.."),
        ("0::/gone (deleted)\n", None, "/gone (deleted)"),
        ("7:devices:/a:devices:/b\n", "/a:devices:/b", None),
        ("4:memory:/a:devices:/victim\n7:devices:/b\n", "/b", None),  # a name of a cgroup is no line
        ("4:memory:/a,devices:/victim\n", None, None),
        ("7:name=devices:/x\n", None, None),
        ("7:mydevices:/x\n7:devices2:/y\n", None, None),
        ("7:devices:x\n0::\n", None, None),
        ("10::/x\n", None, None),
        ("7:devices:/caf\udce9\r\x1b[31m\n", "/caf\udce9\r\x1b[31m", None),
        ("nonsense", None, None),
        ("", None, None),
    ],
)
def test_the_line_of_a_hierarchy(text: str, devices: str | None, unified: str | None) -> None:
    assert (parse_cgroup(text, DEVICES), parse_cgroup(text, UNIFIED)) == (devices, unified)


def test_this_process_own_files_are_understood() -> None:
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    expected = {
        controller: next((path for _, names, path in lines if controller in names.split(",")), None)
        for controller in (DEVICES, UNIFIED)
    }
    text = Path("/proc/self/cgroup").read_text()
    assert {controller: parse_cgroup(text, controller) for controller in expected} == expected
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert 0 < parse_stat(Path("/proc/self/stat").read_text(), 100).started_at <= uptime
