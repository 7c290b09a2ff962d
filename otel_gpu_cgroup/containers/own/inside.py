# SPDX-License-Identifier: Apache-2.0
"""Pure: what a process can tell of the container that it is in, from its own cgroup and its own mounts.

Where a cgroup namespace hides the path, Docker and podman still show the id as the folder of the files that they
mount into /etc. In Kubernetes those files belong to the sandbox and show its id, not the container's, which cannot
be told then; kubelet's own mounts show the pod's UID and the container's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.containers.identity import parse_container
from otel_gpu_cgroup.model import CgroupPath, Container, Pod, Runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.containers.discovery.mounts import Mount

_ETC: Final = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")
_OWNERS: Final = (
    (re.compile(r".*/overlay-containers/([0-9a-f]{64})/userdata/[a-z.]+"), Runtime.PODMAN),
    (re.compile(r".*/containers/([0-9a-f]{64})/[a-z.]+"), Runtime.DOCKER),
)
_POD: Final = re.compile(
    r"(?:.*/)?pods/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})/(?:etc-hosts|containers/([^/]+)/[^/]+)"
)
_KUBERNETES: Final = re.compile(r"/dev/termination-log|(?:/var)?/run/secrets/kubernetes\.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class BoundMount:
    """A mount, as far as it matters here."""

    root: str
    point: str


def parse_own_paths(proc_cgroup: str) -> dict[str, str]:
    """The paths that a /proc/self/cgroup shows, by controller; cgroup2's is "" there."""
    paths = {}
    for line in proc_cgroup.split("\n"):
        match line.split(":", 2):
            case [_, controllers, path] if path.startswith("/"):
                paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def own_folder(mount: Mount | None, path: str | None) -> str | None:
    """Where a process' own cgroup is in this mount; None where it is not in it."""
    if mount is None or path is None:
        return None
    if path == mount.root:
        return mount.point
    top = mount.root.rstrip("/") + "/"
    return f"{mount.point}/{path.removeprefix(top)}" if path.startswith(top) else None


def parse_own_container(proc_cgroup: str, mountinfo: str) -> Container:
    """The container of the process whose files these are; what they do not tell is None."""
    paths = parse_own_paths(proc_cgroup)
    path = CgroupPath(paths.get("devices") or paths.get("") or "/")
    named = next((found for above in parse_upwards(path) if (found := parse_container(above)) is not None), None)
    mounts = tuple(_parse_mounts(mountinfo))
    pod = _pod(mounts)
    if named is not None and not named.is_unit:
        return replace(named, pod=_merged(named.pod, pod))
    if pod is not None or any(_KUBERNETES.fullmatch(mount.point) for mount in mounts):
        return Container(path, Runtime.UNKNOWN, pod=pod)
    if (owner := next(_owners(mounts), None)) is not None:
        return Container(path, *owner)  # whose systemd the unit may be of
    return named or Container(path, Runtime.UNKNOWN)


def parse_upwards(path: str) -> Iterator[CgroupPath]:
    """The path and those above it, but the top."""
    while path.strip("/"):
        yield CgroupPath(path)
        path = path.rpartition("/")[0]


def _parse_mounts(mountinfo: str) -> Iterator[BoundMount]:
    for line in mountinfo.split("\n"):
        fields = line.split(" ")
        if len(fields) > 6:
            yield BoundMount(fields[3], fields[4])


def _owners(mounts: tuple[BoundMount, ...]) -> Iterator[tuple[Runtime, str]]:
    for mount in mounts:
        for form, runtime in _OWNERS:
            match = form.fullmatch(mount.root)
            if mount.point in _ETC and match is not None:
                yield runtime, match[1]


def _pod(mounts: tuple[BoundMount, ...]) -> Pod | None:
    """The pod and the container's name, by the files that kubelet mounts at /etc/hosts and /dev/termination-log."""
    matches = [match for mount in mounts if (match := _POD.fullmatch(mount.root)) is not None]
    uid = next((match[1] for match in matches), None)
    name = next((match[2] for match in matches if match[2] is not None), None)
    return None if uid is None else Pod(uid, container=name)


def _merged(from_path: Pod | None, from_mounts: Pod | None) -> Pod | None:
    if from_path is None or from_mounts is None:
        return from_path or from_mounts
    return replace(from_path, container=from_mounts.container)
