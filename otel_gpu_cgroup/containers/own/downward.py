# SPDX-License-Identifier: Apache-2.0
"""Pure: what the environment of a process in Kubernetes tells of its own pod.

Kubernetes' downward API puts it there under names that a manifest chooses; these are the usual ones. They count in a
pod alone, as elsewhere NAMESPACE may be anything, and not where the UID is of another pod than the mounts'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from otel_gpu_cgroup.containers.naming.names import Told, is_label, is_subdomain, is_uid, named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_gpu_cgroup.model import Container

_ATTRIBUTES: Final = "OTEL_RESOURCE_ATTRIBUTES"
_POD: Final = ("K8S_POD_NAME", "k8s.pod.name", "POD_NAME")
_NAMESPACE: Final = ("K8S_NAMESPACE_NAME", "K8S_POD_NAMESPACE", "k8s.namespace.name", "POD_NAMESPACE", "NAMESPACE")
_UID: Final = ("K8S_POD_UID", "k8s.pod.uid", "POD_UID")
_CONTAINER: Final = ("K8S_CONTAINER_NAME", "k8s.container.name", "CONTAINER_NAME")


def with_downward_names(own: Container, environment: Mapping[str, str]) -> Container:
    """A process' own container with the names that its environment tells; what its mounts tell stays."""
    told = parse_downward_names(environment)
    if own.pod is None and told.uid is None:
        return own
    if own.pod is not None and told.uid not in (None, own.pod.uid):
        told = Told()
    return named(own, told)


def parse_downward_names(environment: Mapping[str, str]) -> Told:
    """What an environment tells of a pod; what Kubernetes would not call one is passed over."""
    words = {**environment, **_parse_attributes(environment.get(_ATTRIBUTES, ""))}
    return Told(
        pod=_first(words, _POD, is_subdomain),
        namespace=_first(words, _NAMESPACE, is_label),
        uid=_first(words, _UID, is_uid),
        container=_first(words, _CONTAINER, is_label),
    )


def _parse_attributes(text: str) -> dict[str, str]:
    """`KEY=VALUE,KEY=VALUE`, the values percent-encoded, as OpenTelemetry's specification has it."""
    pairs = (pair.partition("=") for pair in text.split(","))
    return {key.strip(): unquote(value.strip()) for key, _, value in pairs}


def _first(words: Mapping[str, str], keys: tuple[str, ...], is_one: Callable[[str], bool]) -> str | None:
    return next((words[key] for key in keys if key in words and is_one(words[key])), None)
