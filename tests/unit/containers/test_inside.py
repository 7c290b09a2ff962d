# SPDX-License-Identifier: Apache-2.0
"""What a process can tell of its own container, as runtimes show it."""

from __future__ import annotations

from typing import Final

import pytest

from otel_gpu_cgroup.containers.discovery.mounts import Mount
from otel_gpu_cgroup.containers.own.inside import own_folder, parse_own_container, parse_own_paths
from otel_gpu_cgroup.model import Pod, Runtime

ID: Final = "c1" * 32
SANDBOX: Final = "5a" * 32
UID: Final = "0d5e4ecd-9e29-4f2f-8b0c-2d7a1de5b0a7"
DOCKER: Final = f"""\
700 600 0:60 / / rw,relatime - overlay overlay rw
704 703 0:27 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw
710 700 8:1 /var/lib/docker/containers/{ID}/resolv.conf /etc/resolv.conf rw,relatime - ext4 /dev/sda1 rw
711 700 8:1 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw,relatime - ext4 /dev/sda1 rw
"""
PODMAN: Final = f"""\
711 700 0:24 /containers/storage/overlay-containers/{ID}/userdata/hostname /etc/hostname rw - tmpfs tmpfs rw
"""
CONTAINERD_POD: Final = f"""\
711 700 8:1 /var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/{SANDBOX}/hostname /etc/hostname rw - ext4 a rw
712 700 8:1 /var/lib/kubelet/pods/{UID}/etc-hosts /etc/hosts rw,relatime - ext4 /dev/sda1 rw
713 700 8:1 /var/lib/kubelet/pods/{UID}/containers/trainer/1f2e3d4c /dev/termination-log rw - ext4 /dev/sda1 rw
"""
CRIO_POD: Final = f"""\
711 700 0:24 /containers/storage/overlay-containers/{SANDBOX}/userdata/hostname /etc/hostname rw - tmpfs tmpfs rw
712 700 8:1 /pods/{UID}/etc-hosts /etc/hosts rw,relatime - ext4 /dev/sda1 rw
"""
OLD_POD: Final = f"""\
711 700 8:1 /var/lib/docker/containers/{SANDBOX}/hostname /etc/hostname rw - ext4 /dev/sda1 rw
715 700 0:70 / /var/run/secrets/kubernetes.io/serviceaccount ro,relatime - tmpfs tmpfs rw
"""
NAMESPACE: Final = "0::/\n"


@pytest.mark.parametrize(
    ("mountinfo", "runtime", "identifier"),
    [
        (DOCKER, Runtime.DOCKER, ID),
        (PODMAN, Runtime.PODMAN, ID),
        ("", Runtime.UNKNOWN, None),
        (f"711 700 8:1 /srv/containers/{ID}/data /data rw - ext4 /dev/sda1 rw\n", Runtime.UNKNOWN, None),
        (
            f"711 700 8:1 /var/lib/docker/containers/{ID[:63]}/hostname /etc/hostname rw - ext4 a rw\n",
            Runtime.UNKNOWN,
            None,
        ),
    ],
)
def test_the_files_in_etc_show_the_id_where_a_namespace_hides_the_path(
    mountinfo: str, runtime: Runtime, identifier: str | None
) -> None:
    container = parse_own_container(NAMESPACE, mountinfo)
    assert (container.runtime, container.id, container.cgroup) == (runtime, identifier, "/")
    assert container.key == (identifier or "/")
    assert container.pod is None


@pytest.mark.parametrize(
    ("mountinfo", "pod"),
    [(CONTAINERD_POD, Pod(UID, container="trainer")), (CRIO_POD, Pod(UID)), (OLD_POD, None)],
)
def test_in_kubernetes_the_sandboxs_id_is_not_the_containers(mountinfo: str, pod: Pod | None) -> None:
    container = parse_own_container(NAMESPACE, mountinfo)
    assert (container.id, container.key, container.pod) == (None, "/", pod)


@pytest.mark.parametrize(
    ("proc_cgroup", "cgroup"),
    [
        (f"5:devices:/docker/{ID}\n1:cpu:/elsewhere\n0::/\n", f"/docker/{ID}"),
        (f"5:cpu,devices:/docker/{ID}/inner/most\n", f"/docker/{ID}"),
        (f"0::/system.slice/docker-{ID}.scope\n", f"/system.slice/docker-{ID}.scope"),
    ],
)
def test_a_path_that_is_shown_names_the_container(proc_cgroup: str, cgroup: str) -> None:
    container = parse_own_container(proc_cgroup, OLD_POD)
    assert (container.id, container.runtime, container.cgroup) == (ID, Runtime.DOCKER, cgroup)


def test_the_path_tells_the_pod_and_the_mounts_the_containers_name() -> None:
    path = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope"
    container = parse_own_container(f"0::{path}\n", CONTAINERD_POD)
    assert (container.id, container.pod) == (ID, Pod(UID, container="trainer"))
    assert parse_own_container(f"0::{path}\n", "").pod == Pod(UID)


def test_paths_by_controller() -> None:
    text = "9:name=systemd:/a\n5:cpu,devices:/b:c\n0::/d\nnonsense\n7:memory:relative\n"
    assert parse_own_paths(text) == {"name=systemd": "/a", "cpu": "/b:c", "devices": "/b:c", "": "/d"}


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        ("/", "/", "/sys/fs/cgroup"),
        ("/", "/docker/one", "/sys/fs/cgroup/docker/one"),
        ("/docker/one", "/docker/one", "/sys/fs/cgroup"),
        ("/docker/one", "/docker/one/inner", "/sys/fs/cgroup/inner"),
        ("/docker/one", "/docker/one2", None),
        ("/docker/one", "/", None),
        ("/", None, None),
    ],
)
def test_where_the_own_cgroup_is(root: str, path: str | None, expected: str | None) -> None:
    assert own_folder(Mount("/sys/fs/cgroup", root, None), path) == expected
    assert own_folder(None, path) is None


@pytest.mark.parametrize(
    ("mountinfo", "runtime", "identifier", "name"),
    [
        (DOCKER, Runtime.DOCKER, ID, None),  # a systemd in the container, whose namespace hides what is above
        (CONTAINERD_POD, Runtime.UNKNOWN, None, None),
        ("", Runtime.SYSTEMD, None, "trainer.service"),
    ],
)
def test_a_unit_is_the_hosts_where_no_mount_tells_of_a_container(
    mountinfo: str, runtime: Runtime, identifier: str | None, name: str | None
) -> None:
    container = parse_own_container("0::/system.slice/trainer.service\n", mountinfo)
    assert (container.runtime, container.id, container.name) == (runtime, identifier, name)
