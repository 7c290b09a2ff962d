# SPDX-License-Identifier: Apache-2.0
"""The cgroups that this process is in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.containers.own.discovery import read_own_cgroups, sees_only_itself
from otel_gpu_cgroup.containers.own.inside import parse_upwards
from otel_gpu_cgroup.host import HostPaths
from tests.support.need import need
from tests.unit.containers.test_identity import ID

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/docker/one", ["/docker/one", "/docker"]),
        ("/a:b/c\u2028d\r", ["/a:b/c\u2028d\r", "/a:b"]),
        ("/", []),
        ("", []),
    ],
)
def test_a_path_and_all_above_it(path: str, expected: list[str]) -> None:
    assert list(parse_upwards(path)) == expected


@pytest.mark.parametrize(
    "line", ["35 30 0:30 {} /tree rw - cgroup cgroup rw,devices\n", "30 22 0:25 {} /tree rw - cgroup2 cgroup2 rw\n"]
)
def test_the_own_cgroup_is_found_in_the_hosts_tree(tmp_path: Path, line: str) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text(line.format("/../.."))
    controller = "devices" if "devices" in line else ""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        inside = next(
            (row.split(":", 2)[2] for row in file.read().split("\n") if row.split(":")[1:2] == [controller]), None
        )
    need(inside is not None, f"this kernel has no {controller or 'cgroup2'} hierarchy")
    own = tmp_path / f"tree/docker/agent{inside}"
    own.mkdir(parents=True)
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n")
    found = {f"/docker/agent{inside}".rstrip("/"), "/docker/agent", "/docker"}
    assert read_own_cgroups(HostPaths(tmp_path)) >= found


def test_where_it_is_not_it_is_nowhere(tmp_path: Path) -> None:
    assert read_own_cgroups(HostPaths(tmp_path)) == frozenset()
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text("30 22 0:25 /../.. /tree rw - cgroup2 cgroup2 rw\n")
    assert read_own_cgroups(HostPaths(tmp_path)) == frozenset()
    (tmp_path / "tree/docker/other").mkdir(parents=True)
    assert read_own_cgroups(HostPaths(tmp_path)) == frozenset()


@pytest.mark.parametrize(
    ("made", "only_itself"),
    [
        ("/tree/system.slice/nginx.service", True),  # of the container's own systemd
        ("/tree/init.scope", True),
        (f"/tree/docker/{ID}", False),
        ("/tree/release_agent", False),  # which the top of a whole hierarchy alone has
    ],
)
def test_a_part_of_a_hierarchy_without_containers_shows_this_one_alone(
    tmp_path: Path, made: str, *, only_itself: bool
) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text("35 30 0:30 / /tree rw - cgroup cgroup rw,devices\n")
    (tmp_path / made.lstrip("/")).mkdir(parents=True)
    assert sees_only_itself(HostPaths(tmp_path)) is only_itself


def test_this_process_can_be_asked() -> None:
    assert all(path.startswith("/") for path in read_own_cgroups())
