# SPDX-License-Identifier: Apache-2.0
"""What a cgroup's path tells: paths as the runtimes make them, and paths that only look alike."""

from __future__ import annotations

from typing import Final

import pytest

from otel_gpu_cgroup.containers.identity import parse_container
from otel_gpu_cgroup.model import CgroupPath, Container, Pod, Runtime

ID: Final = "4f1d9c0a7be25d83" * 4
OTHER: Final = "0a1b2c3d4e5f6789" * 4
UID: Final = "7f0dd8f9-4b9c-4d5e-a5b3-9a1c1f0d1b2e"
UID_: Final = UID.replace("-", "_")
HASH: Final = "5a1e6c4f0d3b2a9887766554433221ff"
KIND: Final = "/kubelet.slice/kubelet-kubepods.slice"
DOCKER, CONTAINERD, CRIO, PODMAN = Runtime.DOCKER, Runtime.CONTAINERD, Runtime.CRIO, Runtime.PODMAN


@pytest.mark.parametrize(
    ("path", "runtime"),
    [
        (f"/docker/{ID}", DOCKER),
        (f"/system.slice/docker-{ID}.scope", DOCKER),
        (f"/my-parent.slice/docker-{ID}.scope", DOCKER),
        (f"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope", DOCKER),
        (f"/docker/{OTHER}/docker/{ID}", DOCKER),
        (f"/ecstasks.slice/ecstasks-{HASH}.slice/docker-{ID}.scope", DOCKER),
        (f"/default/{ID}", CONTAINERD),
        (f"/docker/other/{ID}", CONTAINERD),
        (f"/{ID}", CONTAINERD),
        (f"/system.slice/nerdctl-{ID}.scope", CONTAINERD),
        (f"/system.slice/cri-containerd-{ID}.scope", CONTAINERD),
        (f"/system.slice/crio-{ID}.scope", CRIO),
        (f"/crio-{ID}", CRIO),
        (f"/machine.slice/libpod-{ID}.scope", PODMAN),
        (f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope", PODMAN),
        (f"/libpod_parent/libpod-{ID}", PODMAN),
        (f"/system.slice/web.service/libpod-payload-{ID}", PODMAN),
    ],
)
def test_containers_without_a_pod(path: str, runtime: Runtime) -> None:
    assert parse_container(CgroupPath(path)) == Container(CgroupPath(path), runtime, ID)


@pytest.mark.parametrize(
    ("path", "runtime", "uid"),
    [
        (f"/kubepods/burstable/pod{UID}/{ID}", CONTAINERD, UID),
        (f"/kubepods/besteffort/pod{UID}/{ID}", CONTAINERD, UID),
        (f"/kubepods/pod{UID}/{ID}", CONTAINERD, UID),
        (f"/kubepods/burstable/pod{UID}/crio-{ID}", CRIO, UID),
        (f"/kubepods/burstable/pod{HASH}/{ID}", CONTAINERD, HASH),
        (f"/kubelet/kubepods/burstable/pod{UID}/{ID}", CONTAINERD, UID),
        (f"/k3s/kubepods/pod{UID}/{ID}", CONTAINERD, UID),
        (f"/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope", CONTAINERD, UID),
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope",
            CONTAINERD,
            UID,
        ),
        (
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID_}.slice/docker-{ID}.scope",
            DOCKER,
            UID,
        ),
        (f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/crio-{ID}.scope", CRIO, UID),
        (f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{HASH}.slice/crio-{ID}.scope", CRIO, HASH),
        (
            f"{KIND}/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope",
            CONTAINERD,
            UID,
        ),
        (
            f"/system.slice/docker-{OTHER}.scope{KIND}/kubelet-kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope",
            CONTAINERD,
            UID,
        ),
        (f"/docker/{OTHER}/kubelet/kubepods/besteffort/pod{UID}/{ID}", CONTAINERD, UID),
        (f"/kubepods-burstable-pod{UID_}.slice:cri-containerd:{ID}", CONTAINERD, UID),
        (f"/system.slice/containerd.service/kubepods-pod{UID_}.slice:cri-containerd:{ID}", CONTAINERD, UID),
        (f"/kubepods-besteffort-pod{UID_}.slice:crio:{ID}", CRIO, UID),
        (f"/kubepods/pod{HASH}/pod{UID}/{ID}", CONTAINERD, UID),
    ],
)
def test_containers_of_a_pod(path: str, runtime: Runtime, uid: str) -> None:
    assert parse_container(CgroupPath(path)) == Container(CgroupPath(path), runtime, ID, pod=Pod(uid))


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "/docker",
        "/system.slice",
        "/system.slice/ssh.service",
        "/user.slice/user-1000.slice/session-3.scope",
        "/system.slice/docker.service",
        "/kubepods.slice",
        "/kubepods/burstable",
        f"/kubepods/burstable/pod{UID}",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice",
        f"/machine.slice/libpod-conmon-{ID}.scope",
        f"/kubepods.slice/kubepods-pod{UID_}.slice/crio-conmon-{ID}.scope",
        f"/system.slice/docker-{ID}.mount",
        f"/system.slice/var-lib-docker-containers-{ID}-shm.mount",
        f"/machine.slice/libpod-{ID}.scope/container",
        f"/docker/{ID}/init.scope",
        f"/docker/{ID}/",
        f"/docker/{ID[:-1]}",
        f"/docker/{ID}0",
        f"/docker/{ID[:32]}",
        f"/docker/{ID[:12]}",
        f"/docker/{ID.upper()}",
        f"/docker/{ID[:-1]}g",
        f"/docker/ {ID}",
        f"/docker/{ID}\n",
        f"/docker/\n{ID}",
        f"/docker/docker-{ID}.scope.d",
        f"/docker/x{ID}",
        f"/docker/unknown-{ID}.scope",
        f"/system.slice/cri-containerd-{ID}.scope\x1b[31m",
        f"/kubepods-pod{UID_}.slice:unknown:{ID}",
        f"/a:b:cri-containerd:{ID}",
        f"/:cri-containerd:{ID}",
        f"/lxc.payload.one/{ID[:8]}",
        f"/buildkit/{ID[:25]}",
        "/garden/70eb4ce5-a065-4401-6990-88ed",
        "/docker/" + "\u0664" * 64,
    ],
)
def test_cgroups_that_are_no_containers(path: str) -> None:
    assert parse_container(CgroupPath(path)) is None


@pytest.mark.parametrize(
    "name",
    [
        f"pod{UID[:-1]}",
        f"pod{UID}0",
        f"xpod{UID}",
        f"pod{UID.upper()}",
        f"pod{HASH[:-1]}",
        f"pod_{HASH}",
        "podinfo",
        f"kubepods-pod{UID_}.slice.d",
        f"libpod-{HASH}",
    ],
)
def test_names_that_are_no_pod(name: str) -> None:
    found = parse_container(CgroupPath(f"/kubepods/{name}/{ID}"))
    assert found is not None
    assert found.pod is None


def test_the_key_is_the_id() -> None:
    assert Container(CgroupPath("/docker/x"), DOCKER, ID).key == ID
    assert Container(CgroupPath("/docker/x"), DOCKER).key == "/docker/x"
