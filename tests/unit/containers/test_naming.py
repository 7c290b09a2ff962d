# SPDX-License-Identifier: Apache-2.0
"""Containers get the names that kubelet and engines left in files, wait for them, and keep what they have had."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.containers.naming.naming import Naming
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import CgroupPath, Container, Pod, Runtime, Stage
from tests.support.name_host import ID, NAMED, SANDBOX, UID, FailingFiles, NameHost, in_pod, of_engine, recorded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CRIO = Pod("5b5e07db-f1b9-4530-81ef-b7d04d66b83e", "dns-4mtdm", "net-system", "resolver")
OTHER = "0d5e4ecd-9e29-4f2f-8b0c-2d7a1de5b0a7"
MORE_THAN_IS_READ = (4 << 20) + 1


@pytest.fixture
def host(tmp_path: Path) -> NameHost:
    return NameHost(tmp_path)


@pytest.fixture
def naming(tmp_path: Path) -> Naming:
    return Naming(HostPaths(tmp_path))


def _names(naming: Naming, container: Container) -> tuple[str | None, Pod | None, bool]:
    [found] = naming.name([container])
    return found.name, found.pod, found.is_named


def _cycles(naming: Naming, containers: Sequence[Container], count: int = 3) -> list[list[Container]]:
    return [naming.name(containers) for _ in range(count)]


def test_a_bundle_of_containerd_names_a_pod_and_its_container(host: NameHost, naming: Naming) -> None:
    host.bundle(ID, recorded("containerd-container.json"))
    host.bundle(SANDBOX, recorded("containerd-sandbox.json"))
    assert naming.name([in_pod(), in_pod(SANDBOX)]) == [replace(in_pod(), name="trainer", pod=NAMED)]
    assert (naming.problems, naming.is_up) == ((), True)


def test_a_bundle_of_crio(host: NameHost, naming: Naming) -> None:
    host.crio_bundle("c0" * 32, recorded("crio-container.json"))
    host.crio_bundle("5abd" * 16, recorded("crio-sandbox.json"))
    containers = [in_pod(one, CRIO.uid, Runtime.CRIO) for one in ("c0" * 32, "5abd" * 16)]
    assert [(found.name, found.pod) for found in naming.name(containers)] == [("resolver", CRIO)]


def test_a_bundle_tells_the_pod_where_the_path_has_none(host: NameHost, naming: Naming) -> None:
    host.bundle(ID, recorded("containerd-container.json"))
    assert _names(naming, of_engine(Runtime.CONTAINERD)) == ("trainer", NAMED, True)


def test_an_old_containerds_uid_is_in_the_link_to_its_log(host: NameHost, naming: Naming) -> None:
    bundle = json.loads(recorded("containerd-container.json"))
    del bundle["annotations"]["io.kubernetes.cri.sandbox-uid"]
    host.bundle(ID, json.dumps(bundle))
    host.log()
    assert _names(naming, of_engine(Runtime.CONTAINERD)) == ("trainer", NAMED, True)


def test_nerdctls_name(host: NameHost, naming: Naming) -> None:
    host.bundle(ID, recorded("nerdctl.json"), "default")
    assert _names(naming, of_engine(Runtime.CONTAINERD)) == ("web_1", None, True)


def test_a_container_of_ctr_has_no_name_and_waits_for_none(host: NameHost, naming: Naming) -> None:
    host.bundle(ID, '{"ociVersion": "1.0.2"}', "default")
    host.log_folder()
    assert _names(naming, of_engine(Runtime.CONTAINERD)) == (None, None, True)
    assert (naming.problems, naming.is_up) == ((), None)


@pytest.mark.parametrize("runtime", [Runtime.DOCKER, Runtime.ECS])
def test_dockers_names(host: NameHost, naming: Naming, runtime: Runtime) -> None:
    host.docker(ID, recorded("docker.config.v2.json"))
    assert _names(naming, of_engine(runtime)) == ("train_gpt", None, True)
    assert (naming.problems, naming.is_up) == ((), True)


@pytest.mark.parametrize("runtime", [Runtime.DOCKER, Runtime.CONTAINERD])
def test_docker_under_kubernetes(host: NameHost, naming: Naming, runtime: Runtime) -> None:
    """The bare id of a cgroupfs path is taken for containerd's."""
    host.docker(ID, recorded("dockershim-container.config.v2.json"))
    host.docker(SANDBOX, recorded("dockershim-sandbox.config.v2.json"))
    found = naming.name([in_pod(runtime=runtime), in_pod(SANDBOX, runtime=runtime)])
    assert [(one.name, one.pod) for one in found] == [("trainer", NAMED)]


def test_no_label_hides_a_container_of_docker(host: NameHost, naming: Naming) -> None:
    host.docker(ID, recorded("dockershim-sandbox.config.v2.json"))
    assert _names(naming, of_engine(Runtime.DOCKER)) == (f"k8s_POD_bert-7f9c_ml_{UID}_0", None, True)


def test_podmans_names(host: NameHost, naming: Naming) -> None:
    host.storage(recorded("podman-containers.json"))
    host.storage(recorded("podman-volatile-containers.json"), "volatile-containers.json")
    identities = [
        "e73c14216bbaf34681c63eb154c9063609808150e3288817c5b3f7e7466c003b",
        "d0b2076e53126c97c5cbde67ccd94220679785c5b022b5b1387d009f7a6b1ec3",
        "feed" * 16,
    ]
    found = naming.name([of_engine(Runtime.PODMAN, identity) for identity in identities])
    assert [one.name for one in found] == ["trainer", "shortlived", "passing"]


def test_a_log_names_a_pod_and_its_container(host: NameHost, naming: Naming) -> None:
    host.log()
    assert _names(naming, in_pod()) == ("trainer", NAMED, True)


def test_a_log_that_is_no_link_is_its_name(host: NameHost, naming: Naming) -> None:
    host.write(f"/var/log/containers/bert-7f9c_ml_trainer-{ID}.log", "")
    assert _names(naming, in_pod()) == ("trainer", NAMED, True)


def test_a_bundle_is_believed_before_a_log(host: NameHost, naming: Naming) -> None:
    host.bundle(ID, recorded("containerd-container.json"))
    host.log(pod=Pod(UID, "other", "other", "other"))
    assert _names(naming, in_pod()) == ("trainer", NAMED, True)


def test_a_static_pod_keeps_the_hash_of_its_configuration(host: NameHost, naming: Naming) -> None:
    static = Pod("0123456789abcdef0123456789abcdef", "etcd-n1", "kube-system", "etcd")
    host.log(pod=static)
    assert _names(naming, in_pod(uid=static.uid)) == ("etcd", static, True)


@pytest.mark.parametrize("source", ["bundle", "log", "docker"])
def test_a_file_of_another_pod_gives_no_names(host: NameHost, naming: Naming, source: str) -> None:
    if source == "bundle":
        host.bundle(ID, recorded("containerd-container.json"))
    elif source == "docker":
        host.docker(ID, recorded("dockershim-container.config.v2.json"))
    else:
        host.log()
    container = in_pod(uid=OTHER)
    assert _cycles(naming, [container])[-1] == [container]
    said = [problem.message for problem in naming.problems if problem.subject == container.cgroup]
    assert any(UID in message and OTHER in message for message in said)
    assert naming.is_up is False


def test_a_sandbox_of_another_pod_hides_nothing(host: NameHost, naming: Naming) -> None:
    host.bundle(ID, recorded("containerd-sandbox.json"))
    assert len(naming.name([in_pod(uid=OTHER)])) == 1


def test_a_link_to_the_log_of_another_gives_no_names(host: NameHost, naming: Naming) -> None:
    link = host.log()
    link.unlink()
    link.symlink_to(f"/var/log/pods/ml_other_{UID}/trainer/0.log")
    assert _cycles(naming, [in_pod()])[-1] == [in_pod()]
    assert any("link" in problem.message for problem in naming.problems)


def test_a_pods_folder_names_the_pod_and_in_the_end_its_only_container(host: NameHost, naming: Naming) -> None:
    host.pod_folder("trainer")
    awaited = replace(in_pod(), pod=Pod(UID, "bert-7f9c", "ml"), is_named=False)
    assert _cycles(naming, [in_pod()], 2) == [[awaited], [awaited]]
    assert _names(naming, in_pod()) == ("trainer", NAMED, True)


@pytest.mark.parametrize(("folders", "others"), [(("trainer", "logger"), 0), ((), 0), (("trainer",), 1)])
def test_what_may_be_another_containers_name_is_not_taken(
    host: NameHost, naming: Naming, folders: tuple[str, ...], others: int
) -> None:
    host.pod_folder(*folders)
    containers = [in_pod(), *(in_pod(SANDBOX) for _ in range(others))]
    last = _cycles(naming, containers)[-1]
    assert {(one.name, one.pod, one.is_named) for one in last} == {(None, Pod(UID, "bert-7f9c", "ml"), True)}
    assert (naming.problems, naming.is_up) == ((), True)


def test_names_are_waited_for_in_two_cycles_and_then_never_change(host: NameHost, naming: Naming) -> None:
    host.log_folder()
    waits = [_names(naming, in_pod()) for _ in range(3)]
    assert waits == [(None, Pod(UID), False), (None, Pod(UID), False), (None, Pod(UID), True)]
    assert naming.is_up is False
    [problem] = naming.problems
    assert (problem.stage, problem.subject) == (Stage.NAMES, in_pod().cgroup)
    host.log()
    assert _cycles(naming, [in_pod()], 5)[-1] == [in_pod()]
    assert naming.problems == (problem,)


def test_a_name_that_comes_while_it_is_waited_for_is_taken(host: NameHost, naming: Naming) -> None:
    host.log_folder()
    assert [_names(naming, in_pod())[2] for _ in range(2)] == [False, False]
    assert naming.is_up is None
    link = host.log()
    assert _names(naming, in_pod()) == ("trainer", NAMED, True)
    link.unlink()
    assert _names(naming, in_pod()) == ("trainer", NAMED, True)
    assert naming.is_up is True


@pytest.mark.parametrize(
    ("runtime", "file"),
    [
        (Runtime.DOCKER, "/var/lib/docker/containers/x"),
        (Runtime.PODMAN, "/var/lib/containers/storage/overlay-containers/containers.json"),
    ],
)
def test_engines_that_name_containers_are_waited_for(
    host: NameHost, naming: Naming, runtime: Runtime, file: str
) -> None:
    host.write(file, "[]")
    cycles = _cycles(naming, [of_engine(runtime)])
    assert [one.is_named for [one] in cycles] == [False, False, True]
    assert naming.is_up is False


@pytest.mark.parametrize("runtime", [Runtime.DOCKER, Runtime.PODMAN, Runtime.CONTAINERD, Runtime.GARDEN])
def test_where_no_source_is_nothing_is_waited_for(naming: Naming, runtime: Runtime) -> None:
    container = of_engine(runtime)
    assert naming.name([container])[0] is container
    assert (naming.problems, naming.is_up) == ((), None)


def test_pods_without_any_source_are_one_problem(naming: Naming) -> None:
    pods = [in_pod(), in_pod(SANDBOX, OTHER)]
    assert naming.name(pods) == pods
    assert [problem.subject for problem in naming.problems] == ["pods"]
    assert naming.is_up is False


def test_who_has_a_name_or_can_have_none_is_left_alone(host: NameHost, naming: Naming) -> None:
    host.log_folder()
    unit = Container(CgroupPath("/system.slice/vllm.service"), Runtime.SYSTEMD, name="vllm.service")
    machine = Container(CgroupPath("/lxc.payload.one"), Runtime.LXC, name="one")
    nameless = Container(CgroupPath("/some"), Runtime.UNKNOWN)
    found = naming.name([unit, machine, nameless])
    assert [one is other for one, other in zip(found, [unit, machine, nameless], strict=True)] == [True] * 3
    assert naming.is_up is None


def test_a_known_container_costs_no_read_and_is_the_same_object(host: NameHost, tmp_path: Path) -> None:
    host.bundle(ID, recorded("containerd-container.json"))
    host.bundle(SANDBOX, recorded("containerd-sandbox.json"))
    files = FailingFiles(0, is_gone=True)
    naming = Naming(HostPaths(tmp_path), files)
    containers = [in_pod(), in_pod(SANDBOX), of_engine(Runtime.DOCKER, "d0" * 32)]
    first, reads = naming.name(containers), files.reads
    equal = [replace(container) for container in containers]
    for again in (containers, equal):
        assert [one is other for one, other in zip(naming.name(again), first, strict=True)] == [True, True]
    assert files.reads == reads


def test_a_container_whose_place_changes_keeps_its_names(host: NameHost, naming: Naming) -> None:
    link = host.log()
    [first] = naming.name([in_pod()])
    link.unlink()
    moved = replace(in_pod(), unified="/sys/fs/cgroup/elsewhere")
    assert naming.name([moved]) == [replace(first, unified="/sys/fs/cgroup/elsewhere")]


def test_another_life_under_the_same_path_is_named_anew(host: NameHost, naming: Naming) -> None:
    host.docker(ID, recorded("docker.config.v2.json"))
    assert _names(naming, of_engine(Runtime.DOCKER))[0] == "train_gpt"
    host.docker(ID, recorded("docker-unlabelled.config.v2.json"))
    assert _names(naming, of_engine(Runtime.DOCKER))[0] == "train_gpt"
    assert _names(naming, replace(of_engine(Runtime.DOCKER), inode=8))[0] == "plain"


def test_what_has_ended_is_forgotten(host: NameHost, naming: Naming) -> None:
    host.log_folder()
    _cycles(naming, [in_pod()])
    assert naming.problems
    assert naming.name([]) == []
    assert (naming.problems, naming.is_up) == ((), None)


def test_a_file_of_100_megabytes_is_not_read_in_whole(host: NameHost, naming: Naming) -> None:
    bundle, config = host.bundle(ID, ""), host.docker(ID, "")
    for path in (bundle, config):
        os.truncate(path, 100 << 20)
    host.log_folder()
    last = _cycles(naming, [in_pod(), of_engine(Runtime.DOCKER, ID)])[-1]
    assert [one.name for one in last] == [None, None]
    too_long = [problem for problem in naming.problems if f"more than {4 << 20} bytes" in problem.message]
    assert {problem.subject for problem in too_long} == {in_pod().cgroup, f"/docker/{ID}"}


def test_a_bundle_that_cannot_be_read_costs_no_other_source(host: NameHost, naming: Naming) -> None:
    host.bundle(ID, b"\xff" * MORE_THAN_IS_READ)
    host.log()
    assert _names(naming, in_pod()) == ("trainer", NAMED, True)
    assert len(naming.problems) == 1


@pytest.mark.parametrize(
    "text", [b"[", b"[]", b"\xff\xfe", b"[" * 500_000, b'{"annotations": {"io.kubernetes.pod.name": "\\n"}}']
)
def test_a_bundle_that_is_none_is_a_problem_in_one_line(host: NameHost, naming: Naming, text: bytes) -> None:
    host.bundle(ID, text)
    assert _cycles(naming, [in_pod()])[-1] == [in_pod()]
    assert naming.problems
    assert all(problem.message.isprintable() for problem in naming.problems)


@pytest.mark.parametrize("name", [b"x" * 186 + b"-", b"\xff_ml_trainer-", b"a\n_b_c-", b"-"])
def test_hostile_names_of_logs_name_nobody(host: NameHost, naming: Naming, name: bytes) -> None:
    host.write("/var/log/containers/README", "")
    (host.root / "var/log/containers").joinpath(os.fsdecode(name + ID.encode() + b".log")).touch()
    assert [one.is_named for [one] in _cycles(naming, [in_pod()])] == [False, False, True]
    assert naming.is_up is False
    assert all(problem.message.isprintable() for problem in naming.problems)


def test_no_more_than_a_bound_of_logs_is_looked_at(host: NameHost, tmp_path: Path) -> None:
    class ManyLogs(FailingFiles):
        def read_names(self, path: Path | str, most: int | None = None) -> list[str]:
            names = super().read_names(path, most)
            return [f"{number:07}.log" for number in range(10**6)][:most] if str(path).endswith("containers") else names

    host.log()
    naming = Naming(HostPaths(tmp_path), ManyLogs(0, is_gone=True))
    assert _cycles(naming, [in_pod()])[-1] == [in_pod()]
    folder = str(tmp_path / "var/log/containers")
    assert any(it.subject == folder and "100000" in it.message for it in naming.problems)


def test_a_folder_that_cannot_be_read_is_one_problem_for_all(tmp_path: Path) -> None:
    host = NameHost(tmp_path)
    host.pod_folder()
    host.log_folder()
    naming = Naming(HostPaths(tmp_path), FailingFiles(1, is_gone=False, for_good=True))
    last = _cycles(naming, [in_pod(), in_pod(SANDBOX)])[-1]
    assert all(one.is_named for one in last)
    subjects = [problem.subject for problem in naming.problems if "as the test wants" in problem.message]
    assert sorted(subjects) == sorted(
        {str(tmp_path / place) for place in ("var/log/containers", "var/log/pods", "var/lib/docker/containers")}
    )


@pytest.mark.parametrize("is_gone", [True, False])
@pytest.mark.parametrize("for_good", [True, False])
def test_each_read_may_fail(host: NameHost, tmp_path: Path, *, is_gone: bool, for_good: bool) -> None:
    """Whichever read fails: nothing is raised, no wrong name is given, and what has a name keeps it."""
    host.bundle(ID, recorded("containerd-container.json"))
    host.bundle(SANDBOX, recorded("containerd-sandbox.json"))
    host.log("10" * 32, Pod(OTHER, "solo", "ml", "one"))
    host.pod_folder("one", pod=Pod(OTHER, "solo", "ml", "one"))
    host.docker("d0" * 32, recorded("docker.config.v2.json"))
    host.storage(recorded("podman-containers.json"))
    podman = "e73c14216bbaf34681c63eb154c9063609808150e3288817c5b3f7e7466c003b"
    step = host.step("s0123456789ABC", "0", "slurmstepd: [77.0]", 1000)
    containers = [
        in_pod(),
        in_pod(SANDBOX),
        in_pod("10" * 32, OTHER),
        of_engine(Runtime.DOCKER, "d0" * 32),
        of_engine(Runtime.PODMAN, podman),
        step,
    ]
    right = {"trainer", "one", "train_gpt", "slurm-77.0", step.name, None}
    counting = FailingFiles(0, is_gone=True)
    Naming(HostPaths(tmp_path), counting).name(containers)
    assert counting.reads > 20
    for number in range(1, counting.reads + 1):
        naming = Naming(HostPaths(tmp_path), FailingFiles(number, is_gone=is_gone, for_good=for_good))
        cycles = _cycles(naming, containers, 4)
        assert all({one.name for one in cycle} <= right for cycle in cycles)
        assert all(one.is_named for one in cycles[2])
        assert cycles[3] == cycles[2]
        assert all(problem.message.isprintable() for problem in naming.problems)
        if not for_good and not is_gone:
            assert {one.name for one in cycles[2]} >= {"one", "train_gpt", "slurm-77.0"}, number


@pytest.mark.parametrize(
    ("runtime", "is_named"), [(Runtime.DOCKER, False), (Runtime.LXC, False), (Runtime.SYSTEMD, True)]
)
def test_what_is_inside_a_container_bears_no_name_of_the_hosts(
    host: NameHost, naming: Naming, runtime: Runtime, *, is_named: bool
) -> None:
    host.log()
    outer = Container(CgroupPath("/system.slice/outer.scope"), runtime, name="outer")
    inner = replace(in_pod(), cgroup=CgroupPath(f"{outer.cgroup}{in_pod().cgroup}"))
    found = next(it for it in naming.name([outer, inner]) if it.id == inner.id)
    assert (found.pod is not None and found.pod.name is not None) is is_named
    assert found.is_named


def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(host: NameHost, naming: Naming) -> None:
    place = host.docker(ID, "")
    place.unlink()
    os.mkfifo(place)
    [found] = naming.name([of_engine(Runtime.DOCKER)])
    assert found.name is None
    assert [problem.stage for problem in naming.problems] == [Stage.NAMES]
