# SPDX-License-Identifier: Apache-2.0
"""A look at sleeping processes by a `ProcessTable` in other namespaces than the test's; needs root and util-linux.

    look_from(Look(containers={"own": "/a", "other": "/b"}, sleepers={"mine": [folder]}), "--cgroup", within=[folder])

The looking process is moved into the cgroups `within`, enters the namespaces, starts the sleepers in theirs, and says
what the table tells of them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_gpu_cgroup.containers.own.discovery import OwnDiscovery
from otel_gpu_cgroup.containers.processes.table import ProcessTable
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import (
    CgroupPath,
    Container,
    DeviceInventory,
    Gpu,
    GpuProcess,
    GpuReading,
    GpuUuid,
    Ownership,
    Runtime,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

REPOSITORY: Final = Path(__file__).parents[2]
_UUID: Final = GpuUuid("GPU-1")
_ENTER: Final = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done; shift; exec "$@"'


@dataclass
class Look:
    """What is looked at, and how."""

    containers: Mapping[str, str]
    """The cgroups by their containers' keys; not used where the own container alone is looked for."""
    sleepers: Mapping[str, Sequence[str]]
    """By name, the folders of the cgroups that each is moved into."""
    is_v1: bool = True
    own_only: bool = False
    driver_version: str | None = None
    pids: Sequence[int] = field(default_factory=list)
    """Others that the driver lists."""


@dataclass
class Seen:
    """What the table said; of the sleepers, those that it knows."""

    is_told: bool
    are_samples_told: bool
    messages: list[str]
    owners: dict[str, str | None]


def inventory(
    pids: Iterable[int], driver_version: str | None = None, *, listed_at: float | None = None
) -> DeviceInventory:
    """One GPU with these processes, listed now unless at a CLOCK_BOOTTIME is given."""
    reading = GpuReading(processes=tuple(GpuProcess(pid) for pid in pids))
    at = time.clock_gettime(time.CLOCK_BOOTTIME) if listed_at is None else listed_at
    return DeviceInventory((Gpu(0, _UUID),), {_UUID: reading}, driver_version, booted_at=at)


def container(key: str, cgroup: str, *, is_v1: bool = True) -> Container:
    return Container(CgroupPath(cgroup), Runtime.DOCKER, key, devices="a folder" if is_v1 else None)


def keys(ownership: Ownership) -> dict[int, str | None]:
    return {pid: owner.container for pid, owner in ownership.owners.items()}


def sleeper(*folders: str) -> int:
    """A process that waits in these cgroups, in which it is before this returns; who made it ends it."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    for folder in folders:
        Path(folder, "cgroup.procs").write_text(f"{pid}")
    return pid


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def look_from(look: Look, *namespaces: str, within: Iterable[str] = ()) -> Seen:
    """Look from new namespaces, each an option of unshare(1)."""
    command = ["unshare", *namespaces, sys.executable, "-m", "tests.support.attribution", json.dumps(asdict(look))]
    enter = ["sh", "-c", _ENTER, "enter", *within, "--"]
    done = subprocess.run([*enter, *command], capture_output=True, text=True, timeout=60, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    return Seen(**json.loads(done.stdout))


def _look(look: Look) -> dict[str, Any]:
    pids = {name: sleeper(*folders) for name, folders in look.sleepers.items()}
    try:
        made = [container(key, cgroup, is_v1=look.is_v1) for key, cgroup in look.containers.items()]
        containers = OwnDiscovery().discover() if look.own_only else made
        listed = inventory([*pids.values(), *look.pids], look.driver_version)
        told = ProcessTable(HostPaths(), own_only=look.own_only).attribute(listed, containers)
    finally:
        for pid in pids.values():
            end(pid)
    owners = {name: told.owners[pid].container for name, pid in pids.items() if pid in told.owners}
    messages = [problem.message for problem in told.problems]
    return asdict(Seen(told.is_told, told.are_samples_told, messages, owners))


if __name__ == "__main__":
    print(json.dumps(_look(Look(**json.loads(sys.argv[1])))))  # noqa: T201
