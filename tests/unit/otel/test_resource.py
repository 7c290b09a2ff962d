# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.otel.resource import agent_resource, own_resource

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def host(tmp_path: Path) -> HostPaths:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hostname").write_text("node-7\n")
    return HostPaths(tmp_path)


def resource(host: HostPaths, monkeypatch: pytest.MonkeyPatch, **environment: str) -> dict[str, object]:
    for name in ("OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME", "K8S_NODE_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    attributes = agent_resource(host, os.environ).attributes
    return {key: value for key, value in attributes.items() if not key.startswith("telemetry.sdk.")}


def test_without_an_environment_it_is_the_hosts(host: HostPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resource(host, monkeypatch) == {
        "service.name": "otel-gpu-cgroup",
        "service.instance.id": "node-7",
        "host.name": "node-7",
    }


def test_the_environment_wins(host: HostPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    given = "service.instance.id=mine,host.name=theirs,deployment.environment.name=prod"
    assert resource(host, monkeypatch, OTEL_RESOURCE_ATTRIBUTES=given, OTEL_SERVICE_NAME="gpus") == {
        "service.name": "gpus",
        "service.instance.id": "mine",
        "host.name": "theirs",
        "deployment.environment.name": "prod",
    }


@pytest.mark.parametrize("variable", ["K8S_NODE_NAME", "OTEL_RESOURCE_ATTRIBUTES"])
def test_under_kubernetes_the_instance_is_the_node(
    host: HostPaths, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    value = "worker-1" if variable == "K8S_NODE_NAME" else "k8s.node.name=worker-1"
    assert resource(host, monkeypatch, **{variable: value}) == {
        "service.name": "otel-gpu-cgroup",
        "service.instance.id": "worker-1",
        "host.name": "node-7",
        "k8s.node.name": "worker-1",
    }


def test_the_agents_own_pod_is_not_lent_to_what_it_watches(host: HostPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    given = "k8s.pod.uid=u,k8s.namespace.name=monitoring,container.id=c,k8s.cluster.name=east,k8s.node.name=n"
    assert resource(host, monkeypatch, OTEL_RESOURCE_ATTRIBUTES=given) == {
        "service.name": "otel-gpu-cgroup",
        "service.instance.id": "n",
        "host.name": "node-7",
        "k8s.cluster.name": "east",
        "k8s.node.name": "n",
    }


@pytest.mark.parametrize(("identifier", "instance"), [("ab" * 32, "ab" * 32), (None, socket.gethostname())])
def test_a_container_that_reports_itself_keeps_all_that_it_is_told(
    monkeypatch: pytest.MonkeyPatch, identifier: str | None, instance: str
) -> None:
    given = "k8s.pod.uid=u,k8s.namespace.name=research,container.id=c"
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", given)
    attributes = own_resource(identifier).attributes
    assert {key: value for key, value in attributes.items() if not key.startswith("telemetry.sdk.")} == {
        "service.name": "otel-gpu-cgroup",
        "service.instance.id": instance,
        "k8s.pod.uid": "u",
        "k8s.namespace.name": "research",
        "container.id": "c",
    }
