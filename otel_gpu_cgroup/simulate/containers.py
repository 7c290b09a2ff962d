# SPDX-License-Identifier: Apache-2.0
"""Pure: the simulated host's containers, what their runtimes let them open, and their processes on its GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from otel_gpu_cgroup.simulate.machine import CAPS_MAJOR, GPUS


@dataclass(frozen=True, slots=True)
class SimulatedPod:
    """The Kubernetes names of a container."""

    uid: str
    namespace: str
    name: str
    container: str


@dataclass(frozen=True, slots=True)
class SimulatedProcess:
    """One process, and what it uses of each device that it is on."""

    pid: int
    minor: int
    """Of the GPU."""
    memory: float
    """Its part of what is in use there, 0..1."""
    busy: float
    """Its part of the time in which the device is busy, 0..1."""
    gpu_instance: int | None = None


@dataclass(frozen=True, slots=True)
class SimulatedContainer:
    """One container: its cgroup, its names, its processes, and the device rules that its runtime gives it."""

    cgroup: str
    minors: tuple[int, ...] = ()
    """GPUs that it was given; its devices.list, where the host has cgroup v1, is made of them."""
    capabilities: tuple[int, ...] = ()
    """Minors of the capability nodes that it was given."""
    privileged: bool = False
    is_lost: bool = False
    """Whether a reload of systemd has taken its GPUs from it."""
    programs: tuple[str, ...] = ()
    """Those on its cgroup where the host has cgroup v2, by file of the folder programs/."""
    cgroup_v1: str | None = None
    """Where the host has cgroup v1; None for the same."""
    below: str = ""
    """The cgroup below its own in which its processes are."""
    docker_name: str | None = None
    podman_name: str | None = None
    pod: SimulatedPod | None = None
    processes: tuple[SimulatedProcess, ...] = ()

    @property
    def id(self) -> str:
        """The runtime's id in the cgroup's name."""
        return self.cgroup.rpartition("/")[2].removesuffix(".scope").rpartition("-")[2]

    def path(self, version: str) -> str:
        """Its cgroup where the host has this version."""
        return self.cgroup_v1 or self.cgroup if version == "v1" else self.cgroup

    def devices_list(self) -> str:
        """Its devices.list, in the words of the kernel; the rules are those of runc and NVIDIA's container toolkit."""
        if self.privileged:
            return "a *:* rwm\n"
        given = [f"c 195:{minor} rw" for minor in self.minors]
        given += [f"c {CAPS_MAJOR}:{minor} rw" for minor in self.capabilities]
        shared = ["c 195:255 rw", "c 195:254 rw", "c 507:0 rw", "c 507:1 rw"] if given else []
        gpus = [f"c 195:{minor} m" for minor in self.minors] if self.is_lost else [*shared, *given]
        return "".join(f"{rule}\n" for rule in (*_BASE_RULES, *gpus))


_BASE_RULES: Final = (
    "c *:* m",
    "b *:* m",
    "c 1:3 rwm",
    "c 1:8 rwm",
    "c 1:7 rwm",
    "c 5:0 rwm",
    "c 1:5 rwm",
    "c 1:9 rwm",
    "c 5:1 rwm",
    "c 136:* rwm",
    "c 5:2 rwm",
)
_PARTITIONED: Final = next(gpu for gpu in GPUS if gpu.instances)
_INSTANCES: Final = {instance.gpu_instance: instance for instance in _PARTITIONED.instances}


def _id(word: str) -> str:
    """A runtime's 64 hexadecimal digits, with a beginning that can be told apart."""
    return word.ljust(64, "0")


def _pod_slice(uid: str, qos: str = "burstable-") -> str:
    above = f"/kubepods.slice/kubepods-{qos.rstrip('-')}.slice" if qos else "/kubepods.slice"
    return f"{above}/kubepods-{qos}pod{uid.replace('-', '_')}.slice"


def _capabilities(gpu_instance: int) -> tuple[int, ...]:
    return _INSTANCES[gpu_instance].capabilities(_PARTITIONED.minor)


_TRAINER: Final = SimulatedPod("7a1de000-0000-4000-8000-000000000001", "training", "llama-sft-0", "trainer")
_SERVER: Final = SimulatedPod("5e4e0000-0000-4000-8000-000000000002", "inference", "chat-7d9f8", "server")
_NOTEBOOK: Final = SimulatedPod("1d1e0000-0000-4000-8000-000000000003", "research", "notebook-ada", "jupyter")

CONTAINERS: Final = (
    # two GPUs to a training pod, two to a step of Slurm
    SimulatedContainer(
        f"{_pod_slice(_TRAINER.uid)}/cri-containerd-{_id('7a1de4')}.scope",
        programs=("runc-gpus-0-1",),
        minors=(0, 1),
        pod=_TRAINER,
        processes=(SimulatedProcess(4101, 0, 0.98, 1), SimulatedProcess(4102, 1, 0.98, 1)),
    ),
    SimulatedContainer(
        "/system.slice/slurmstepd.scope/job_4211/step_0",
        cgroup_v1="/slurm/uid_1000/job_4211/step_0",
        below="/user/task_0",
        programs=("slurm-assembled-gpus-2-3",),
        minors=(2, 3),
        processes=(SimulatedProcess(4203, 2, 0.97, 1), SimulatedProcess(4204, 3, 0.97, 1)),
    ),
    # one GPU, shared by two servers; systemd, too, keeps to the rules of the second
    SimulatedContainer(
        f"{_pod_slice(_SERVER.uid)}/cri-containerd-{_id('5e4e1')}.scope",
        programs=("runc-gpu-4",),
        minors=(4,),
        pod=_SERVER,
        processes=(SimulatedProcess(4301, 4, 0.6, 0.7),),
    ),
    SimulatedContainer(
        f"/system.slice/docker-{_id('5e4e2')}.scope",
        programs=("runc-gpu-4", "systemd-assembled-gpu-4"),
        minors=(4,),
        docker_name="embedder",
        processes=(SimulatedProcess(4302, 4, 0.2, 0.2), SimulatedProcess(4303, 4, 0.15, 0.1)),
    ),
    # instances of one GPU to a busy and to an idle notebook; a third is free
    SimulatedContainer(
        f"/machine.slice/libpod-{_id('0b00c')}.scope",
        programs=("crun-instance-5-2",),
        minors=(5,),
        capabilities=_capabilities(2),
        podman_name="lab",
        processes=(SimulatedProcess(4401, 5, 0.99, 1, gpu_instance=2),),
    ),
    SimulatedContainer(
        f"{_pod_slice(_NOTEBOOK.uid, qos='')}/crio-{_id('1d1e')}.scope",
        programs=("crun-instance-5-3",),
        minors=(5,),
        capabilities=_capabilities(3),
        pod=_NOTEBOOK,
        processes=(SimulatedProcess(4402, 5, 0.99, 0, gpu_instance=3),),
    ),
    # one whose GPU a reload of systemd took away, while its process goes on
    SimulatedContainer(
        f"/system.slice/docker-{_id('105e')}.scope",
        programs=("runc-gpu-6", "systemd-assembled-no-gpu"),
        minors=(6,),
        is_lost=True,
        docker_name="transcoder",
        processes=(SimulatedProcess(4501, 6, 0.97, 1),),
    ),
    # one that may open everything, and one that may open no GPU
    SimulatedContainer(
        f"/system.slice/docker-{_id('f4ee')}.scope",
        programs=("runc-privileged",),
        privileged=True,
        docker_name="node-exporter",
    ),
    SimulatedContainer(f"/docker/{_id('3eb')}", programs=("runc-no-gpu",), docker_name="web"),
)
PROCESSES: Final = tuple(process for container in CONTAINERS for process in container.processes)
