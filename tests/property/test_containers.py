# SPDX-License-Identifier: Apache-2.0
"""Any cgroup path is a container or none; any mountinfo is mounts or refused."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from otel_gpu_cgroup.containers.identity import parse_container
from otel_gpu_cgroup.containers.mounts import devices_mount, parse_cgroup_mounts, unified_mount
from otel_gpu_cgroup.containers.own import parse_own_cgroups
from otel_gpu_cgroup.model import CgroupPath, Container, Pod, Runtime
from tests.property.refusal import parsed_or_refused

HEXADECIMAL = "0123456789abcdef"
ids = st.text(HEXADECIMAL, min_size=64, max_size=64)
uids = st.uuids().map(str)
raw = st.binary(max_size=60).map(lambda octets: octets.decode("utf-8", "surrogateescape"))
odd_names = st.sampled_from(["docker", "kubepods", "system.slice", "container", "init.scope", "..", "", "podinfo"])
near_ids = st.text(HEXADECIMAL, min_size=60, max_size=68)
prefixes = st.sampled_from(
    ["docker-", "cri-containerd-", "crio-", "crio-conmon-", "libpod-", "libpod-conmon-", "x-", ""]
)
scopes = st.builds("{}{}{}".format, prefixes, near_ids, st.sampled_from([".scope", ".mount", ""]))
pods = st.builds(
    "{}pod{}{}".format, st.sampled_from(["", "kubepods-burstable-"]), uids, st.sampled_from(["", ".slice"])
)
names = raw | st.text() | odd_names | near_ids | scopes | pods
paths = st.lists(names, max_size=6).map(lambda parts: "/" + "/".join(parts))


@given(paths | st.text())
@example("/docker/" + "0" * 64 + "\n")
def test_any_path_is_a_container_or_none(path: str) -> None:
    container = parse_container(CgroupPath(path))
    if container is None:
        return
    name = path.rsplit("/", 1)[-1]
    assert container.cgroup == path
    assert container.id is not None
    assert re.fullmatch("[0-9a-f]{64}", container.id)
    assert container.id in name
    assert "conmon" not in name
    assert container.devices is None
    if container.pod is not None:
        assert re.sub("[^0-9a-f]", "", container.pod.uid) in re.sub("[-_]", "", path)


@given(ids, paths)
def test_an_id_is_found_below_whatever_path(identity: str, above: str) -> None:
    for name in (identity, f"docker-{identity}.scope", f"crio-{identity}", f"libpod-payload-{identity}"):
        found = parse_container(CgroupPath(f"{above}/{name}"))
        assert found is not None
        assert found.id == identity


@given(ids, uids, paths)
def test_the_innermost_pod_is_the_containers(identity: str, uid: str, above: str) -> None:
    for pod in (f"pod{uid}", f"kubepods-pod{uid.replace('-', '_')}.slice"):
        path = CgroupPath(f"{above}/{pod}/cri-containerd-{identity}.scope")
        assert parse_container(path) == Container(path, Runtime.CONTAINERD, identity, pod=Pod(uid))


fields = st.lists(raw | st.sampled_from(["/", "rw", "-", "cgroup", "cgroup2", "rw,devices"]), max_size=14)
mount_lines = st.lists(fields.map(" ".join), max_size=5).map("\n".join)


@given(mount_lines | st.text() | mount_lines.map(lambda text: text.replace("\n", " - cgroup cgroup rw,devices\n")))
def test_any_mountinfo_is_mounts_or_refused_in_one_printable_line(text: str) -> None:
    mounts = parsed_or_refused(parse_cgroup_mounts, text)
    if mounts is not None:
        assert devices_mount(mounts) in (*mounts, None)
        assert unified_mount(mounts) in (*mounts, None)


points = st.text(st.characters(exclude_characters="\0", exclude_categories=()), max_size=40).map("/{}".format)


@given(points, points)
@example("/a\\040b", "/\u2028")
def test_points_and_roots_survive_the_kernels_spelling(point: str, root: str) -> None:
    spelled = [
        "".join(f"\\{ord(letter):03o}" if letter in " \t\n\\#" else letter for letter in name) for name in (root, point)
    ]
    (mount,) = parse_cgroup_mounts(f"35 30 0:30 {spelled[0]} {spelled[1]} rw shared:1 - cgroup cgroup rw,devices\n")
    assert (mount.root, mount.point) == (root, point)


@given(st.text() | mount_lines)
def test_any_process_file_gives_cgroups(text: str) -> None:
    assert "/" not in parse_own_cgroups(text)
