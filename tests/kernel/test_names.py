# SPDX-License-Identifier: Apache-2.0
"""Names of what really runs: a container of runc in a pod's cgroup, and the processes of a step of Slurm."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.containers.discovery.containers import ContainerDiscovery
from otel_gpu_cgroup.containers.naming.naming import Naming
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import CgroupPath, Container, Runtime, SlurmStep
from tests.support.bpf import unified_hierarchy
from tests.support.name_host import NAMED, UID, NameHost, recorded
from tests.support.need import need
from tests.support.runc import DENY_ALL, RuncSpec, need_runc, runc_container

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OWNER: Final = 54321


def test_a_container_of_a_pod_is_named_and_its_sandbox_left_out(tmp_path: Path) -> None:
    need_runc()
    host = NameHost(tmp_path / "host")
    host.root.mkdir()
    for name in ("proc", "sys", "dev"):
        (host.root / name).symlink_to(f"/{name}")
    container, sandbox = (f"/kubepods/burstable/pod{UID}/{secrets.token_hex(32)}" for _ in range(2))
    with (
        runc_container(tmp_path, RuncSpec(container, (DENY_ALL,))) as one,
        runc_container(tmp_path, RuncSpec(sandbox, (DENY_ALL,))) as other,
    ):
        for made, file in ((one, "containerd-container.json"), (other, "containerd-sandbox.json")):
            bundle = json.loads((made.output.parent / "config.json").read_text())
            bundle["annotations"] = json.loads(recorded(file))["annotations"]
            host.bundle(made.cgroup.rpartition("/")[2], json.dumps(bundle))
        here, naming = HostPaths(host.root), Naming(HostPaths(host.root))
        found = {it.cgroup: it for it in naming.name(ContainerDiscovery(here).discover()) if UID in it.cgroup}
    assert list(found) == [container]
    assert (found[CgroupPath(container)].name, found[CgroupPath(container)].pod) == ("trainer", NAMED)


def test_a_steps_processes_tell_its_job_and_owner() -> None:
    need(os.geteuid() == 0, "only root makes cgroups")
    top = unified_hierarchy()
    need(top is not None, "no cgroup2 hierarchy is mounted")
    cgroup = f"/{secrets.token_hex(4)}_slurmstepd.scope/s0123456789ABC/step_0"
    step = Container(
        CgroupPath(cgroup), Runtime.SLURM, slurm=SlurmStep("0"), unified=f"{top}{cgroup}/user/task_0", inode=1
    )
    with (
        _running(f"{top}{cgroup}/slurm", "slurmstepd: [77.0]", 0),
        _running(f"{top}{cgroup}/user/task_0", "python", OWNER),
    ):
        [found] = Naming(HostPaths()).name([step])
    assert (found.name, found.slurm) == ("slurm-77.0", SlurmStep("0", "77", OWNER))


@contextmanager
def _running(folder: str, title: str, uid: int) -> Iterator[None]:
    """A process in a new cgroup, with a command line of one word; the cgroups go with it."""
    os.makedirs(folder)
    with subprocess.Popen([title], executable="/bin/cat", stdin=subprocess.PIPE, user=uid) as process:
        try:
            with open(f"{folder}/cgroup.procs", "w") as procs:
                procs.write(str(process.pid))
            yield
        finally:
            process.kill()
            process.wait()
            _remove(folder)


def _remove(folder: str) -> None:
    """The cgroup and those above it that are empty by now."""
    while "slurmstepd.scope" in folder:
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)
