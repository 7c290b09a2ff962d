# SPDX-License-Identifier: Apache-2.0
"""Files of real cgroups, held open while what they say changes and their cgroups come and go."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.cgroup.bpf.syscall import Bpf
from otel_gpu_cgroup.errors import Gone
from otel_gpu_cgroup.held import HeldFiles
from tests.support import bpf_programs
from tests.support.bpf import attached, need_bpf, unified_cgroup
from tests.support.bpf_programs import parse_rule
from tests.support.devices_cgroup import DevicesCgroup, devices_cgroup, need_devices_cgroup

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = bpf_programs.runc([parse_rule("allow c 195:0 rw")])


@pytest.fixture
def cgroup(tmp_path: Path) -> Iterator[DevicesCgroup]:
    need_devices_cgroup(tmp_path)
    with devices_cgroup() as cgroup:
        yield cgroup


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_held_list_tells_what_the_kernel_holds_now(cgroup: DevicesCgroup) -> None:
    files, path = HeldFiles(1), f"{cgroup.path}/devices.list"
    seen = []
    for rule in ("", "c 195:0 rw", "c 195:1 rw"):
        cgroup.deny("a")
        cgroup.allow(rule)
        seen.append(files.read_text(path))
    files.close()
    assert seen == ["", "c 195:0 rw\n", "c 195:1 rw\n"]


def test_a_list_longer_than_a_page_is_read_to_its_end(cgroup: DevicesCgroup) -> None:
    cgroup.deny("a")
    for minor in range(1000):
        cgroup.allow(f"c 195:{minor} rw")
    files = HeldFiles(1)
    assert [files.read_text(f"{cgroup.path}/devices.list") for _ in range(2)] == [cgroup.devices_list()] * 2
    files.close()


def test_a_removed_cgroup_is_gone_and_a_new_one_of_its_name_is_read() -> None:
    need_bpf()
    files = HeldFiles(8)
    bpf = Bpf(files)
    with devices_cgroup() as outer:
        inner = outer.path / "inner"
        inner.mkdir()
        assert files.read_text(f"{inner}/devices.list") == "a *:* rwm\n"
        inner.rmdir()
        with pytest.raises(Gone):
            files.read_text(f"{inner}/devices.list")
        inner.mkdir()
        DevicesCgroup(inner).deny("a")
        assert files.read_text(f"{inner}/devices.list") == ""
        inner.rmdir()
    with unified_cgroup() as above:
        folder = above / "inner"
        folder.mkdir()
        with attached(folder, PROGRAM):
            assert len(bpf.query_effective(str(folder))) == 1
        folder.rmdir()
        with pytest.raises(Gone):
            bpf.query_effective(str(folder))
        folder.mkdir()
        assert bpf.query_effective(str(folder)) == ()
        folder.rmdir()
    files.close()


def test_no_more_files_are_held_than_may_be_and_only_those_that_are_met(cgroup: DevicesCgroup) -> None:
    files, before = HeldFiles(2), descriptors()
    paths = [f"{cgroup.path}/{name}" for name in ("devices.list", "cgroup.procs", "tasks", "notify_on_release")]
    for path in paths:
        files.read_text(path)
    assert descriptors() == before + 2
    files.begin_cycle()
    files.read_text(paths[0])
    files.begin_cycle()
    assert descriptors() == before + 1
    files.close()
    assert descriptors() == before
