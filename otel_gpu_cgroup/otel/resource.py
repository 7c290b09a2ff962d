# SPDX-License-Identifier: Apache-2.0
"""Who the agent is: its OpenTelemetry Resource, made so that it lends nothing of itself to what it watches."""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from otel_gpu_cgroup.errors import HostUnreadable
from otel_gpu_cgroup.host import HostPaths, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_log: Final = logging.getLogger(__name__)
_SERVICE_NAME: Final = "otel-gpu-cgroup"
_FOREIGN: Final = ("container.", "k8s.")
_KEPT: Final = ("k8s.node.", "k8s.cluster.")


def agent_resource(host: HostPaths, environment: Mapping[str, str] = os.environ) -> Resource:
    """The node's Resource: what the environment gives, and where it gives nothing: service, host and instance.

    What describes the agent's own pod or container is left out: backends would copy it onto every series.
    """
    given = OTELResourceDetector().detect().attributes
    node = str(given.get("k8s.node.name") or environment.get("K8S_NODE_NAME") or "")
    name = read_host_name(host)
    ours = {
        "service.name": _SERVICE_NAME,
        "service.instance.id": node or name,
        "host.name": name,
        "k8s.node.name": node,
    }
    resource = Resource.create({key: value for key, value in ours.items() if value and key not in given})
    foreign = [key for key in resource.attributes if key.startswith(_FOREIGN) and not key.startswith(_KEPT)]
    if foreign:
        _log.info("left out of the resource, as they describe this agent's pod attributes=%s", ",".join(foreign))
    kept = {key: value for key, value in resource.attributes.items() if key not in foreign}
    return Resource(kept, resource.schema_url)


def own_resource(container_id: str | None) -> Resource:
    """The Resource of one container that reports itself: all that the environment gives, and which instance it is."""
    given = OTELResourceDetector().detect().attributes
    ours = {"service.name": _SERVICE_NAME, "service.instance.id": container_id or socket.gethostname()}
    return Resource.create({key: value for key, value in ours.items() if key not in given})


def read_host_name(host: HostPaths) -> str:
    """The host's own name, which differs from a container's hostname."""
    try:
        return read_text(host.under_root("/etc/hostname")).strip() or socket.gethostname()
    except HostUnreadable:
        return socket.gethostname()
