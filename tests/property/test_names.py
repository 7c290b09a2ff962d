# SPDX-License-Identifier: Apache-2.0
"""Whatever is in the files of names: nothing is raised, and every name that is given is one line of what is allowed."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from otel_gpu_cgroup.containers.naming.names import Told, matches, named
from otel_gpu_cgroup.containers.naming.naming import Naming
from otel_gpu_cgroup.containers.naming.texts import (
    parse_bundle_names,
    parse_docker_config,
    parse_log_name,
    parse_log_target,
    parse_pod_folder,
    parse_step_title,
    parse_storage,
)
from otel_gpu_cgroup.containers.own.downward import with_downward_names
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import Container, Pod, Runtime
from tests.property.refusal import parsed_or_refused
from tests.support.name_host import ID, UID, NameHost, in_pod, of_engine

raw = st.binary(max_size=80).map(lambda octets: octets.decode("utf-8", "surrogateescape"))
labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
subdomains = st.lists(labels, min_size=1, max_size=4).map(".".join).filter(lambda name: len(name) <= 253)
uids = st.uuids().map(str) | st.text("0123456789abcdef", min_size=32, max_size=32)
ids = st.text("0123456789abcdef", min_size=64, max_size=64)
words = raw | st.text(max_size=300) | labels | subdomains | uids
keys = st.sampled_from(
    [
        "io.kubernetes.cri.sandbox-name",
        "io.kubernetes.cri.sandbox-namespace",
        "io.kubernetes.cri.sandbox-uid",
        "io.kubernetes.cri.container-name",
        "io.kubernetes.cri.container-type",
        "io.kubernetes.pod.name",
        "io.kubernetes.pod.uid",
        "io.kubernetes.container.name",
        "io.kubernetes.docker.type",
        "nerdctl/name",
    ]
)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
notes = st.dictionaries(keys | words, values, max_size=6)
bundles = st.fixed_dictionaries({"annotations": notes | values})
dockers = st.fixed_dictionaries({"Name": values, "Config": values | st.fixed_dictionaries({"Labels": notes | values})})
stores = st.lists(st.fixed_dictionaries({"id": words | values, "names": st.lists(values, max_size=2)}) | values)
texts = raw | (bundles | dockers | stores | values).map(json.dumps)


def _is_fit(told: Told) -> bool:
    known = [word for word in (told.name, told.pod, told.namespace, told.uid, told.container) if word is not None]
    return all(word.isprintable() and word.encode() and len(word) <= 2600 for word in known)


@given(texts, st.booleans())
def test_any_text_tells_names_or_is_refused(text: str, in_kubernetes: bool) -> None:  # noqa: FBT001
    for parse in (parse_bundle_names, parse_docker_config):
        told = parsed_or_refused(lambda text, parse=parse: parse(text, in_kubernetes=in_kubernetes), text)  # type: ignore[misc]
        if told is not None:
            assert _is_fit(told)
            assert in_kubernetes or told == Told(told.name)
    stored = parsed_or_refused(parse_storage, text)
    assert all(_is_fit(Told(name)) for name in (stored or {}).values())


@given(words)
@example(f"a_b_c-{ID}.log\n")
@example("slurmstepd: [1.0]")
def test_any_name_of_a_file_tells_names_or_nothing(text: str) -> None:
    for parse in (parse_log_name, parse_pod_folder, parse_log_target):
        told = parse(text)
        assert told is None or (_is_fit(told) and told.pod is not None and told.namespace is not None)
    title = parse_step_title(text)
    assert title is None or f"[{title[0]}.{title[1]}]" in text


@given(subdomains, labels, labels, uids, ids)
def test_what_kubelet_writes_is_read_back(pod: str, namespace: str, container: str, uid: str, identity: str) -> None:
    of_pod = Told(pod=pod, namespace=namespace, uid=uid)
    assert parse_log_name(f"{pod}_{namespace}_{container}-{identity}.log") == Told(
        pod=pod, namespace=namespace, container=container
    )
    assert parse_pod_folder(f"{namespace}_{pod}_{uid}") == of_pod
    assert parse_log_target(f"/var/log/pods/{namespace}_{pod}_{uid}/{container}/0.log") == of_pod | Told(
        container=container
    )


@given(words, words)
def test_any_glob_and_name_can_be_matched(glob: str, name: str) -> None:
    container = named(of_engine(Runtime.DOCKER), Told(name))
    assert matches(container, glob) in (True, False)
    assert matches(container, "*")


@given(st.dictionaries(st.sampled_from(["POD_NAME", "NAMESPACE", "POD_UID", "OTEL_RESOURCE_ATTRIBUTES"]), words))
def test_any_environment_keeps_the_pod_that_is_known(environment: dict[str, str]) -> None:
    found = with_downward_names(in_pod(), environment)
    assert found.pod is not None
    assert found.pod.uid == UID
    assert _is_fit(Told(found.name, found.pod.name, found.pod.namespace, found.pod.uid, found.pod.container))


file_names = (
    st.binary(min_size=1, max_size=180)
    .filter(lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b".."))
    .map(os.fsdecode)
)


@settings(max_examples=60)
@given(st.binary(max_size=200) | texts.map(lambda text: text.encode("utf-8", "surrogateescape")), file_names)
def test_any_files_name_containers_or_leave_them(content: bytes, name: str) -> None:
    containers = [in_pod(), of_engine(Runtime.DOCKER, "d0" * 32), of_engine(Runtime.PODMAN, "b0" * 32)]
    with tempfile.TemporaryDirectory() as folder:
        host = NameHost(Path(folder))
        host.bundle(ID, content)
        host.docker("d0" * 32, content)
        host.write("/var/lib/containers/storage/overlay-containers/containers.json", content)
        (host.log_folder() / name).touch()
        if len(os.fsencode(name)) < 180:
            (host.log_folder() / f"{name}-{ID}.log").symlink_to(name)
        (host.root / "var/log/pods" / f"{name}_{UID}").mkdir(parents=True)
        naming = Naming(HostPaths(host.root))
        for _ in range(3):
            found = naming.name(containers)
    assert [_place(one) for one in found] == [_place(one) for one in containers if one in containers][-len(found) :]
    assert all(one.is_named and _is_fit(Told(one.name)) for one in found)
    assert all(problem.message.isprintable() for problem in naming.problems)


def _place(container: Container) -> tuple[str, Pod | None]:
    return container.cgroup, None if container.pod is None else Pod(container.pod.uid)
