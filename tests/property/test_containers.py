# SPDX-License-Identifier: Apache-2.0
"""Any cgroup path is a container or none; any mountinfo is mounts or refused."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from otel_gpu_cgroup.containers.discovery.mounts import devices_mount, parse_cgroup_mounts, unified_mount
from otel_gpu_cgroup.containers.discovery.relative import KnownPaths, resolve_path
from otel_gpu_cgroup.containers.identity import parse_container
from otel_gpu_cgroup.containers.own.inside import parse_own_container
from otel_gpu_cgroup.model import CgroupPath, Container, Pod, Runtime
from tests.property.refusal import parsed_or_refused

HEXADECIMAL = "0123456789abcdef"
ids = st.text(HEXADECIMAL, min_size=64, max_size=64)
uids = st.uuids().map(str)
raw = st.binary(max_size=60).map(lambda octets: octets.decode("utf-8", "surrogateescape"))
odd_names = st.sampled_from(
    [
        *(
            "",
            "..",
            "container",
            "default",
            "docker",
            "ecs",
            "garden",
            "good",
            "init.scope",
            "job_7",
            "kubepods",
            "lxc",
        ),
        *("lxc.monitor", "machine.slice", "payload", "podinfo", "s5K1KKYAYG5D00", "singularity"),
        *("slurmstepd.scope", "step_0", "step_extern", "system.slice", "uid_1000", "user", "user@1000.service"),
    ]
)
near_ids = st.text(HEXADECIMAL, min_size=60, max_size=68)
prefixes = st.sampled_from(
    ["docker-", "cri-containerd-", "crio-", "crio-conmon-", "libpod-", "libpod-conmon-", "x-", ""]
)
scopes = st.builds("{}{}{}".format, prefixes, near_ids, st.sampled_from([".scope", ".mount", ""]))
pods = st.builds(
    "{}pod{}{}".format, st.sampled_from(["", "kubepods-burstable-"]), uids, st.sampled_from(["", ".slice"])
)
units = st.builds(
    "{}{}{}".format,
    st.sampled_from(
        ["lxc.payload.", "systemd-nspawn@", "machine-", "apptainer-", "step_", "job_", "uid_", "kata_", ""]
    ),
    raw | st.integers(min_value=0).map(str) | uids,
    st.sampled_from([".service", ".scope", ".slice", ".mount", ""]),
)
names = raw | st.text() | odd_names | near_ids | scopes | pods | units
paths = st.lists(names, max_size=6).map(lambda parts: "/" + "/".join(parts))


@given(paths | st.text())
@example("/docker/" + "0" * 64 + "\n")
@example("/step_" + "9" * 5000)
def test_any_path_is_a_container_or_none(path: str) -> None:
    container = parse_container(CgroupPath(path))
    if container is None:
        return
    name = path.rsplit("/", 1)[-1]
    assert container.cgroup == path
    assert container.id is None or container.id in name
    assert container.id or container.name
    assert "-conmon-" not in name
    assert container.devices is None
    assert (container.slurm is not None) == (container.runtime is Runtime.SLURM)
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


OWN_CGROUPS = (
    "/docker/{id}",
    "/default/train",
    "/kubepods.slice/kubepods-pod7f0dd8f9_4b9c_4d5e_a5b3_9a1c1f0d1b2e.slice/cri-containerd-{id}.scope",
    "/machine.slice/libpod-{id}.scope",
    "/system.slice/web.service/libpod-payload-{id}",
    "/lxc.payload.one",
    "/lxc/one",
    "/machine.slice/systemd-nspawn@one.service",
    "/machine.slice/machine-one.scope",
    "/system.slice/slurmstepd.scope/job_7/step_0",
    "/slurm/uid_0/job_7/step_0",
    "/system.slice/apptainer-7.scope",
    "/ecs/00000000000000000000000000000000/00000000000000000000000000000000-7",
    "/nomad.slice/7f0dd8f9-4b9c-4d5e-a5b3-9a1c1f0d1b2e.task.scope",
    "/garden/70eb4ce5-a065-4401-6990-88ed",
    "/system.slice/web.service",
)
inner_names = (
    raw
    | st.sampled_from(["container", "init.scope", "payload", "supervisor", "system.slice", "user", "task_0", "slurm"])
    | st.sampled_from(["dbus.service", "session-3.scope", "user@0.service", "user.slice", "step_0", "kubepods", "0"])
)


@given(st.sampled_from(OWN_CGROUPS), ids, st.lists(inner_names, min_size=1, max_size=5))
def test_what_is_made_inside_a_container_is_no_container(own: str, identity: str, below: list[str]) -> None:
    outer = CgroupPath(own.format(id=identity))
    assert parse_container(outer) is not None
    assert parse_container(CgroupPath("/".join([outer, *below]))) is None


@given(st.sampled_from(OWN_CGROUPS), ids, ids)
def test_a_container_inside_a_container_is_one(own: str, outer: str, inner: str) -> None:
    for name in (f"docker/{inner}", f"kubelet.slice/cri-containerd-{inner}.scope", f"user.slice/libpod-{inner}.scope"):
        found = parse_container(CgroupPath(f"{own.format(id=outer)}/{name}"))
        assert found is not None
        assert found.id == inner


tree_names = st.text("ab", min_size=1, max_size=2)
tree_paths = st.lists(tree_names, max_size=4)


@given(tree_paths, tree_paths)
def test_what_the_kernel_shows_of_a_cgroup_leads_back_to_it(own: list[str], target: list[str]) -> None:
    common = 0
    while common < min(len(own), len(target)) and own[common] == target[common]:
        common += 1
    shown = "/" + "/".join([".."] * (len(own) - common) + target[common:])  # as cgroup_namespaces(7) has it
    path = "/" + "/".join(target)
    assert resolve_path(shown, "/" + "/".join(own), KnownPaths([])) == path
    if target[common:]:
        assert resolve_path(shown, None, KnownPaths([path])) == path


@given(paths | st.text(), paths | st.text() | st.none(), st.lists(paths))
def test_any_shown_path_is_resolved_or_not(shown: str, own: str | None, known: list[str]) -> None:
    found = resolve_path(shown, own, KnownPaths(known))
    assert found is None or found.startswith("/")


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


process_lines = st.lists(st.builds("{}:{}:{}".format, st.integers(0, 12), st.sampled_from(["", "devices"]), paths))


@given(process_lines.map("\n".join) | st.text() | mount_lines, mount_lines | st.text())
def test_any_process_files_give_a_container(proc_cgroup: str, mountinfo: str) -> None:
    assert parse_own_container(proc_cgroup, mountinfo).cgroup.startswith("/")
