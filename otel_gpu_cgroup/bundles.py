# SPDX-License-Identifier: Apache-2.0
"""Finds the OCI bundle of a container: the folder whose config.json its engine handed to the runtime. Only reads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_gpu_cgroup import host as host_files
from otel_gpu_cgroup.errors import Gone, HostUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.host import Files, HostPaths

_TASKS: Final = "io.containerd.runtime.v2.task"
_CONTAINERDS: Final = tuple(
    f"{place}/{_TASKS}" for place in ("/run/containerd", "/run/docker/containerd/daemon", "/run/k3s/containerd")
)
"""Below each a folder for every namespace, such as k8s.io or moby, and in that one for every container's bundle."""
_OTHERS: Final = (
    ("/run/containers/storage/overlay-containers", "userdata/config.json"),
    ("/var/lib/containers/storage/overlay-containers", "userdata/config.json"),
    ("/run/crun", "config.json"),
)
"""Where CRI-O and podman keep bundles, and crun a copy of the configuration: below a folder for every container."""


class Bundle(NamedTuple):
    """A bundle's configuration."""

    path: str
    """Of its config.json, for this process."""
    state: tuple[int, ...]
    """What tells that the file is another one, or has changed."""


class Bundles:
    """Finds bundles; which folders may hold some is asked once in a cycle."""

    def __init__(self, host: HostPaths, files: Files = host_files) -> None:
        self._host = host
        self._files = files
        self._places: list[tuple[str, str]] | None = None

    def begin_cycle(self) -> None:
        """Look anew for folders that may hold bundles."""
        self._places = None

    @property
    def are_here(self) -> bool:
        """Whether any folder is here that may hold some."""
        return bool(self._known_places())

    def find(self, container_id: str) -> Bundle | None:
        """The bundle of the container with this id; None where there is none. Raises HostUnreadable."""
        if "/" in container_id or container_id in ("", ".", ".."):
            return None
        for folder, file in self._known_places():
            path = f"{folder}/{container_id}/{file}"
            try:
                return Bundle(path, _state(self._files.read_status(path)))
            except Gone:
                continue
        return None

    def _known_places(self) -> list[tuple[str, str]]:
        if self._places is None:
            others = ((os.fspath(self._host.under_root(folder)), file) for folder, file in _OTHERS)
            self._places = [
                *((folder, "config.json") for folder in self._namespaces()),
                *(place for place in others if self._is_here(place[0])),
            ]
        return self._places

    def _namespaces(self) -> Iterator[str]:
        for place in _CONTAINERDS:
            folder = os.fspath(self._host.under_root(place))
            try:
                yield from (f"{folder}/{name}" for name in self._files.read_names(folder))
            except HostUnreadable:
                continue

    def _is_here(self, folder: str) -> bool:
        try:
            self._files.read_status(folder)
        except HostUnreadable:
            return False
        return True


def _state(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
