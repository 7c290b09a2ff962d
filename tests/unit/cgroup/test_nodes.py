# SPDX-License-Identifier: Apache-2.0
"""Device nodes in a container's /dev, and who is asked before them."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.cgroup.devices_list import parse_devices_list
from otel_gpu_cgroup.cgroup.fallback.nodes import read_node, read_nodes
from otel_gpu_cgroup.cgroup.fallback.reader import Fallbacks
from otel_gpu_cgroup.cgroup.fallback.stated import StandInPolicy, allows_a_gpu, nodes_policy
from otel_gpu_cgroup.cgroup.policy import BothPolicies, UnknownPolicy, classify
from otel_gpu_cgroup.errors import HostUnreadable, PolicyUnreadable
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import (
    READ_WRITE,
    AccessClass,
    CgroupPath,
    Container,
    DeviceNode,
    DeviceType,
    PolicySource,
    Runtime,
    Verdict,
    gpu_node,
)
from tests.support.need import need

if TYPE_CHECKING:
    from pathlib import Path

ID: Final = "ab" * 32
MEM: Final = DeviceNode(DeviceType.CHAR, 1, 1)
GPUS: Final = [gpu_node(minor) for minor in range(3)]
REFUSED: Final = UnknownPolicy(PolicyUnreadable("refused", "bpf(2)"))


def _scope(folder: Path | None = None) -> Container:
    cgroup = CgroupPath(f"/system.slice/docker-{ID}.scope")
    return Container(cgroup, Runtime.DOCKER, ID, unified=None if folder is None else str(folder))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _write_unit(root: Path) -> None:
    _write(root / "proc/devices", "Character devices:\n195 nvidia\n")
    folder = root / f"run/systemd/transient/docker-{ID}.scope.d"
    _write(folder / "50-DevicePolicy.conf", "[Scope]\nDevicePolicy=strict\n")
    _write(folder / "50-DeviceAllow.conf", "[Scope]\nDeviceAllow=\nDeviceAllow=/dev/char/195:0 rw\n")


def _write_bundle(root: Path, place: str, minor: int = 1) -> Path:
    devices = [{"allow": False}, {"allow": True, "type": "c", "major": 195, "minor": minor, "access": "rw"}]
    path = root / place / "config.json"
    _write(path, json.dumps({"linux": {"resources": {"devices": devices}}}))
    return path


def _asked(root: Path, container: Container | None = None) -> tuple[PolicySource, list[int]] | None:
    policy = Fallbacks(HostPaths(root)).read(container or _scope())
    if policy is None:
        return None
    return policy.source, [node.minor for node in GPUS if policy.allows(node, READ_WRITE) is Verdict.ALLOW]


@pytest.mark.parametrize(
    "place",
    [
        f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}",
        f"run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby/{ID}",
        f"run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}",
        f"run/containers/storage/overlay-containers/{ID}/userdata",
        f"var/lib/containers/storage/overlay-containers/{ID}/userdata",
        f"run/crun/{ID}",
    ],
)
def test_the_bundle_is_found_where_engines_keep_it(tmp_path: Path, place: str) -> None:
    root = tmp_path / "a {root}"
    _write_bundle(root, place)
    assert _asked(root) == (PolicySource.OCI, [1])


def test_systemd_is_asked_first_and_what_it_wrote_into_the_unit_itself_counts(tmp_path: Path) -> None:
    _write_bundle(tmp_path, f"run/crun/{ID}")
    _write_unit(tmp_path)
    assert _asked(tmp_path) == (PolicySource.SYSTEMD, [0])
    drop_ins = tmp_path / f"run/systemd/transient/docker-{ID}.scope.d"
    _write(tmp_path / f"run/systemd/transient/docker-{ID}.scope", "[Scope]\nDeviceAllow=/dev/char/195:2 rw\n")
    (drop_ins / "50-DeviceAllow.conf").unlink()
    assert _asked(tmp_path) == (PolicySource.SYSTEMD, [2])


def test_what_cannot_be_read_or_parsed_does_not_answer(tmp_path: Path) -> None:
    _write_unit(tmp_path)
    _write(tmp_path / f"run/systemd/transient/docker-{ID}.scope.d/50-DevicePolicy.conf", "DevicePolicy=nonsense\n")
    assert _asked(tmp_path) is None
    path = _write_bundle(tmp_path, f"run/crun/{ID}")
    assert _asked(tmp_path) == (PolicySource.OCI, [1])
    path.write_text("nonsense")
    assert _asked(tmp_path) is None
    path.unlink()
    path.mkdir()
    assert _asked(tmp_path) is None


def test_a_denial_that_the_containers_dev_cannot_confirm_is_no_answer(tmp_path: Path) -> None:
    _write_bundle(tmp_path, f"run/containerd/io.containerd.runtime.v2.task/moby/{ID}", minor=255)
    folder = tmp_path / "cgroup"
    (tmp_path / "dev").mkdir()  # the host's, to tell the container's from
    _write(folder / "cgroup.procs", "999999\n")  # whose /dev is not there
    assert _asked(tmp_path, _scope(folder)) is None


def test_a_cgroup_that_systemd_did_not_make_has_no_unit(tmp_path: Path) -> None:
    _write_unit(tmp_path)
    assert _asked(tmp_path, Container(CgroupPath(f"/docker/{ID}"), Runtime.DOCKER, ID)) is None


def test_nobody_knows_a_container_without_an_id_a_unit_and_a_process(tmp_path: Path) -> None:
    assert _asked(tmp_path, Container(CgroupPath("/"), Runtime.UNKNOWN)) is None


def test_a_bundle_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    place = f"run/crun/{ID}"
    path = _write_bundle(tmp_path, place)
    fallbacks = Fallbacks(HostPaths(tmp_path))
    first = fallbacks.read(_scope())
    for _ in range(3):
        fallbacks.begin_cycle()
        assert fallbacks.read(_scope()) is first
    path.unlink()
    _write_bundle(tmp_path, place, minor=12)
    changed = fallbacks.read(_scope())
    assert changed is not None
    assert changed.named_minors(195) == {12}


def test_only_nodes_are_devices_and_no_link_is_followed(tmp_path: Path) -> None:
    need(os.geteuid() == 0, "making device nodes needs root")
    for name, kind, major, minor in (
        ("nvidia5", stat.S_IFCHR, 195, 5),
        ("nvidiactl", stat.S_IFCHR, 195, 255),
        ("nvidia6", stat.S_IFBLK, 195, 6),
        ("mem", stat.S_IFCHR, 1, 1),
        ("null", stat.S_IFCHR, 1, 3),
    ):
        os.mknod(tmp_path / name, kind | 0o600, os.makedev(major, minor))
    (tmp_path / "nvidia0").write_text("")
    (tmp_path / "nvidia1").symlink_to("nvidia5")
    (tmp_path / "nvidia-caps").mkdir()
    assert read_nodes(str(tmp_path)) == {"nvidia5": gpu_node(5), "nvidiactl": gpu_node(255), "mem": MEM}
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(HostUnreadable):
        read_nodes(str(tmp_path / "link"))
    assert read_node(str(tmp_path / "nvidia5")) == gpu_node(5)
    assert read_node(str(tmp_path / "nvidia1")) is None
    assert read_node(str(tmp_path / "missing")) is None


def test_the_hosts_dev_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    container = Container(CgroupPath(f"/docker/{ID}"), Runtime.DOCKER, ID, unified=str(tmp_path))
    assert Fallbacks(HostPaths()).read(container) is None


@pytest.mark.parametrize("procs", ["", "0\n"])
def test_a_container_without_a_process_that_can_be_seen_has_no_dev(tmp_path: Path, procs: str) -> None:
    (tmp_path / "cgroup.procs").write_text(procs)
    assert Fallbacks(HostPaths()).read(_scope(tmp_path)) is None


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ([], AccessClass.NONE),
        ([GPUS[0]], AccessClass.EXPLICIT),
        (GPUS, AccessClass.EXPLICIT),
        ([*GPUS, MEM], AccessClass.UNRESTRICTED),
        ([GPUS[0], MEM], AccessClass.EXPLICIT),
    ],
)
def test_the_class_that_nodes_make(present: list[DeviceNode], expected: AccessClass) -> None:
    assert classify(nodes_policy(present), GPUS) is expected


@pytest.mark.parametrize(
    ("present", "expected"), [([], False), ([MEM], False), ([gpu_node(255)], False), ([gpu_node(3)], True)]
)
def test_nodes_that_are_gpus(present: list[DeviceNode], *, expected: bool) -> None:
    assert allows_a_gpu(nodes_policy(present)) is expected


def test_a_fallback_answers_only_what_the_kernel_does_not() -> None:
    stated = nodes_policy(GPUS)
    alone = StandInPolicy(REFUSED, stated)
    beside = StandInPolicy(BothPolicies(parse_devices_list("c 195:1 rw\n"), REFUSED), stated)
    assert [alone.allows(node, READ_WRITE) for node in GPUS] == [Verdict.ALLOW] * 3
    assert [beside.allows(node, READ_WRITE) for node in GPUS] == [Verdict.DENY, Verdict.ALLOW, Verdict.DENY]
    assert beside.named_minors(195) == {1}
    for policy in (alone, beside):
        assert policy.source is PolicySource.NODES
        assert policy.trouble is REFUSED.trouble
