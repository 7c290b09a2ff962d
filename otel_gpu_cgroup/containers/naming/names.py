# SPDX-License-Identifier: Apache-2.0
"""Pure: what sources of names tell of a container, what that makes of it, and which globs it answers to."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import Pod, Runtime

if TYPE_CHECKING:
    from otel_gpu_cgroup.model import Container

_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[-.a-z0-9]*[a-z0-9])?")
_UID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
_OF_KUBERNETES: Final = frozenset({Runtime.CONTAINERD, Runtime.CRIO})
"""Whose word on pods counts without a pod in the cgroup's path.

With Docker and podman anybody may annotate a container, and old podman called each one a sandbox.
"""


@dataclass(frozen=True, slots=True)
class Told:
    """What one source, or several, tell of a container; None for what they do not."""

    name: str | None = None
    """What people call it outside Kubernetes."""
    pod: str | None = None
    namespace: str | None = None
    uid: str | None = None
    container: str | None = None
    """Its name within its pod."""
    is_sandbox: bool = False
    """Whether it only holds a pod's place."""

    def __or__(self, other: Told) -> Told:
        """The same, with the other's word where this has none."""
        return Told(
            self.name or other.name,
            self.pod or other.pod,
            self.namespace or other.namespace,
            self.uid or other.uid,
            self.container or other.container,
            self.is_sandbox or other.is_sandbox,
        )


def is_label(text: str) -> bool:
    """Whether Kubernetes may call a namespace or a container so."""
    return _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Whether Kubernetes may call a pod so."""
    return _SUBDOMAIN.fullmatch(text) is not None


def is_uid(text: str) -> bool:
    """Whether it is a pod's UID, or what stands for it with a static pod: the hash of its configuration."""
    return _UID.fullmatch(text) is not None


def in_kubernetes(container: Container) -> bool:
    """Whether a word on pods counts: where Kubernetes makes containers, and nobody else may annotate them."""
    return container.pod is not None or container.runtime in _OF_KUBERNETES


def named(container: Container, told: Told) -> Container:
    """The container with its names; what its cgroup told stays."""
    pod = _pod(container.pod, told)
    name = container.name or told.name if pod is None else pod.container or container.name
    if pod == container.pod and name == container.name:
        return container
    return replace(container, pod=pod, name=name)


def has_names(container: Container) -> bool:
    """Whether nothing is left to be told."""
    pod = container.pod
    return container.name is not None and (pod is None or None not in (pod.name, pod.namespace, pod.container))


def matches(container: Container, glob: str) -> bool:
    """Whether a glob names it: by namespace/pod/container, its name, its id or its cgroup; `*` also stands for `/`."""
    pod = container.pod
    path = None if pod is None else "/".join(part or "" for part in (pod.namespace, pod.name, pod.container))
    words = (path, container.name, container.id, container.cgroup)
    return any(fnmatch.fnmatchcase(word, glob) for word in words if word is not None)


def _pod(known: Pod | None, told: Told) -> Pod | None:
    """A pod needs a UID: what nothing identifies is not reported as one."""
    uid = told.uid if known is None else known.uid
    if uid is None:
        return None
    before = known or Pod(uid)
    return Pod(uid, before.name or told.pod, before.namespace or told.namespace, before.container or told.container)
