# SPDX-License-Identifier: Apache-2.0
"""Asks the sources of a container's names in the order of the trust that they deserve, and believes none blindly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from otel_gpu_cgroup.containers.naming.files import NOT_YET, NameFiles
from otel_gpu_cgroup.containers.naming.names import Told, has_names, named
from otel_gpu_cgroup.errors import HostUnreadable, ParseError
from otel_gpu_cgroup.model import Problem, Runtime, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from otel_gpu_cgroup.host import Files, HostPaths
    from otel_gpu_cgroup.model import Container

_Source: TypeAlias = "Callable[[Container], Told | None]"
DOCKERS: Final = frozenset({Runtime.DOCKER, Runtime.ECS})
"""Whose containers are Docker's."""


@dataclass(slots=True)
class Answer:
    """What the sources tell of one container."""

    told: Told = NOT_YET
    is_awaited: bool = False
    """Whether a source is here that has nothing of it yet, or could not be read this time."""
    is_source_here: bool = False
    problems: list[Problem] = field(default_factory=list)


class NameSources:
    """What is known of a container's names."""

    def __init__(self, host: HostPaths, files: Files) -> None:
        self._files = NameFiles(host, files)

    def begin_cycle(self) -> None:
        """Read anew what many containers ask for."""
        self._files.begin_cycle()

    def ask(self, container: Container, *, is_alone: bool) -> Answer:
        """What they tell; of one that is alone in its pod also what tells of the pod alone. Never raises."""
        answer = Answer()
        for source, what in self._sources(container, answer):
            _add(source, what, container, answer)
            if answer.told.is_sandbox or has_names(named(container, answer.told)):
                break
        else:
            answer.is_awaited |= answer.told.pod is not None  # in the end its pod's folder may tell the rest
            if is_alone:
                _add(self._files.of_only_container, "its pod's folder", container, answer)
        answer.problems += self._files.problems
        return answer

    def _sources(self, container: Container, answer: Answer) -> Iterator[tuple[_Source, str]]:
        """Those that may know it, the most trusted first."""
        files, is_pod = self._files, container.pod is not None
        if not is_pod and container.runtime in DOCKERS:
            yield files.of_docker, "Docker's file"
        elif not is_pod and container.runtime is Runtime.PODMAN:
            yield files.of_storage, "podman's list"
        else:
            yield files.of_bundle, "its OCI bundle"
            is_bundled = answer.is_source_here and not answer.is_awaited
            if is_pod or answer.told.pod is not None or not is_bundled:
                yield files.of_log, "its log"
            if is_pod:
                yield files.of_docker, "Docker's file"
                yield files.of_pod_folder, "its pod's folder"


def _add(source: _Source, what: str, container: Container, answer: Answer) -> None:
    """Ask one, and believe it if it tells of the pod that the cgroup is of."""
    try:
        told = source(container)
    except (HostUnreadable, ParseError) as error:
        answer.problems.append(Problem(Stage.NAMES, container.cgroup, f"{what} tells no names: {error}"))
        answer.is_source_here = answer.is_awaited = True
        return
    if told is None:
        return
    answer.is_source_here = True
    answer.is_awaited |= told is NOT_YET
    if container.pod is not None and told.uid not in (None, container.pod.uid):
        message = f"{what} is of pod {told.uid}, its cgroup of {container.pod.uid}; stale or foreign, no name is taken"
        answer.problems.append(Problem(Stage.NAMES, container.cgroup, message))
    else:
        answer.told |= told
