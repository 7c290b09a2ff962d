# SPDX-License-Identifier: Apache-2.0
"""Where a mountinfo says that the cgroup hierarchies are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from otel_gpu_cgroup.containers.discovery.mounts import Mount, devices_mount, parse_cgroup_mounts, unified_mount
from otel_gpu_cgroup.errors import ParseError

RECORDED: Final = Path(__file__).parents[2] / "data/cgroup/mountinfo"
DEVICES: Final = "35 30 0:30 {root} {point} rw,nosuid - cgroup cgroup rw,devices\n"
UNIFIED: Final = "30 22 0:25 {root} {point} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def points(mountinfo: str) -> tuple[str | None, str | None]:
    """Of the devices hierarchy and of cgroup2."""
    mounts = parse_cgroup_mounts(mountinfo)
    devices, unified = devices_mount(mounts), unified_mount(mounts)
    return (None if devices is None else devices.point), (None if unified is None else unified.point)


@pytest.mark.parametrize(
    ("name", "devices", "unified"),
    [
        ("v1", "/sys/fs/cgroup/devices", None),
        ("v2", None, "/sys/fs/cgroup"),
        ("hybrid", "/sys/fs/cgroup/devices", "/sys/fs/cgroup/unified"),
        ("runc-host-namespace", "/sys/fs/cgroup/devices", None),
        ("runc-private-namespace", "/host/devices", None),
    ],
)
def test_hosts(name: str, devices: str | None, unified: str | None) -> None:
    assert points((RECORDED / name).read_text()) == (devices, unified)


def test_no_mounts() -> None:
    assert points("") == (None, None)
    assert points("28 0 259:2 / / rw shared:1 - ext4 /dev/sda1 rw\n") == (None, None)


def test_controllers_mounted_together() -> None:
    line = "35 30 0:30 / /cg/all rw - cgroup cgroup rw,cpu,devices,memory\n"
    assert devices_mount(parse_cgroup_mounts(line)) == Mount(
        "/cg/all", "/", frozenset({"rw", "cpu", "devices", "memory"})
    )


def test_a_hierarchy_that_is_named_devices_is_not_it() -> None:
    assert points("35 30 0:30 / /cg/named rw - cgroup cgroup rw,name=devices\n") == (None, None)


def test_the_source_may_be_anything() -> None:
    assert points("35 30 0:30 / /v1 rw - cgroup systemd rw,devices\n36 30 0:31 / /v2 rw - cgroup2 none rw\n") == (
        "/v1",
        "/v2",
    )
    assert points("35 30 0:30 / /other rw - tmpfs cgroup rw,devices\n36 30 0:31 / /x rw - fuse cgroup2 rw\n") == (
        None,
        None,
    )


def test_optional_fields_may_be_many_or_none() -> None:
    for tags in ("", "shared:9 ", "shared:9 master:3 propagate_from:2 unbindable "):
        assert points(f"35 30 0:30 / /cg rw {tags}- cgroup cgroup rw,devices\n") == ("/cg", None)


@pytest.mark.parametrize(
    ("written", "point"),
    [
        (r"/with\040space", "/with space"),
        (r"/tab\011newline\012", "/tab\tnewline\n"),
        (r"/back\134slash", "/back\\slash"),
        (r"/back\134040", r"/back\040"),
        (r"/hash\043", "/hash#"),
        (r"/no\escape\0", r"/no\escape\0"),
        ("/caf\udce9", "/caf\udce9"),
        ("/car\rriage\x0bvertical\x85next\u2028line", "/car\rriage\x0bvertical\x85next\u2028line"),
    ],
)
def test_points_are_spelled_as_they_are(written: str, point: str) -> None:
    assert points(DEVICES.format(root="/", point=written)) == (point, None)
    (mount,) = parse_cgroup_mounts(DEVICES.format(root=written, point="/"))
    assert mount.root == point


@pytest.mark.parametrize(
    ("roots", "widest"),
    [
        (["/docker/one", "/"], "/"),
        (["/", "/docker/one"], "/"),
        (["/docker/one", "/docker"], "/docker"),
        (["/a-long-name", "/a/b"], "/a-long-name"),
        (["/", "/.."], "/.."),  # in a private cgroup namespace "/" is the reader's own cgroup
        (["/", "/../..", "/.."], "/../.."),
        (["/", "/../sibling"], "/"),
        (["/../sibling", "/../..", "/one"], "/../.."),
    ],
)
def test_of_several_mounts_the_one_that_shows_most_counts(roots: list[str], widest: str) -> None:
    for template, index in ((DEVICES, 0), (UNIFIED, 1)):
        text = "".join(template.format(root=root, point=f"/at{root}") for root in roots)
        assert points(text)[index] == f"/at{widest}"


def test_of_equal_mounts_the_shortest_point_counts() -> None:
    text = "".join(DEVICES.format(root="/", point=point) for point in ("/var/lib/other/devices", "/sys/fs/cgroup"))
    assert points(text) == ("/sys/fs/cgroup", None)


@pytest.mark.parametrize(
    "line",
    [
        "35 30 - cgroup cgroup rw,devices",
        "35 30 0:30 / /cg rw - cgroup",
        " - cgroup",
        "\x1b[31m - cgroup cgroup rw,devices",
    ],
)
def test_a_line_that_is_no_mount_is_named(line: str) -> None:
    with pytest.raises(ParseError, match="is not a line of mountinfo") as raised:
        parse_cgroup_mounts(f"{DEVICES.format(root='/', point='/cg')}{line}\n")
    assert str(raised.value).isprintable()


def test_other_file_systems_may_look_as_they_like() -> None:
    assert parse_cgroup_mounts("nonsense\n35 30 0:30 / /a\\040-\\040cgroup rw - cgroupless x rw\n") == ()
