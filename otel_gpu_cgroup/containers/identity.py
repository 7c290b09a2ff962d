# SPDX-License-Identifier: Apache-2.0
"""Pure: what the path of a cgroup tells about the container that it was made for.

A cgroup is a container's if its own name, as a whole, has the form that a runtime gives to a container's cgroup;
the names above it tell the runtime (where the own name does not) and the Kubernetes pod. Monitors (conmon) and
the cgroups inside a container have other forms and are no containers.
"""

from __future__ import annotations

import re
from typing import Final

from otel_gpu_cgroup.model import CgroupPath, Container, Pod, Runtime

_ID: Final = r"(?P<id>[0-9a-f]{64})"
_PREFIXES: Final = {
    "docker": Runtime.DOCKER,
    "cri-containerd": Runtime.CONTAINERD,
    "nerdctl": Runtime.CONTAINERD,
    "crio": Runtime.CRIO,
    "libpod": Runtime.PODMAN,
    "libpod-payload": Runtime.PODMAN,
}
_PREFIX: Final = "(?P<prefix>" + "|".join(sorted(_PREFIXES, key=len, reverse=True)) + ")"
_FORMS: Final = (
    re.compile(rf"{_PREFIX}-{_ID}(?:\.scope)?"),
    re.compile(rf"[^/:]+:{_PREFIX}:{_ID}"),  # a systemd path given to the cgroupfs driver stays one name
    re.compile(_ID),
)
_POD: Final = re.compile(
    r"(?:[^/]*-)?pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice(?::.*)?)?"
)


def parse_container(path: CgroupPath) -> Container | None:
    """The container whose own cgroup this is; None for every other cgroup."""
    *above, name = path.split("/")
    match = next((found for form in _FORMS if (found := form.fullmatch(name))), None)
    if match is None:
        return None
    pod = _parse_pod([*above, name])
    return Container(path, _runtime(match, above), match["id"], pod=pod)


def _runtime(match: re.Match[str], above: list[str]) -> Runtime:
    """The runtime that the name tells, or else the folder it is in; containerd is who uses bare ids elsewhere."""
    prefix = match.groupdict().get("prefix")
    if prefix is not None:
        return _PREFIXES[prefix]
    return Runtime.DOCKER if "docker" in above[-1:] else Runtime.CONTAINERD


def _parse_pod(names: list[str]) -> Pod | None:
    """The innermost pod above a container: a UID, or for a static pod the hash of its configuration."""
    for name in reversed(names):
        if (match := _POD.fullmatch(name)) is not None:
            return Pod(match["uid"].replace("_", "-"))
    return None
