# SPDX-License-Identifier: Apache-2.0
"""What a host's files and the kernel's queries show of a container that is denied a device."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pytest

from otel_gpu_cgroup.cgroup.bpf.policy import BpfPolicy, DeviceProgram
from otel_gpu_cgroup.cgroup.devices_list import parse_devices_list
from otel_gpu_cgroup.cgroup.evidence import Evidence
from otel_gpu_cgroup.cgroup.policy import BothPolicies, UnknownPolicy
from otel_gpu_cgroup.cgroup.probe import ProbedPolicy
from otel_gpu_cgroup.errors import Gone, PolicyUnreadable
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import (
    CgroupPath,
    Container,
    DeviceNode,
    DeviceType,
    Gpu,
    GpuUuid,
    MigInstance,
    Runtime,
    SlurmStep,
    gpu_node,
)
from tests.support import bpf_programs
from tests.support.bpf_programs import parse_rule
from tests.support.need import need

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from otel_gpu_cgroup.cgroup.bpf.syscall import ProgramInfo
    from otel_gpu_cgroup.cgroup.policy import DevicePolicy

GPUS: Final = tuple(Gpu(minor, GpuUuid(f"GPU-{minor}")) for minor in range(3))
GENERIC: Final = parse_devices_list("c *:* m\n")
ALL_MINORS: Final = parse_devices_list("c 195:* m\n")
NO_LIST: Final = parse_devices_list("")
CAPABILITIES: Final = (DeviceNode(DeviceType.CHAR, 510, 3), DeviceNode(DeviceType.CHAR, 510, 4))
INSTANCE: Final = Gpu(0, GpuUuid("MIG-1"), instance=MigInstance(GpuUuid("GPU-0"), 1, 0, nodes=CAPABILITIES))
OWN_DEV: Final = "its own /dev has the node"
MKNOD: Final = "its devices.list has mknod alone for 195:*, as systemd leaves it at daemon-reload"
PROGRAMS: Final = "of the 2 programs on its cgroup systemd's denies it"
WHOLE: Final = "24 27 0:6 / /dev rw,relatime - devtmpfs devtmpfs rw"
OWN: Final = "500 490 0:61 / /dev rw,nosuid - tmpfs tmpfs rw"
PID: Final = 42


@dataclass(slots=True)
class Kernel:
    """The programs on each cgroup folder, and which were asked for."""

    on: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    refusal: Exception | None = None

    def query_effective(self, cgroup: str) -> tuple[int, ...]:
        raise AssertionError(cgroup)

    def query_local(self, cgroup: str) -> tuple[int, ...]:
        self.asked.append(cgroup)
        if self.refusal is not None:
            raise self.refusal
        return self.on.get(cgroup, ())

    def read_program(self, identifier: int) -> ProgramInfo:
        raise AssertionError(identifier)


def _found(
    root: Path, policy: DevicePolicy, container: Container, gpus: Sequence[Gpu] = GPUS, kernel: Kernel | None = None
) -> dict[str, str]:
    reasons = Evidence(HostPaths(root), kernel or Kernel()).find(container, policy, gpus)
    return {gpu.uuid or "": reason for gpu, reason in reasons.items()}


def _container(root: Path, runtime: Runtime = Runtime.DOCKER, pids: str = f"{PID}\n") -> Container:
    """One with a process in a /dev of the same file system as the host's."""
    folder = root / "cgroup"
    folder.mkdir()
    (folder / "cgroup.procs").write_text(pids)
    for process in (1, PID):
        (root / f"proc/{process}/root/dev").mkdir(parents=True)
    return Container(CgroupPath("/docker/one"), runtime, "one", devices=str(folder))


def _mount(root: Path, dev: str, nodes: Mapping[str, DeviceNode]) -> None:
    """What the process sees: a /dev, and nodes mounted one by one."""
    need(os.geteuid() == 0, "making device nodes needs root")
    lines = [dev]
    for name, node in nodes.items():
        path = root / f"proc/{PID}/root/dev/{name}"
        path.parent.mkdir(exist_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(node.major, node.minor))
        lines.append(f"510 500 0:6 /{name} /dev/{name} rw - devtmpfs devtmpfs rw")
    (root / f"proc/{PID}/mountinfo").write_text("\n".join([*lines, ""]))


def test_a_node_that_is_mounted_singly_is_the_containers(tmp_path: Path) -> None:
    container = _container(tmp_path)
    _mount(tmp_path, OWN, {"nvidia1": gpu_node(1), "nvidiactl": gpu_node(255)})
    for policy in (GENERIC, NO_LIST):
        assert _found(tmp_path, policy, container) == {"GPU-1": OWN_DEV}
    assert _found(tmp_path, parse_devices_list("c 195:1 rw\n"), container) == {}


def test_a_node_in_the_whole_dev_of_the_host_is_not_the_containers(tmp_path: Path) -> None:
    container = _container(tmp_path)
    _mount(tmp_path, WHOLE, {"nvidia1": gpu_node(1)})
    assert _found(tmp_path, GENERIC, container) == {}


def test_a_node_that_is_not_mounted_singly_in_the_hosts_file_system_is_the_hosts(tmp_path: Path) -> None:
    container = _container(tmp_path)
    _mount(tmp_path, OWN, {"nvidia1": gpu_node(1)})
    (tmp_path / f"proc/{PID}/mountinfo").write_text(f"{OWN}\n")
    assert _found(tmp_path, GENERIC, container) == {}


@pytest.mark.parametrize(
    ("runtime", "slurm"),
    [(Runtime.SYSTEMD, None), (Runtime.SLURM, SlurmStep("0", "1")), (Runtime.APPTAINER, None)],
)
def test_nodes_before_a_unit_a_slurm_step_or_apptainer_prove_nothing(
    tmp_path: Path, runtime: Runtime, slurm: SlurmStep | None
) -> None:
    container = replace(_container(tmp_path, runtime), slurm=slurm)
    _mount(tmp_path, OWN, {"nvidia1": gpu_node(1)})
    assert _found(tmp_path, GENERIC, container) == {}
    assert _found(tmp_path, parse_devices_list("c 195:1 m\n"), container) != {}


def test_an_instance_is_the_containers_with_all_its_nodes(tmp_path: Path) -> None:
    container = _container(tmp_path)
    nodes = {"nvidia0": gpu_node(0), "nvidia-caps/nvidia-cap3": CAPABILITIES[0]}
    _mount(tmp_path, OWN, nodes)
    assert _found(tmp_path, GENERIC, container, [INSTANCE]) == {}
    capability = tmp_path / f"proc/{PID}/root/dev/nvidia-caps/nvidia-cap4"
    os.mknod(capability, stat.S_IFCHR, os.makedev(510, 4))
    with (tmp_path / f"proc/{PID}/mountinfo").open("a") as mountinfo:
        mountinfo.write("511 500 0:6 /nvidia-caps/nvidia-cap4 /dev/nvidia-caps/nvidia-cap4 rw - devtmpfs devtmpfs rw\n")
    assert _found(tmp_path, GENERIC, container, [INSTANCE]) == {"MIG-1": OWN_DEV}
    unknown = Gpu(0, GpuUuid("MIG-2"), instance=MigInstance(GpuUuid("GPU-0"), 2, 0))
    assert _found(tmp_path, GENERIC, container, [unknown]) == {}


def test_a_rule_for_all_minors_is_a_sign_where_no_dev_says_otherwise(tmp_path: Path) -> None:
    container = _container(tmp_path)
    assert _found(tmp_path, ALL_MINORS, container) == {"GPU-0": MKNOD, "GPU-1": MKNOD, "GPU-2": MKNOD}
    _mount(tmp_path, OWN, {"nvidia1": gpu_node(1)})
    assert _found(tmp_path, ALL_MINORS, container) == {"GPU-1": MKNOD}


@pytest.mark.parametrize("slurm", [None, SlurmStep("0", "1")], ids=["a unit", "a Slurm step"])
def test_batch_systems_have_rules_for_all_minors(tmp_path: Path, slurm: SlurmStep | None) -> None:
    runtime = Runtime.SYSTEMD if slurm is None else Runtime.SLURM
    container = replace(_container(tmp_path, runtime), slurm=slurm)
    assert _found(tmp_path, ALL_MINORS, container) == {}


@pytest.mark.parametrize("pids", ["", "0\n", "99999\n"], ids=["empty", "of another namespace", "gone"])
def test_a_container_without_a_process_that_can_be_seen_shows_nothing(tmp_path: Path, pids: str) -> None:
    assert _found(tmp_path, GENERIC, _container(tmp_path, pids=pids)) == {}


def test_a_container_without_a_folder_shows_nothing(tmp_path: Path) -> None:
    assert _found(tmp_path, GENERIC, Container(CgroupPath("/docker/one"), Runtime.DOCKER, "one")) == {}
    gone = Container(CgroupPath("/docker/one"), Runtime.DOCKER, "one", unified=str(tmp_path / "gone"))
    assert _found(tmp_path, GENERIC, gone) == {}


_ONE: Final = [parse_rule("allow c 195:0 rw"), parse_rule("allow c *:* m")]
_DIFFERING: Final = BpfPolicy(
    [DeviceProgram(bpf_programs.runc(_ONE)), DeviceProgram(bpf_programs.systemd(_ONE[1:]))], [7, 8]
)
_ROOT: Final = "/sys/fs/cgroup"
_SCOPE: Final = "/machine.slice/libpod-ab.scope"


@pytest.mark.parametrize(
    ("unified", "on", "asked"),
    [
        (_SCOPE, {_SCOPE: (7, 8)}, [_SCOPE]),
        (f"{_SCOPE}/container", {_SCOPE: (7, 8)}, [f"{_SCOPE}/container", _SCOPE]),
        (f"{_SCOPE}/container/init", {_SCOPE: (7, 8)}, [f"{_SCOPE}/container/init", f"{_SCOPE}/container", _SCOPE]),
        ("/user.slice/elsewhere", {"/user.slice/elsewhere": (7, 8)}, ["/user.slice/elsewhere"]),
        (f"{_SCOPE}s", {f"{_SCOPE}s": (7, 8)}, [f"{_SCOPE}s"]),
    ],
)
def test_programs_are_looked_for_on_the_containers_own_cgroups(
    tmp_path: Path, unified: str, on: Mapping[str, tuple[int, ...]], asked: Sequence[str]
) -> None:
    kernel = Kernel({_ROOT + folder: ids for folder, ids in on.items()})
    container = Container(CgroupPath(_SCOPE), Runtime.PODMAN, "ab", unified=_ROOT + unified)
    assert _found(tmp_path, _DIFFERING, container, kernel=kernel) == {"GPU-0": PROGRAMS}
    assert kernel.asked == [_ROOT + folder for folder in asked]


def test_a_denial_from_above_is_a_restriction(tmp_path: Path) -> None:
    container = Container(CgroupPath(_SCOPE), Runtime.PODMAN, "ab", unified=_ROOT + _SCOPE)
    kernel = Kernel({_ROOT + _SCOPE: (7,), f"{_ROOT}/machine.slice": (8,)})
    assert _found(tmp_path, _DIFFERING, container, kernel=kernel) == {}


def test_programs_beside_a_list_count(tmp_path: Path) -> None:
    container = Container(CgroupPath(_SCOPE), Runtime.PODMAN, "ab", unified=_ROOT + _SCOPE)
    policy = BothPolicies(parse_devices_list("a *:* rwm\n"), _DIFFERING)
    assert _found(tmp_path, policy, container, kernel=Kernel({_ROOT + _SCOPE: (7, 8)})) == {"GPU-0": PROGRAMS}


@pytest.mark.parametrize("refusal", [PolicyUnreadable("refused"), Gone("ended")])
def test_programs_that_cannot_be_asked_for_show_nothing(tmp_path: Path, refusal: Exception) -> None:
    container = Container(CgroupPath(_SCOPE), Runtime.PODMAN, "ab", unified=_ROOT + _SCOPE)
    assert _found(tmp_path, _DIFFERING, container, kernel=Kernel(refusal=refusal)) == {}


def test_where_programs_agree_nothing_is_asked(tmp_path: Path) -> None:
    container = Container(CgroupPath(_SCOPE), Runtime.PODMAN, "ab", unified=_ROOT + _SCOPE)
    kernel, alike = Kernel(), BpfPolicy(_DIFFERING.programs[1:], [8])
    assert _found(tmp_path, alike, container, kernel=kernel) == {}
    assert kernel.asked == []


@pytest.mark.parametrize(("dev", "expected"), [(OWN, {"GPU-0": OWN_DEV}), (WHOLE, {})], ids=["own", "the host's"])
def test_from_inside_the_own_dev_is_a_sign(tmp_path: Path, dev: str, expected: dict[str, str]) -> None:
    need(os.geteuid() == 0, "making device nodes needs root")
    for folder in ("dev", "proc/self"):
        (tmp_path / folder).mkdir(parents=True)
    os.mknod(tmp_path / "dev/nvidia0", stat.S_IFCHR, os.makedev(195, 0))
    (tmp_path / "proc/self/mountinfo").write_text(f"{dev}\n")
    answers = ((gpu_node(0), errno.EPERM), (gpu_node(255), 0))
    policy = ProbedPolicy(answers, UnknownPolicy(PolicyUnreadable("no cgroup is visible")))
    assert _found(tmp_path, policy, Container(CgroupPath("/"), Runtime.UNKNOWN)) == expected
