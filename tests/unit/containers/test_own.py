# SPDX-License-Identifier: Apache-2.0
"""The cgroups that this process is in."""

from __future__ import annotations

from otel_gpu_cgroup.containers.own import parse_own_cgroups, read_own_cgroups
from tests.unit.containers.test_identity import ID


def test_its_cgroups_and_all_above_them() -> None:
    text = f"9:name=systemd:/\n5:devices:/docker/{ID}\n3:cpu,cpuacct:/docker/{ID}\n0::/system.slice/agent.service\n"
    assert parse_own_cgroups(text) == {
        f"/docker/{ID}",
        "/docker",
        "/system.slice/agent.service",
        "/system.slice",
    }


def test_a_cgroup_namespace_tells_nothing() -> None:
    assert parse_own_cgroups("5:devices:/\n0::/\n") == frozenset()
    assert parse_own_cgroups("") == frozenset()


def test_names_may_hold_colons_and_line_separators() -> None:
    text = "1:devices:/a:b/c\u2028d\r\n"
    assert parse_own_cgroups(text) == {"/a:b", "/a:b/c\u2028d\r"}


def test_lines_of_another_form_are_passed_over() -> None:
    assert parse_own_cgroups("nonsense\n1:devices\n2:cpu:/one\n") == {"/one"}


def test_this_process_can_be_asked() -> None:
    assert all(path.startswith("/") for path in read_own_cgroups())
