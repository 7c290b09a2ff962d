# SPDX-License-Identifier: Apache-2.0
"""How a reader's cgroup namespace lies in the tree, on hosts made of files: this process is who reads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.containers.discovery.namespace import UNIFIED, ShownPaths
from otel_gpu_cgroup.containers.own.inside import parse_own_paths
from otel_gpu_cgroup.host import HostPaths
from tests.support.need import need

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """With this process in one of several cgroups that look alike; below it is what the kernel shows of it now."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        paths = parse_own_paths(file.read())
    need(UNIFIED in paths, "this kernel places no process in cgroup2")
    inside = paths[UNIFIED].rstrip("/")
    made = tmp_path / "tree"
    for path, pid in (("/pods/one/agent", os.getpid()), ("/pods/two/agent", 0), ("/agent", os.getpid())):
        folder = made / f"{path}{inside}".lstrip("/")
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text(f"1\n{pid}\n")
    (made / "pods/one/other").mkdir()
    return made


def shown_in(tmp_path: Path, tree: Path, root: str) -> ShownPaths:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text(f"30 22 0:25 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    return ShownPaths(HostPaths(tmp_path), str(tree), UNIFIED)


@pytest.mark.parametrize(
    ("shown", "path"),
    [
        ("/", "/pods/one/agent"),
        ("/inner", "/pods/one/agent/inner"),
        ("/../other", "/pods/one/other"),
        ("/../../two/agent", "/pods/two/agent"),
        ("/../../../agent", "/agent"),
        ("/../new/container", "/pods/one/new/container"),
        ("/../../../../elsewhere", None),
    ],
)
def test_the_namespaces_root_is_the_cgroup_that_deep_with_this_process_in_it(
    tmp_path: Path, tree: Path, shown: str, path: str | None
) -> None:
    assert shown_in(tmp_path, tree, "/../../..").resolve(shown) == path


def test_without_a_namespace_paths_are_what_they_are(tmp_path: Path, tree: Path) -> None:
    shown = shown_in(tmp_path, tree, "/")
    assert [shown.resolve(path) for path in ("/pods/one", "/", "/new")] == ["/pods/one", "/", "/new"]


@pytest.mark.parametrize("root", ["/..", "/../../../..", "/../sibling/below", "/docker/one/inner"])
def test_where_this_process_is_not_found_what_is_shown_must_end_alone_so(tmp_path: Path, tree: Path, root: str) -> None:
    if root == "/..":
        (tree / "agent").rename(tmp_path / "agent")
    shown = shown_in(tmp_path, tree, root)
    assert [shown.resolve(path) for path in ("/../other", "/../agent", "/..")] == ["/pods/one/other", None, None]
    (tree / "pods/two/other").mkdir()
    shown.begin_cycle()
    assert shown.resolve("/../other") is None


def test_no_mounts_and_no_tree_tell_nothing(tmp_path: Path) -> None:
    assert ShownPaths(HostPaths(tmp_path), str(tmp_path / "none"), UNIFIED).resolve("/../other") is None
