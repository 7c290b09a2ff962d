# SPDX-License-Identifier: Apache-2.0
"""What a process' environment tells of its own pod."""

from __future__ import annotations

from dataclasses import replace

import pytest

from otel_gpu_cgroup.containers.naming.names import has_names
from otel_gpu_cgroup.containers.own.downward import with_downward_names
from otel_gpu_cgroup.model import CgroupPath, Container, Pod, Runtime
from tests.support.name_host import NAMED, UID

OWN = Container(CgroupPath("/"), Runtime.UNKNOWN, pod=Pod(UID))
OTHER = "0d5e4ecd-9e29-4f2f-8b0c-2d7a1de5b0a7"
ATTRIBUTES = "service.name=x,k8s.pod.name=bert-7f9c, k8s.namespace.name = ml ,k8s.container.name=trainer"


@pytest.mark.parametrize(
    "environment",
    [
        {"K8S_POD_NAME": "bert-7f9c", "K8S_NAMESPACE_NAME": "ml", "K8S_CONTAINER_NAME": "trainer"},
        {"POD_NAME": "bert-7f9c", "POD_NAMESPACE": "ml", "CONTAINER_NAME": "trainer"},
        {"POD_NAME": "bert-7f9c", "NAMESPACE": "ml", "CONTAINER_NAME": "trainer", "POD_UID": UID},
        {"K8S_POD_NAME": "bert-7f9c", "K8S_POD_NAMESPACE": "ml", "CONTAINER_NAME": "trainer", "POD_NAME": "no"},
        {"OTEL_RESOURCE_ATTRIBUTES": ATTRIBUTES},
        {"OTEL_RESOURCE_ATTRIBUTES": f"{ATTRIBUTES},k8s.pod.uid={UID}", "POD_NAME": "no", "NAMESPACE": "no"},
        {
            "OTEL_RESOURCE_ATTRIBUTES": "k8s.pod.name=bert%2D7f9c,,=,k8s.namespace.name",
            "NAMESPACE": "ml",
            "K8S_CONTAINER_NAME": "trainer",
        },
        {"K8S_POD_NAME": "$(NOT EXPANDED)", "POD_NAME": "bert-7f9c", "NAMESPACE": "ml", "CONTAINER_NAME": "trainer"},
    ],
)
def test_the_usual_variables(environment: dict[str, str]) -> None:
    found = with_downward_names(OWN, environment)
    assert (found.pod, found.name) == (NAMED, "trainer")
    assert has_names(found)


def test_the_mounts_name_of_the_container_stays() -> None:
    own = replace(OWN, pod=Pod(UID, container="trainer"))
    found = with_downward_names(own, {"CONTAINER_NAME": "other", "POD_NAME": "bert-7f9c", "NAMESPACE": "ml"})
    assert (found.pod, found.name) == (NAMED, "trainer")
    assert with_downward_names(own, {}) == replace(own, name="trainer")


def test_the_variables_of_another_pod_do_not_count() -> None:
    assert with_downward_names(OWN, {"POD_UID": OTHER, "POD_NAME": "other", "NAMESPACE": "ml"}) == OWN


def test_a_uid_that_only_the_environment_tells_makes_a_pod() -> None:
    own = replace(OWN, pod=None)
    assert with_downward_names(own, {"K8S_POD_UID": UID, "POD_NAME": "bert-7f9c"}).pod == Pod(UID, "bert-7f9c")


def test_outside_a_pod_such_variables_may_mean_anything() -> None:
    own = replace(OWN, pod=None)
    assert with_downward_names(own, {"POD_NAME": "bert-7f9c", "NAMESPACE": "ml", "CONTAINER_NAME": "x"}) is own
    assert with_downward_names(own, {"POD_UID": "the first", "POD_NAME": "bert-7f9c"}) is own


def test_what_kubernetes_would_not_call_a_pod_is_passed_over() -> None:
    assert with_downward_names(OWN, {"POD_NAME": "A\x1b[31m", "NAMESPACE": "a.b", "CONTAINER_NAME": "\udcff"}) == OWN
