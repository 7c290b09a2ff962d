# SPDX-License-Identifier: Apache-2.0
"""Pure: which container a person means by a word, and what of a cycle concerns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from otel_gpu_cgroup.model import Container, Problem

LEAST_DIGITS: Final = 4
"""A beginning of an id that is shorter names too many."""


def select_containers(wanted: str, containers: Sequence[Container]) -> list[Container]:
    """Those that the word names: by id or cgroup, else by name or namespace/pod[/container], else by the id's begin."""
    path = f"/{wanted.strip('/')}"
    ways: tuple[Callable[[Container], bool], ...] = (
        lambda container: wanted == container.id or path == container.cgroup,
        lambda container: wanted == container.name or wanted in _kubernetes_names(container),
        lambda container: len(wanted) >= LEAST_DIGITS and (container.id or "").startswith(wanted),
    )
    found = ([container for container in containers if is_meant(container)] for is_meant in ways)
    return next(filter(None, found), [])


def _kubernetes_names(container: Container) -> tuple[str, ...]:
    pod = container.pod
    if pod is None or pod.namespace is None or pod.name is None:
        return ()
    name = f"{pod.namespace}/{pod.name}"
    return (name,) if pod.container is None else (name, f"{name}/{pod.container}")


def find_outer(container: Container, containers: Iterable[Container]) -> Container | None:
    """The innermost of the containers that this one is in; None where it is in no other."""
    around = (other for other in containers if container.cgroup.startswith(f"{other.cgroup}/"))
    return max(around, key=lambda other: len(other.cgroup), default=None)


def name_trouble(container: Container, problems: Iterable[Problem]) -> str | None:
    """Why not all of its names are told: what a cycle says of it, or of all pods."""
    is_nameless = container.pod is not None and container.pod.name is None
    subjects = (container.cgroup, "pods") if is_nameless else (container.cgroup,)
    found = (it.message for it in problems if it.stage is Stage.NAMES and it.subject in subjects)
    return next(found, None)
