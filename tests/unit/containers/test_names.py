# SPDX-License-Identifier: Apache-2.0
"""What a container is called, and which globs that answers to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from otel_gpu_cgroup.containers.naming.names import (
    Told,
    has_names,
    in_kubernetes,
    is_label,
    is_subdomain,
    matches,
    named,
)
from otel_gpu_cgroup.model import Pod, Runtime
from tests.support.name_host import ID, NAMED, UID, in_pod, of_engine

TRAINER = replace(in_pod(), name="trainer", pod=NAMED)


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("ml/bert-7f9c/trainer", True),
        ("ml/*", True),
        ("ml/bert-*/trainer", True),
        ("*/trainer", True),
        ("trainer", True),
        ("train*", True),
        (ID, True),
        (f"{ID[:12]}*", True),
        ("/kubepods/*", True),
        ("*", True),
        ("ml", False),
        ("ml/bert-7f9c", False),
        ("ML/*", False),
        (ID[:12], False),
        ("[", False),
        ("", False),
    ],
)
def test_globs(glob: str, *, expected: bool) -> None:
    assert matches(TRAINER, glob) is expected


def test_names_that_are_not_known_match_nothing_but_their_place() -> None:
    pod = in_pod()
    assert not matches(pod, "trainer")
    assert not matches(pod, "ml/*")
    assert matches(replace(pod, pod=Pod(UID, "bert", "ml")), "ml/bert/*")
    assert not matches(of_engine(Runtime.DOCKER), "//")


def test_in_kubernetes_a_container_is_called_as_its_pods_manifest_calls_it() -> None:
    told = Told("k8s_trainer_0", "bert-7f9c", "ml", UID, "trainer")
    assert named(in_pod(), told) == TRAINER
    assert named(of_engine(Runtime.DOCKER), Told("train_gpt")).name == "train_gpt"


def test_what_the_cgroup_told_stays() -> None:
    assert named(in_pod(), Told(pod="other", uid="0" * 32)).pod == Pod(UID, "other")
    unit = replace(of_engine(Runtime.SYSTEMD), name="vllm.service")
    assert named(unit, Told("other")) is unit


def test_a_pod_without_a_uid_is_none() -> None:
    container = of_engine(Runtime.CONTAINERD)
    assert named(container, Told(pod="bert-7f9c", namespace="ml", container="trainer")) is container
    assert named(container, Told(pod="bert-7f9c", namespace="ml", uid=UID, container="trainer")).pod == NAMED


def test_names_are_had_when_all_are() -> None:
    assert has_names(TRAINER)
    assert not has_names(replace(TRAINER, pod=Pod(UID, "bert-7f9c", "ml")))
    assert not has_names(in_pod())
    assert has_names(replace(of_engine(Runtime.DOCKER), name="web"))
    assert not has_names(of_engine(Runtime.DOCKER))


def test_whose_word_on_pods_counts() -> None:
    assert in_kubernetes(in_pod(runtime=Runtime.DOCKER))
    assert in_kubernetes(of_engine(Runtime.CONTAINERD))
    assert not in_kubernetes(of_engine(Runtime.DOCKER))
    assert not in_kubernetes(of_engine(Runtime.PODMAN))


@pytest.mark.parametrize(
    ("text", "label", "subdomain"),
    [
        ("a", True, True),
        ("a" * 63, True, True),
        ("a" * 64, False, True),
        ("a" * 253, False, True),
        ("a" * 254, False, False),
        ("a.b", False, True),
        ("a-b", True, True),
        ("-a", False, False),
        ("a-", False, False),
        ("a.", False, False),
        ("A", False, False),
        ("a_b", False, False),
        ("a\n", False, False),
        ("", False, False),
    ],
)
def test_what_kubernetes_calls_things(text: str, *, label: bool, subdomain: bool) -> None:
    assert (is_label(text), is_subdomain(text)) == (label, subdomain)
