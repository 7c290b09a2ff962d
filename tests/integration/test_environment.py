# SPDX-License-Identifier: Apache-2.0
"""The standard OTEL_* variables rule where metrics go and what they say of the agent."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from tests.integration.host_tree import write_host
from tests.support.agent import run_command
from tests.support.eventually import eventually
from tests.support.otlp import CUMULATIVE, DELTA, Receiver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.conftest import PushingAgent, StartAgent
    from tests.support.collector import Collector
    from tests.support.otlp import Request


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def _first(receiver: Receiver, agent: PushingAgent) -> Request:
    agent.wait_until_started()
    agent.end()
    return receiver.requests[0]


def test_headers_path_and_content_are_those_of_otlp(start_agent: StartAgent, receiver: Receiver) -> None:
    variables = {"OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=gpu%20team,authorization=Bearer%20abc"}
    request = _first(
        receiver, start_agent("--simulate", OTEL_EXPORTER_OTLP_ENDPOINT=f"{receiver.url}/otlp/", **variables)
    )
    assert request.path == "/otlp/v1/metrics"
    assert request.headers["content-type"] == "application/x-protobuf"
    assert request.headers["x-tenant"] == "gpu team"
    assert request.headers["authorization"] == "Bearer abc"
    assert "content-encoding" not in request.headers
    assert b"container.gpu.access" in request.body


def test_the_endpoint_of_metrics_beats_the_general_one_and_is_taken_as_it_is(
    start_agent: StartAgent, receiver: Receiver
) -> None:
    url = f"{receiver.url}/api/v1/otlp/v1/metrics"
    request = _first(receiver, start_agent("--simulate", OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=url))
    assert request.path == "/api/v1/otlp/v1/metrics"


def test_gzip_compresses(start_agent: StartAgent, receiver: Receiver) -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
    request = _first(receiver, start_agent("--simulate", **variables))
    assert request.headers["content-encoding"] == "gzip"
    assert int(request.headers["content-length"]) < len(request.body) / 3
    assert b"container.gpu.access" in request.body


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_grpc_takes_the_compressions_that_otlp_names(
    start_agent: StartAgent, sink: Collector, compression: str
) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_ENDPOINT": sink.grpc_url,
        "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
    }
    assert start_agent("--simulate", **variables).flushed().of("container.gpu.access")


def test_the_protocol_of_metrics_beats_the_general_one(start_agent: StartAgent, sink: Collector) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": sink.grpc_url,
    }
    agent = start_agent("--simulate", **variables)
    assert agent.flushed().points
    assert agent.lines("info exporting", "protocol=grpc")


def _resource(agent: PushingAgent) -> dict[str, str]:
    """What arrived of the agent's Resource, without what the SDK says of itself and what the test added."""
    [resource] = {tuple(sorted(point.resource.items())) for point in agent.flushed().points}
    return {key: value for key, value in resource if not key.startswith(("telemetry.sdk.", "test."))}


def test_by_default_the_resource_is_the_node(start_agent: StartAgent, tmp_path: Path) -> None:
    root = write_host(tmp_path / "host", {}, hostname="node-3")
    assert _resource(start_agent("--host-root", os.fspath(root))) == {
        "service.name": "otel-gpu-cgroup",
        "service.instance.id": "node-3",
        "host.name": "node-3",
    }


def test_without_a_name_of_its_own_the_host_has_that_of_the_kernel(start_agent: StartAgent, tmp_path: Path) -> None:
    root = write_host(tmp_path / "host", {})
    resource = _resource(start_agent("--host-root", os.fspath(root)))
    assert resource["host.name"] == resource["service.instance.id"] == socket.gethostname()


def test_resource_attributes_arrive_but_for_those_of_the_agents_own_pod(start_agent: StartAgent) -> None:
    given = {
        "deployment.environment.name": "prod",
        "host.name": "given-host",
        "k8s.cluster.name": "c1",
        "k8s.node.name": "node-7",
        "container.id": "0123",
        "container.name": "agent",
        "k8s.namespace.name": "monitoring",
        "k8s.pod.name": "agent-x7",
        "k8s.pod.uid": "u1",
        "k8s.container.name": "agent",
        "k8s.daemonset.name": "agent",
    }
    listed = ",".join(f"{key}={value}" for key, value in given.items())
    agent = start_agent("--simulate", OTEL_RESOURCE_ATTRIBUTES=listed)
    assert _resource(agent) == {
        "service.name": "otel-gpu-cgroup",
        "service.instance.id": "node-7",
        "deployment.environment.name": "prod",
        "host.name": "given-host",
        "k8s.cluster.name": "c1",
        "k8s.node.name": "node-7",
    }
    [line] = agent.lines("left out")
    assert all(key in line for key in ("container.id", "k8s.pod.uid", "k8s.daemonset.name"))


def test_the_node_can_be_named_by_the_downward_api(start_agent: StartAgent) -> None:
    resource = _resource(start_agent("--simulate", K8S_NODE_NAME="node-9"))
    assert resource["k8s.node.name"] == resource["service.instance.id"] == "node-9"


def test_a_service_name_and_an_instance_that_were_given_stay(start_agent: StartAgent) -> None:
    variables = {
        "OTEL_SERVICE_NAME": "gpus",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,service.instance.id=i-1,k8s.node.name=node-7",
    }
    resource = _resource(start_agent("--simulate", **variables))
    assert resource["service.name"] == "gpus"
    assert resource["service.instance.id"] == "i-1"


@pytest.mark.parametrize(("preference", "temporality", "expected"), [("delta", DELTA, 1), ("", CUMULATIVE, 2)])
def test_the_temporality_preference_rules_the_counters(
    start_agent: StartAgent, tmp_path: Path, preference: str, temporality: int, expected: int
) -> None:
    """Each cycle meets one problem: there is no driver where it is said to be."""
    variables = {"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": preference}
    agent = start_agent("--nvml-library", os.fspath(tmp_path / "none.so"), **variables)
    second = eventually(lambda: agent.exports()[1:2], agent.log)[0]
    [problems] = second.of("gpu_cgroup.cycle.problems", {"gpu_cgroup.stage": "nvml"})
    assert (problems.stream.temporality, problems.value) == (temporality, expected)
    for name in ("gpu_cgroup.container.count", "gpu_cgroup.up"):
        assert {point.stream.temporality for point in second.of(name)} == {CUMULATIVE}


def test_the_flag_beats_our_variable_which_beats_the_standard_interval(start_agent: StartAgent) -> None:
    ours = {"OTEL_METRIC_EXPORT_INTERVAL": "9000", "OTEL_PYTHON_GPU_CGROUP_INTERVAL": "7"}
    for options, variables, seconds in (
        ((), {"OTEL_METRIC_EXPORT_INTERVAL": "9000"}, 9),
        ((), ours, 7),
        (("--interval", "5"), ours, 5),
    ):
        agent = start_agent("--simulate", *options, **variables)
        agent.wait_until_started()
        assert agent.lines("info started", f"interval={seconds}s")


def test_metrics_that_are_excluded_do_not_arrive(start_agent: StartAgent) -> None:
    variables = {"OTEL_PYTHON_GPU_CGROUP_EXCLUDE_METRICS": "gpu_cgroup.cycle.*, hw.*"}
    names = {point.stream.name for point in start_agent("--simulate", **variables).flushed().points}
    assert "container.gpu.access" in names
    assert not [name for name in names if name.startswith(("gpu_cgroup.cycle.", "hw."))]


def test_a_disabled_sdk_is_one_line_and_success(tmp_path: Path) -> None:
    done = run_command(tmp_path, "run", "--simulate", OTEL_SDK_DISABLED="true")
    assert done.returncode == 0
    [line] = done.stderr.splitlines()
    assert "OTEL_SDK_DISABLED" in line


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"OTEL_METRIC_EXPORT_INTERVAL": "15s"}, ("15s", "milliseconds")),
        ({"OTEL_METRIC_EXPORT_INTERVAL": "500"}, ("500", "milliseconds", "1000")),
        ({"OTEL_METRICS_EXPORTER": "statsd"}, ("statsd", "otlp")),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, ("http/json", "http/protobuf")),
        ({"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "udp"}, ("udp", "grpc")),
        ({"OTEL_PYTHON_GPU_CGROUP_INTERVAL": "0.5"}, ("0.5", "from 1 to 86400")),
        ({"OTEL_PYTHON_GPU_CGROUP_UNRESTRICTED": "some"}, ("some", "using")),
        ({"OTEL_PYTHON_GPU_CGROUP_SIMULATE": "yes"}, ("yes", "v1")),
        ({"OTEL_EXPORTER_OTLP_COMPRESSION": "lz4", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ("lz4", "gzip")),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "soon", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ("soon", "seconds")),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://[::", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ("http://[::",)),
        ({"OTEL_EXPORTER_OTLP_METRICS_COMPRESSION": "lz4"}, ("lz4", "deflate")),
    ],
)
def test_a_wrong_value_is_one_line_that_names_it_and_status_2(
    tmp_path: Path, variables: dict[str, str], words: tuple[str, ...]
) -> None:
    done = run_command(tmp_path, "run", **variables)
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.splitlines()
    assert all(word in line for word in (next(iter(variables)), *words)), line


def test_a_host_root_without_proc_is_a_usage_error(tmp_path: Path) -> None:
    done = run_command(tmp_path, "run", "--host-root", os.fspath(tmp_path))
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "--host-root" in line
    assert os.fspath(tmp_path) in line
