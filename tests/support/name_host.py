# SPDX-License-Identifier: Apache-2.0
"""The files in which kubelet, engines and Slurm leave names, below a root of a test's own, and reads that fail."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup import host as host_files
from otel_gpu_cgroup.errors import Gone, HostUnreadable
from otel_gpu_cgroup.host import MAX_BYTES
from otel_gpu_cgroup.model import CgroupPath, Container, Pod, Runtime, SlurmStep

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

DATA: Final = Path(__file__).parents[1] / "data/names"
UID: Final = "6f6d7d0a-7d3c-4b6f-9a53-0d1c1f2e3a4b"
"""Of the pod `bert-7f9c` in namespace `ml` of the recorded files."""
ID: Final = "a6a0b0c0f02670525c4079ee8f6d9237cab7fe3248e7e5971d2ec07c93ccf784"
SANDBOX: Final = "5113cf1b97a0d5deac73f9c1a69f4501f1bed6aa279be08347b506c783d583a5"
NAMED: Final = Pod(UID, "bert-7f9c", "ml", "trainer")


def recorded(name: str) -> str:
    return (DATA / name).read_text()


def in_pod(identity: str = ID, uid: str = UID, runtime: Runtime = Runtime.CONTAINERD) -> Container:
    cgroup = CgroupPath(f"/kubepods/burstable/pod{uid}/{identity}")
    return Container(cgroup, runtime, identity, pod=Pod(uid), inode=int(identity[:8], 16))


def of_engine(runtime: Runtime, identity: str = ID) -> Container:
    return Container(CgroupPath(f"/{runtime.value}/{identity}"), runtime, identity, inode=7)


class NameHost:
    """Writes such files as their writers do."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str | bytes) -> Path:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
        return place

    def bundle(self, identity: str, text: str | bytes, namespace: str = "k8s.io") -> Path:
        folder = f"/run/containerd/io.containerd.runtime.v2.task/{namespace}"
        return self.write(f"{folder}/{identity}/config.json", text)

    def crio_bundle(self, identity: str, text: str) -> Path:
        return self.write(f"/run/containers/storage/overlay-containers/{identity}/userdata/config.json", text)

    def docker(self, identity: str, text: str | bytes) -> Path:
        return self.write(f"/var/lib/docker/containers/{identity}/config.v2.json", text)

    def storage(self, text: str, file: str = "containers.json") -> Path:
        return self.write(f"/var/lib/containers/storage/overlay-containers/{file}", text)

    def log_folder(self) -> Path:
        folder = self.root / "var/log/containers"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def log(self, identity: str = ID, pod: Pod = NAMED) -> Path:
        """The link that kubelet makes once a container runs; nothing need be where it points to."""
        link = self.log_folder() / f"{pod.name}_{pod.namespace}_{pod.container}-{identity}.log"
        link.symlink_to(f"/var/log/pods/{pod.namespace}_{pod.name}_{pod.uid}/{pod.container}/0.log")
        return link

    def pod_folder(self, *containers: str, pod: Pod = NAMED) -> Path:
        folder = self.root / f"var/log/pods/{pod.namespace}_{pod.name}_{pod.uid}"
        folder.mkdir(parents=True, exist_ok=True)
        for container in containers:
            (folder / container).mkdir()
        return folder

    def step(self, job: str, step: str, title: str, owner: int | None) -> Container:
        """A Slurm step of cgroup v2, its daemon and a task, of which the processes are files here."""
        cgroup = f"/system.slice/slurmstepd.scope/{job}/step_{step}"
        hierarchy = "/sys/fs/cgroup"
        self.write(f"{hierarchy}{cgroup}/slurm/cgroup.procs", "100\n")
        self.write("/proc/100/cmdline", f"{title}\0")
        self.write(f"{hierarchy}{cgroup}/user/cgroup.procs", "")
        self.write(f"{hierarchy}{cgroup}/user/task_0/cgroup.procs", "0\n200\n201\n")
        self.write("/proc/201/cmdline", "python\0")
        if owner is not None:
            os.chown(self.root / "proc/201", owner, owner)
        number = job.removeprefix("job_") if job.startswith("job_") else None
        folder = f"{self.root}{hierarchy}{cgroup}/user/task_0"
        return Container(
            CgroupPath(cgroup),
            Runtime.SLURM,
            name=f"slurm-{number or job}.{step}",
            slurm=SlurmStep(step, number),
            unified=folder,
            inode=3,
        )


class FailingFiles:
    """The host's files, of which the n-th read fails, and with `for_good` all that follow."""

    def __init__(self, fails_at: int, *, is_gone: bool, for_good: bool = False) -> None:
        self.reads = 0
        self._fails_at = fails_at
        self._is_gone = is_gone
        self._for_good = for_good

    def read_text(self, path: Path | str, limit: int = MAX_BYTES) -> str:
        return self._read(path, lambda: host_files.read_text(path, limit))

    def read_stored(self, path: Path | str, limit: int = MAX_BYTES) -> str:
        return self._read(path, lambda: host_files.read_stored(path, limit))

    def read_names(self, path: Path | str, most: int | None = None) -> list[str]:
        return self._read(path, lambda: host_files.read_names(path, most))

    def read_link(self, path: Path | str) -> str:
        return self._read(path, lambda: host_files.read_link(path))

    def read_status(self, path: Path | str) -> os.stat_result:
        return self._read(path, lambda: host_files.read_status(path))

    def _read(self, path: Path | str, read: Callable[[], T]) -> T:
        self.reads += 1
        if self.reads == self._fails_at or (self._for_good and self.reads > self._fails_at):
            raise (Gone if self._is_gone else HostUnreadable)(f"{str(path)!r} cannot be read: as the test wants")
        return read()
