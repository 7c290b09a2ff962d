# SPDX-License-Identifier: Apache-2.0
"""Pure: which container a person means by a word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_gpu_cgroup.model import Container

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
