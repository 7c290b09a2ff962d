# SPDX-License-Identifier: Apache-2.0
"""The runc harness keeps what it promises to the tests that use it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.support.runc import Bind, RuncSpec, devices_hierarchy, docker_cgroup, need_runc, runc_container

if TYPE_CHECKING:
    from pathlib import Path


def test_it_is_what_was_asked_for(tmp_path: Path) -> None:
    need_runc()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/word").write_text("here\n")
    spec = RuncSpec(
        docker_cgroup(),
        args=("/bin/sh", "-c", "echo $GREETING; id -u; sleep 1000"),
        env={"GREETING": "good day"},
        binds=(Bind(os.fspath(tmp_path / "shared"), "/shared"),),
        uid=1000,
    )
    with runc_container(tmp_path, spec) as container:
        assert container.run("cat", "/shared/word").stdout == "here\n"
        assert container.run("/bin/sh", "-c", "echo >/new").returncode != 0
        assert f":devices:{spec.cgroup}\n" in _read(f"/proc/{container.pid}/cgroup")
        assert "devices:/\n" in container.run("cat", "/proc/self/cgroup").stdout
        assert container.output.read_text() == "good day\n1000\n"


def test_nothing_of_it_is_left(tmp_path: Path) -> None:
    need_runc()
    with runc_container(tmp_path, RuncSpec(docker_cgroup())) as container:
        assert container.devices_cgroup.is_dir()
    assert not container.devices_cgroup.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["runc"]


def test_it_is_deleted_when_the_test_fails(tmp_path: Path) -> None:
    need_runc()
    cgroup = docker_cgroup()
    with pytest.raises(ZeroDivisionError), runc_container(tmp_path, RuncSpec(cgroup)):
        raise ZeroDivisionError
    hierarchy = devices_hierarchy()
    assert hierarchy is not None
    assert not (hierarchy / cgroup.lstrip("/")).exists()


def test_what_cannot_start_says_why(tmp_path: Path) -> None:
    need_runc()
    with (
        pytest.raises(AssertionError, match="no such file or directory"),
        runc_container(tmp_path, RuncSpec(docker_cgroup(), args=("/bin/nothing",))),
    ):
        pass


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
