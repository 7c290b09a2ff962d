# SPDX-License-Identifier: Apache-2.0
"""Which container a cgroup is in, by the path that the reader's cgroup namespace shows."""

from __future__ import annotations

from typing import Final

import pytest

from otel_gpu_cgroup.containers.processes.innermost import Innermost
from otel_gpu_cgroup.model import CgroupPath, Container, Runtime

POD: Final = "/kubepods.slice/kubepods-pod1.slice"


def container(path: str, inode: int | None = None) -> Container:
    """With the last name as its id."""
    return Container(CgroupPath(path), Runtime.UNKNOWN, path.rpartition("/")[2] or None, inode=inode)


def key(innermost: Innermost, shown: str | None) -> str | None:
    place = innermost.find(shown)
    return None if place is None else place[0]


HOST: Final = [
    container("/docker/one"),
    container("/docker/one/docker/inner"),
    container(f"{POD}/agent"),
    container(f"{POD}/other"),
    container("/system.slice/ollama.service"),
]


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ("/docker/one", "one"),
        ("/docker/one/init.scope", "one"),
        ("/docker/one/docker", "one"),
        ("/docker/one/docker/inner", "inner"),
        ("/docker/one/docker/inner/a/b", "inner"),
        ("/docker/one/docker/inner2", "one"),
        ("/docker/ones", None),
        ("/docker", None),
        ("/", None),
        ("/system.slice/ollama.service", "ollama.service"),
        ("/system.slice/ollama.service (deleted)", None),
        ("/docker/one/gone (deleted)", "one"),
        ("/../docker/one", None),  # of a hierarchy that is mounted in part
        ("/..", None),
        ("/..docker", None),
        (None, None),
        ("/docker/one" + "/d" * 200, "one"),
        ("/d" * 200, None),
    ],
)
def test_without_a_cgroup_namespace(shown: str | None, found: str | None) -> None:
    assert key(Innermost(HOST), shown) == found


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ("/../../../docker/one", "one"),
        ("/../../../docker/one/docker/inner/x", "inner"),
        ("/../../../system.slice/ollama.service", "ollama.service"),
        ("/../../..", None),
        ("/../../../..", None),
        ("/../../../../docker/one", None),
        ("/../other", "other"),
        ("/../other/container", "other"),
        ("/../../kubepods-pod1.slice/other", "other"),
        ("/../one", None),  # there is a container of that name, elsewhere
        ("/docker/one", None),  # inside the agent's own
        ("/", None),  # who this is, only the agent's own scope tells
    ],
)
def test_from_a_container_that_has_the_hosts_tree(shown: str, found: str | None) -> None:
    assert key(Innermost(HOST, "/../../.."), shown) == found


@pytest.mark.parametrize(
    ("shown", "found"),
    [("/docker/one", "own"), ("/docker/one/x/leaf", "x"), ("/docker/ones", None), ("/", None), ("/../x", None)],
)
def test_where_a_part_of_the_tree_is_mounted(shown: str, found: str | None) -> None:
    own = Container(CgroupPath("/"), Runtime.UNKNOWN, "own")
    assert key(Innermost([own, container("/x")], "/docker/one"), shown) == found


@pytest.mark.parametrize(
    ("shown", "found"), [("/", "own"), ("/a/b", "own"), ("/..", None), ("/../b", None), ("/../../x/b", None)]
)
def test_the_own_container_is_the_root_of_its_namespace(shown: str, found: str | None) -> None:
    own = Container(CgroupPath("/"), Runtime.UNKNOWN, "own")
    assert key(Innermost([own]), shown) == found


def test_without_an_id_the_cgroup_is_the_key() -> None:
    unit = Container(CgroupPath("/system.slice/a.service"), Runtime.SYSTEMD)
    assert key(Innermost([unit]), "/system.slice/a.service") == "/system.slice/a.service"


def test_what_is_the_same() -> None:
    first = Innermost([container("/a", 1), container("/b", 2)])
    assert first.is_same(Innermost([container("/b", 2), container("/a", 1)]))
    assert not first.is_same(Innermost([container("/a", 1), container("/b", 3)]))
    assert not first.is_same(Innermost([container("/a", 1)]))
    assert not first.is_same(Innermost([container("/a", 1), container("/b", 2)], "/.."))
