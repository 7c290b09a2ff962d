# SPDX-License-Identifier: Apache-2.0
"""The names in what engines and kubelet write."""

from __future__ import annotations

import json

import pytest

from otel_gpu_cgroup.containers.naming.names import Told
from otel_gpu_cgroup.containers.naming.texts import (
    parse_bundle_names,
    parse_docker_config,
    parse_log_name,
    parse_log_target,
    parse_pod_folder,
    parse_step_title,
    parse_storage,
)
from otel_gpu_cgroup.errors import ParseError
from tests.support.name_host import ID, UID, recorded

BERT = Told(pod="bert-7f9c", namespace="ml", uid=UID)
DNS = Told(pod="dns-4mtdm", namespace="net-system", uid="5b5e07db-f1b9-4530-81ef-b7d04d66b83e")
HASH = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("containerd-container.json", BERT | Told(container="trainer")),
        ("containerd-sandbox.json", BERT | Told(is_sandbox=True)),
        ("crio-container.json", DNS | Told(container="resolver")),
        ("crio-sandbox.json", DNS | Told(is_sandbox=True)),
        ("nerdctl.json", Told("web_1")),
    ],
)
def test_the_annotations_of_a_bundle(file: str, expected: Told) -> None:
    assert parse_bundle_names(recorded(file), in_kubernetes=True) == expected


@pytest.mark.parametrize("file", ["containerd-sandbox.json", "podman-annotated.json", "crio-container.json"])
def test_outside_kubernetes_nobodys_annotations_make_a_pod(file: str) -> None:
    assert parse_bundle_names(recorded(file), in_kubernetes=False) == Told()


def test_old_podman_calls_any_container_a_sandbox() -> None:
    notes = {"io.container.manager": "libpod", "io.kubernetes.cri-o.ContainerType": "sandbox"}
    assert parse_bundle_names(json.dumps({"annotations": notes}), in_kubernetes=True) == Told()


def test_containerd_before_1_6_11_leaves_the_uid_out() -> None:
    bundle = json.loads(recorded("containerd-container.json"))
    del bundle["annotations"]["io.kubernetes.cri.sandbox-uid"]
    told = parse_bundle_names(json.dumps(bundle), in_kubernetes=True)
    assert told == Told(pod="bert-7f9c", namespace="ml", container="trainer")


@pytest.mark.parametrize(
    ("file", "in_kubernetes", "expected"),
    [
        ("docker.config.v2.json", False, Told("train_gpt")),
        ("docker-unlabelled.config.v2.json", False, Told("plain")),
        ("docker-unlabelled.config.v2.json", True, Told("plain")),
        (
            "dockershim-container.config.v2.json",
            True,
            BERT | Told(f"k8s_trainer_bert-7f9c_ml_{UID}_0", container="trainer"),
        ),
        ("dockershim-sandbox.config.v2.json", True, BERT | Told(f"k8s_POD_bert-7f9c_ml_{UID}_0", is_sandbox=True)),
        ("dockershim-sandbox.config.v2.json", False, Told(f"k8s_POD_bert-7f9c_ml_{UID}_0")),
    ],
)
def test_dockers_configuration(file: str, expected: Told, *, in_kubernetes: bool) -> None:
    assert parse_docker_config(recorded(file), in_kubernetes=in_kubernetes) == expected


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "7", '"name"', "[" * 100_000, '{"annotations":' * 50_000, "1" * 5000, "\udcff{}"],
    ids=["empty", "cut", "list", "null", "number", "text", "deep", "deep objects", "long number", "no UTF-8"],
)
def test_what_is_no_object_is_refused(text: str) -> None:
    for parse in (parse_bundle_names, parse_docker_config):
        with pytest.raises(ParseError) as refusal:
            parse(text, in_kubernetes=True)
        assert str(refusal.value).isprintable()


@pytest.mark.parametrize("annotations", [None, [], "text", 7, {"nerdctl/name": 7}, {"nerdctl/name": ""}])
def test_values_of_another_type_tell_nothing(annotations: object) -> None:
    assert parse_bundle_names(json.dumps({"annotations": annotations}), in_kubernetes=True) == Told()
    document = {"Name": annotations if annotations != "text" else 7, "Config": annotations}
    assert parse_docker_config(json.dumps(document), in_kubernetes=True) == Told()
    document = {"Name": "/", "Config": {"Labels": annotations}}
    assert parse_docker_config(json.dumps(document), in_kubernetes=True) == Told()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("io.kubernetes.cri.sandbox-name", "Upper"),
        ("io.kubernetes.cri.sandbox-name", "a\nb"),
        ("io.kubernetes.cri.sandbox-name", "a" * 254),
        ("io.kubernetes.cri.sandbox-name", "pod\n"),
        ("io.kubernetes.cri.sandbox-namespace", "a.b"),
        ("io.kubernetes.cri.sandbox-namespace", "a" * 64),
        ("io.kubernetes.cri.sandbox-uid", "1"),
        ("io.kubernetes.cri.container-name", "\x1b[31m"),
        ("io.kubernetes.cri.container-name", "a" * 4096),
    ],
)
def test_what_kubernetes_would_not_call_anything_is_refused(key: str, value: str) -> None:
    with pytest.raises(ParseError) as refusal:
        parse_bundle_names(json.dumps({"annotations": {key: value}}), in_kubernetes=True)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/a\x1b[31mb", r"a\x1b[31mb"),
        ("/é", "é"),
        ("//a", "/a"),
        ("a\ud800", r"a\ud800"),
        ("/" + "x" * 4096, "x" * 252),
    ],
)
def test_a_name_that_may_hold_anything_is_made_printable(name: str, shown: str) -> None:
    told = parse_docker_config(json.dumps({"Name": name}), in_kubernetes=False)
    assert told.name is not None
    assert told.name.removesuffix("...") == shown


def test_podmans_list() -> None:
    assert parse_storage(recorded("podman-containers.json")) == {
        "e73c14216bbaf34681c63eb154c9063609808150e3288817c5b3f7e7466c003b": "trainer",
        "d0b2076e53126c97c5cbde67ccd94220679785c5b022b5b1387d009f7a6b1ec3": "shortlived",
    }
    assert parse_storage('[7, {}, {"id": "a"}, {"id": "a", "names": []}, {"id": 7, "names": ["x"]}]') == {}
    assert parse_storage('[{"id": "a", "names": [7]}, {"id": "b", "names": ["x", "y"]}]') == {"b": "x"}


@pytest.mark.parametrize("text", ["{}", "null", "[", ""])
def test_podmans_list_is_one(text: str) -> None:
    with pytest.raises(ParseError):
        parse_storage(text)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (f"bert-7f9c_ml_trainer-{ID}.log", Told(pod="bert-7f9c", namespace="ml", container="trainer")),
        (f"a.b_c_d-e-{ID}.log", Told(pod="a.b", namespace="c", container="d-e")),
        (f"etcd-n1_kube-system_etcd-{ID}.log", Told(pod="etcd-n1", namespace="kube-system", container="etcd")),
        (f"bert_ml_trainer-{ID}", None),
        (f"bert_ml_trainer-{ID[:63]}.log", None),
        (f"bert_ml_trainer-{ID.upper()}.log", None),
        (f"bert_ml-{ID}.log", None),
        (f"a_b_c_d-{ID}.log", None),
        (f"BERT_ml_trainer-{ID}.log", None),
        (f"bert_m.l_trainer-{ID}.log", None),
        (f"bert_ml_tr\nainer-{ID}.log", None),
        (f"bert_ml_trainer-{ID}.log\n", None),
        (f"b\udcffrt_ml_trainer-{ID}.log", None),
    ],
)
def test_the_name_of_a_log(file: str, expected: Told | None) -> None:
    assert parse_log_name(file) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"ml_bert-7f9c_{UID}", BERT),
        (f"kube-system_etcd-n1_{HASH}", Told(pod="etcd-n1", namespace="kube-system", uid=HASH)),
        (f"ml_bert_{UID}_0", None),
        (f"ml_{UID}", None),
        (f"m.l_bert_{UID}", None),
        ("ml_bert_some-uid", None),
        (UID, None),
        ("", None),
    ],
)
def test_the_name_of_a_pods_folder(name: str, expected: Told | None) -> None:
    assert parse_pod_folder(name) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"/var/log/pods/ml_bert-7f9c_{UID}/trainer/0.log", BERT | Told(container="trainer")),
        (f"../pods/ml_bert-7f9c_{UID}/trainer/12.log", BERT | Told(container="trainer")),
        (f"/var/lib/docker/containers/{ID}/{ID}-json.log", None),
        (f"/var/log/pods/{UID}/trainer_0.log", None),
        (f"/var/log/pods/ml_bert-7f9c_{UID}/TRAINER/0.log", None),
        ("", None),
    ],
)
def test_where_a_log_is(path: str, expected: Told | None) -> None:
    assert parse_log_target(path) == expected


@pytest.mark.parametrize(
    ("cmdline", "expected"),
    [
        ("slurmstepd: [390361.0]\0", ("390361", "0")),
        ("slurmstepd: [123.batch] \0\0", ("123", "batch")),
        ("slurmstepd: [123.interactive]", ("123", "interactive")),
        ("slurmstepd: [123.0+1]", ("123", "0+1")),
        ("slurmstepd: [40555]", None),
        ("slurmstepd\0", None),
        ("/usr/sbin/slurmstepd\0infinity\0", None),
        ("python\0slurmstepd: [1.0]\0", None),
        ("slurmstepd: [1.0]\n", None),
        ("", None),
    ],
)
def test_a_steps_title(cmdline: str, expected: tuple[str, str] | None) -> None:
    assert parse_step_title(cmdline) == expected
