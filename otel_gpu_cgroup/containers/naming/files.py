# SPDX-License-Identifier: Apache-2.0
"""Reads the files in which engines and kubelet leave the names of containers, each bounded, none followed by a link.

What many containers ask for is read once in a cycle, and only if one asks.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from otel_gpu_cgroup.bundles import Bundles
from otel_gpu_cgroup.containers.naming.names import Told, in_kubernetes, is_label
from otel_gpu_cgroup.containers.naming.texts import (
    parse_bundle_names,
    parse_docker_config,
    parse_log_name,
    parse_log_target,
    parse_pod_folder,
    parse_storage,
)
from otel_gpu_cgroup.errors import Gone, HostUnreadable, ParseError
from otel_gpu_cgroup.model import Problem, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_gpu_cgroup.host import Files, HostPaths
    from otel_gpu_cgroup.model import Container

T = TypeVar("T")
NOT_YET: Final = Told()
"""What is said of a container (`is`) where a source is here and has nothing of it; where none is here, it is None."""
MOST_ENTRIES: Final = 100_000
"""No more entries of a folder of logs are looked at; a node has some hundred."""
_MOST_CONTAINERS: Final = 1000
"""Of one pod's folder."""
_STORAGE: Final = "/var/lib/containers/storage/overlay-containers"
_STORED: Final = ("containers.json", "volatile-containers.json")
"""The second holds those that are removed when they end."""


class NameFiles:
    """What each file tells of a container; all raise HostUnreadable or ParseError for one that is not as it should."""

    def __init__(self, host: HostPaths, files: Files) -> None:
        self._files = files
        self._bundles = Bundles(host, files)
        self._logs = _Shared(os.fspath(host.under_root("/var/log/containers")), self._read_logs)
        self._pods = _Shared(os.fspath(host.under_root("/var/log/pods")), self._read_pods)
        self._docker = _Shared(os.fspath(host.under_root("/var/lib/docker/containers")), files.read_status)
        storage = os.fspath(host.under_root(_STORAGE))
        self._stored = [_Shared(f"{storage}/{file}", self._read_storage) for file in _STORED]
        self._shared: tuple[_Shared[Any], ...] = (self._logs, self._pods, self._docker, *self._stored)

    def begin_cycle(self) -> None:
        """Read anew what many ask for."""
        self._bundles.begin_cycle()
        for shared in self._shared:
            shared.begin_cycle()

    @property
    def problems(self) -> list[Problem]:
        """What could not be read in this cycle of what many ask for."""
        return [shared.trouble for shared in self._shared if shared.trouble is not None]

    def of_bundle(self, container: Container) -> Told | None:
        """The annotations of its OCI bundle."""
        bundle = None if container.id is None else self._bundles.find(container.id)
        if bundle is None:
            return NOT_YET if self._bundles.are_here else None
        return parse_bundle_names(self._files.read_stored(bundle.path), in_kubernetes=in_kubernetes(container))

    def of_log(self, container: Container) -> Told | None:
        """The name of its log in /var/log/containers, and of where that points to."""
        logs = self._logs.value()
        if logs is None:
            return self._logs.silence
        name = logs.get(container.id or "")
        if name is None:
            return NOT_YET
        told = parse_log_name(name)
        if told is None:
            raise ParseError(name, "the name of a container's log")
        return self._with_target(told, name)

    def of_docker(self, container: Container) -> Told | None:
        """Docker's own file."""
        if container.id is None or self._docker.value() is None:
            return self._docker.silence
        try:
            text = self._files.read_stored(f"{self._docker.path}/{container.id}/config.v2.json")
        except Gone:
            return NOT_YET
        return parse_docker_config(text, in_kubernetes=in_kubernetes(container))

    def of_storage(self, container: Container) -> Told | None:
        """Podman's lists of containers."""
        here = [names for shared in self._stored if (names := shared.value()) is not None]
        found = (names[container.id] for names in here if container.id in names)
        is_here = here or any(shared.silence is NOT_YET for shared in self._stored)
        return next((Told(name) for name in found), NOT_YET if is_here else None)

    def of_pod_folder(self, container: Container) -> Told | None:
        """Its pod's folder in /var/log/pods, which does not tell its containers' ids."""
        name = self._pod_folder(container)
        return self._pods.silence if name is None else parse_pod_folder(name) or NOT_YET

    def of_only_container(self, container: Container) -> Told | None:
        """The one folder in its pod's; nothing where that has several."""
        name = self._pod_folder(container)
        if not name:
            return None
        names = self._files.read_names(f"{self._pods.path}/{name}", _MOST_CONTAINERS)
        labels = [label for label in names if is_label(label)]
        return Told(container=labels[0]) if len(labels) == 1 else None

    def _pod_folder(self, container: Container) -> str | None:
        """Its name; empty where there are others, None without any."""
        pods = self._pods.value()
        return None if pods is None or container.pod is None else pods.get(container.pod.uid, "")

    def _with_target(self, told: Told, name: str) -> Told:
        """With the pod's UID, which the link tells alone; raises ParseError for one that points to another's log."""
        try:
            target = parse_log_target(self._files.read_link(f"{self._logs.path}/{name}"))
        except Gone:
            return NOT_YET
        except HostUnreadable:
            return told  # it is no link: its name is all it tells
        if target is None:
            return told
        if (target.pod, target.namespace, target.container) != (told.pod, told.namespace, told.container):
            raise ParseError(name, "a link to the log of the container that it names")
        return target

    def _read_logs(self, folder: str) -> dict[str, str]:
        """The names of logs by the ids in them."""
        return {name[-68:-4]: name for name in self._entries(folder, self._logs) if name.endswith(".log")}

    def _read_pods(self, folder: str) -> dict[str, str]:
        """The names of pods' folders by the UIDs in them."""
        return {name.rpartition("_")[2]: name for name in self._entries(folder, self._pods)}

    def _entries(self, folder: str, shared: _Shared[Any]) -> list[str]:
        names = self._files.read_names(folder, MOST_ENTRIES + 1)
        if len(names) > MOST_ENTRIES:
            shared.complain(f"holds more than {MOST_ENTRIES} entries, of which the rest is not looked at; remove some")
        return names[:MOST_ENTRIES]

    def _read_storage(self, path: str) -> dict[str, str]:
        return parse_storage(self._files.read_stored(path))


class _Shared(Generic[T]):
    """What is read once in a cycle, if at all; None where it is not here or cannot be read."""

    def __init__(self, path: str, read: Callable[[str], T]) -> None:
        self.path = path
        self.trouble: Problem | None = None
        self._read = read
        self._read_values: list[T | None] = []

    def begin_cycle(self) -> None:
        self.trouble, self._read_values = None, []

    def value(self) -> T | None:
        if not self._read_values:
            self._read_values.append(self._tried())
        return self._read_values[0]

    @property
    def silence(self) -> Told | None:
        """What there is to say without a value: it may be readable yet, or is not here."""
        return None if self.trouble is None else NOT_YET

    def complain(self, message: str) -> None:
        self.trouble = Problem(Stage.NAMES, self.path, message)

    def _tried(self) -> T | None:
        try:
            return self._read(self.path)
        except Gone:
            return None
        except (HostUnreadable, ParseError) as error:
            self.complain(str(error))
            return None
