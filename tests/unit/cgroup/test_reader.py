# SPDX-License-Identifier: Apache-2.0
"""Reading a container's policy from files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.cgroup.reader import PolicyReader
from otel_gpu_cgroup.errors import Gone, HostUnreadable, PolicyUnreadable
from otel_gpu_cgroup.model import READ_WRITE, CgroupPath, Container, Runtime, Verdict, gpu_node

if TYPE_CHECKING:
    from pathlib import Path


def container(folder: Path, rules: str | None = None) -> Container:
    folder.mkdir(exist_ok=True)
    if rules is not None:
        (folder / "devices.list").write_text(rules)
    return Container(CgroupPath("/docker/one"), Runtime.DOCKER, devices=str(folder))


def test_the_file_is_read_anew_each_time(tmp_path: Path) -> None:
    reader, verdicts = PolicyReader(), []
    for rules in ("", "c 195:0 rw\n", "c 195:* m\n"):
        policy = reader.read(container(tmp_path, rules))
        verdicts.append(policy.allows(gpu_node(0), READ_WRITE))
    assert verdicts == [Verdict.DENY, Verdict.ALLOW, Verdict.DENY]


def test_equal_texts_share_a_policy(tmp_path: Path) -> None:
    reader = PolicyReader()
    one, other, third = (
        reader.read(container(tmp_path / name, rules))
        for name, rules in (("one", "c 195:0 rw\n"), ("other", "c 195:0 rw\n"), ("third", "c 195:1 rw\n"))
    )
    assert one is other
    assert one is not third


def test_a_container_that_ended_is_gone(tmp_path: Path) -> None:
    with pytest.raises(Gone, match="No such file"):
        PolicyReader().read(container(tmp_path))


def test_what_cannot_be_read_is_not_gone(tmp_path: Path) -> None:
    (tmp_path / "devices.list").mkdir()
    with pytest.raises(HostUnreadable, match="Is a directory") as raised:
        PolicyReader().read(container(tmp_path))
    assert not isinstance(raised.value, Gone)


def test_a_malformed_line_is_told_with_its_file(tmp_path: Path) -> None:
    with pytest.raises(PolicyUnreadable, match=r"devices\.list.*'c 195:x rw' is not a rule"):
        PolicyReader().read(container(tmp_path, "c 1:3 rwm\nc 195:x rw\n"))


def test_bytes_that_are_no_text_are_a_malformed_line(tmp_path: Path) -> None:
    found = container(tmp_path)
    (tmp_path / "devices.list").write_bytes(b"c 195:\xff\xfe rw\n")
    with pytest.raises(PolicyUnreadable, match=r"\\udcff"):
        PolicyReader().read(found)


def test_a_file_without_an_end_is_refused(tmp_path: Path) -> None:
    found = container(tmp_path)
    (tmp_path / "devices.list").symlink_to("/dev/zero")
    with pytest.raises(HostUnreadable, match="holds more than"):
        PolicyReader().read(found)


def test_without_a_devices_hierarchy_nobody_can_say() -> None:
    with pytest.raises(PolicyUnreadable):
        PolicyReader().read(Container(CgroupPath("/docker/one"), Runtime.DOCKER))


@pytest.mark.parametrize(
    ("rules", "expected"), [("c 195:0 rw\n", Verdict.UNKNOWN), ("c 1:3 rw\n", Verdict.DENY), (None, Verdict.UNKNOWN)]
)
def test_a_hidden_cgroup2_makes_what_v1_allows_unknown(tmp_path: Path, rules: str | None, expected: Verdict) -> None:
    devices = None if rules is None else str(tmp_path)
    (tmp_path / "devices.list").write_text(rules or "")
    hidden = Container(CgroupPath("/docker/one"), Runtime.DOCKER, devices=devices, is_hidden=True)
    policy = PolicyReader().read(hidden)
    assert policy.allows(gpu_node(0), READ_WRITE) is expected
    assert policy.trouble is not None
    assert policy.trouble.subject == "cgroup2"
