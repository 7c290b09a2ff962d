# SPDX-License-Identifier: Apache-2.0
"""Pure: the names in what engines and kubelet write: bundles, Docker's and podman's files, the names of log files.

What has another form than its writer gives it is refused, never repaired.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from otel_gpu_cgroup.containers.naming.names import Told, is_label, is_subdomain, is_uid
from otel_gpu_cgroup.errors import ParseError
from otel_gpu_cgroup.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_STORAGE: Final = "a list of containers of containers/storage"
_LONGEST: Final = 255
_PODS: Final = ("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name", "io.kubernetes.cri-o.KubeName")
_NAMESPACES: Final = (
    "io.kubernetes.cri.sandbox-namespace",
    "io.kubernetes.pod.namespace",
    "io.kubernetes.cri-o.Namespace",
)
_UIDS: Final = ("io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid")
_CONTAINERS: Final = ("io.kubernetes.cri.container-name", "io.kubernetes.container.name")
_KINDS: Final = (
    "io.kubernetes.cri.container-type",
    "io.kubernetes.cri-o.ContainerType",
    "io.kubernetes.docker.type",
)
_SANDBOXES: Final = ("sandbox", "podsandbox")
_INFRA: Final = "POD"
"""What kubelet's dockershim and CRI-O call the container that holds a pod's place."""
_NAMES: Final = ("nerdctl/name",)
_LOG: Final = re.compile(r"([^_]+)_([^_]+)_([^_]+)-([0-9a-f]{64})\.log")
_POD_FOLDER: Final = re.compile(r"([^_]+)_([^_]+)_([^_]+)")
_TARGET: Final = re.compile(r"(?:.*/)?([^_/]+_[^_/]+_[^_/]+)/([^/]+)/[^/]+")
_TITLE: Final = re.compile(r"slurmstepd: \[([0-9]{1,10})\.([a-z0-9]{1,20}(?:\+[0-9]{1,10})?)\] *")


def parse_bundle_names(text: str, *, in_kubernetes: bool) -> Told:
    """The names in the annotations of an OCI bundle's config.json; raises ParseError."""
    notes = _texts(_object(text, "an OCI bundle's configuration").get("annotations"))
    return Told(_readable(_first(notes, _NAMES))) | (_told(notes) if in_kubernetes else Told())


def parse_docker_config(text: str, *, in_kubernetes: bool) -> Told:
    """The names in Docker's config.v2.json, of whose labels Kubernetes' count there alone; raises ParseError."""
    config = _object(text, "Docker's configuration of a container")
    inner = config.get("Config")
    labels = _texts(inner.get("Labels") if isinstance(inner, dict) else None)
    return Told(_readable(config.get("Name"), "/")) | (_told(labels) if in_kubernetes else Told())


def parse_storage(text: str) -> dict[str, str]:
    """Podman's names of containers by their ids, in a containers.json of containers/storage; raises ParseError."""
    entries = _loaded(text, _STORAGE)
    if not isinstance(entries, list):
        raise ParseError(text, _STORAGE)
    named = ((entry.get("id"), entry.get("names")) for entry in entries if isinstance(entry, dict))
    firsts = ((key, _readable(names[0])) for key, names in named if isinstance(names, list) and names)
    return {key: name for key, name in firsts if isinstance(key, str) and name is not None}


def parse_log_name(file: str) -> Told | None:
    """The names in `POD_NAMESPACE_CONTAINER-ID.log`, a file of /var/log/containers; None for another."""
    match = _LOG.fullmatch(file)
    if match is None:
        return None
    pod, namespace, container, _ = match.groups()
    are_names = is_subdomain(pod) and is_label(namespace) and is_label(container)
    return Told(pod=pod, namespace=namespace, container=container) if are_names else None


def parse_log_target(path: str) -> Told | None:
    """The names in `…/NAMESPACE_POD_UID/CONTAINER/FILE`, where such a file points to; None for another."""
    match = _TARGET.fullmatch(path)
    told = None if match is None else parse_pod_folder(match[1])
    if match is None or told is None or not is_label(match[2]):
        return None
    return told | Told(container=match[2])


def parse_pod_folder(name: str) -> Told | None:
    """The names in `NAMESPACE_POD_UID`, a folder of /var/log/pods; None for another."""
    match = _POD_FOLDER.fullmatch(name)
    if match is None:
        return None
    namespace, pod, uid = match.groups()
    are_names = is_label(namespace) and is_subdomain(pod) and is_uid(uid)
    return Told(pod=pod, namespace=namespace, uid=uid) if are_names else None


def parse_step_title(cmdline: str) -> tuple[str, str] | None:
    """Job and step in a slurmstepd's command line, `slurmstepd: [JOB.STEP]`; None for another process'."""
    match = _TITLE.fullmatch(cmdline.rstrip("\0"))
    return None if match is None else (match[1], match[2])


def _loaded(text: str, expected: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError(text, expected) from error


def _object(text: str, expected: str) -> dict[str, Any]:
    value = _loaded(text, expected)
    if not isinstance(value, dict):
        raise ParseError(text, expected)
    return value


def _texts(value: object) -> dict[str, str]:
    """The texts in an object, by their keys; none in what is no object."""
    entries = value.items() if isinstance(value, dict) else ()
    return {key: text for key, text in entries if isinstance(text, str) and text}


def _told(notes: Mapping[str, str]) -> Told:
    """What they say of a pod; a sandbox is one in a named pod alone."""
    pod = _checked(_first(notes, _PODS), is_subdomain, "a pod's name")
    container = _first(notes, _CONTAINERS)
    is_sandbox = pod is not None and (container == _INFRA or _first(notes, _KINDS) in _SANDBOXES)
    return Told(
        pod=pod,
        namespace=_checked(_first(notes, _NAMESPACES), is_label, "a namespace's name"),
        uid=_checked(_first(notes, _UIDS), is_uid, "a pod's UID"),
        container=None if is_sandbox else _checked(container, is_label, "a container's name in Kubernetes"),
        is_sandbox=is_sandbox,
    )


def _first(notes: Mapping[str, str], keys: tuple[str, ...]) -> str | None:
    return next((notes[key] for key in keys if key in notes), None)


def _checked(text: str | None, is_one: Callable[[str], bool], expected: str) -> str | None:
    if text is not None and not is_one(text):
        raise ParseError(text, expected)
    return text


def _readable(value: object, prefix: str = "") -> str | None:
    """A name that may hold anything, fit to be shown; None for an empty one."""
    return printable(value.removeprefix(prefix), _LONGEST) or None if isinstance(value, str) else None
