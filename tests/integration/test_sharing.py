# SPDX-License-Identifier: Apache-2.0
"""Real containers of runc that share a GPU, or have an instance each, in what the commands print of them.

The kernel is this machine's; the driver is the fake, and so are its files and Docker's, below a root whose /sys and
whose containers' processes are the real ones.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.fakes.fake_nvml import GIB, FakeGpu, FakeMemory, Steady, World
from tests.fakes.nvml_world import FakeInstance, FakeProcess, FakeShare
from tests.support.agent import run_command
from tests.support.name_host import NameHost
from tests.support.runc import DENY_ALL, PRIVILEGED, RuncSpec, docker_cgroup, need_runc, runc_container

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.support.agent import Driver
    from tests.support.runc import RuncContainer

    Start = Callable[..., RuncContainer]

CAPABILITIES: Final = Path(__file__).parents[1] / "data/nvidia-caps"
"""There the capabilities of instance 7 of GPU 3 are 471 and 472, those of instance 8 480 and 481, of major 236."""
SHARED: Final = FakeGpu(
    uuid="GPU-shared", minor=1, name="NVIDIA L4", memory=FakeMemory(used=9 * GIB), samples=Steady((40,))
)
FREE: Final = FakeGpu(uuid="GPU-free", minor=5, name="NVIDIA L4")
SEVEN: Final = FakeInstance(
    slot=0, uuid="MIG-seven", gi=7, memory=FakeMemory(total=20 * GIB, used=3 * GIB), profile="2g.20gb", busy=40
)
EIGHT: Final = FakeInstance(
    slot=1, uuid="MIG-eight", gi=8, memory=FakeMemory(total=10 * GIB, used=GIB), profile="1g.10gb", busy=0
)
CUT: Final = FakeGpu(
    uuid="GPU-cut", minor=3, name="NVIDIA H100", memory=FakeMemory(used=4 * GIB), instances=(SEVEN, EIGHT)
)


class Host:
    """A root with the driver's and Docker's files, and with this machine's cgroups and chosen processes."""

    def __init__(self, root: Path, driver: Driver) -> None:
        shutil.copytree(CAPABILITIES, root)
        (root / "sys").symlink_to("/sys")
        (root / "proc/1").symlink_to("/proc/1")
        self._root = root
        self._driver = driver

    def add(self, container: RuncContainer, name: str) -> str:
        """Let Docker know a container by a name, and let its first process be seen; returns its id."""
        identity = container.cgroup.rpartition("/")[2]
        NameHost(self._root).docker(identity, json.dumps({"ID": identity, "Name": f"/{name}"}))
        self.show(container.pid)
        return identity

    def show(self, pid: int) -> None:
        """Let a process of this machine be seen."""
        (self._root / "proc" / str(pid)).symlink_to(f"/proc/{pid}")

    def run(self, *arguments: str) -> str:
        """What a command says of this host."""
        done = run_command(self._root, *arguments, "--host-root", os.fspath(self._root), **self._driver.variables())
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


@pytest.fixture
def host(driver: Driver, tmp_path: Path) -> Host:
    need_runc()
    return Host(tmp_path / "host", driver)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a container with these rules; it ends with the test."""
    with ExitStack() as stack:

        def start(*rules: str) -> RuncContainer:
            return stack.enter_context(runc_container(tmp_path, RuncSpec(docker_cgroup(), rules)))

        yield start


def documents(text: str, *identities: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The devices by id, and these containers, in this order; others may run on this machine, too."""
    document = json.loads(text)
    assert [problem for problem in document["problems"] if problem["stage"] in ("nvml", "share")] == []
    containers = {container["id"]: container for container in document["containers"]}
    return {gpu["id"]: gpu for gpu in document["gpus"]}, [containers[identity] for identity in identities]


def lines_of(text: str, first: str) -> list[list[str]]:
    """The words of a device's first line and of those below it that belong to it."""
    table = text.split("\n\n", maxsplit=1)[0].splitlines()
    at = next(at for at, line in enumerate(table) if line.split()[0] == first)
    below = next((at for at, line in enumerate(table[at + 1 :], at + 1) if not line.startswith(" ")), len(table))
    return [line.split() for line in table[at:below]]


def test_a_shared_gpu_is_each_containers_own_part_and_what_is_nobodys(driver: Driver, host: Host, start: Start) -> None:
    one, other, idle = (start(DENY_ALL, "allow c 195:1 rw") for _ in range(3))
    agent = start(*PRIVILEGED)
    ids = [host.add(it, name) for it, name in ((one, "one"), (other, "other"), (idle, "idle"), (agent, "agent"))]
    host.show(os.getpid())
    processes = (
        FakeProcess(pid=one.pid, memory=4 * GIB),
        FakeProcess(pid=other.pid, memory=2 * GIB),
        FakeProcess(pid=other.pid, memory=2 * GIB, kind="graphics"),  # the same bytes, listed twice
        FakeProcess(pid=agent.pid, memory=GIB),
        FakeProcess(pid=os.getpid(), memory=GIB),
        FakeProcess(pid=0x7FFFFFF0, memory=GIB // 2),  # there is none
    )
    shares = (FakeShare(pid=one.pid, sm=25), FakeShare(pid=other.pid, sm=5))
    driver.set(World(gpus=(replace(SHARED, processes=processes, shares=shares), FREE)))
    gpus, found = documents(host.run("once", "--format", "json"), *ids)
    assert [it["name"] for it in found] == ["one", "other", "idle", "agent"]
    assert [it["access"] for it in found] == ["explicit", "explicit", "explicit", "unrestricted"]
    assert [[row["id"] for row in it["accelerators"]] for it in found] == [["GPU-shared"]] * 4
    [rows] = zip(*(it["accelerators"] for it in found), strict=True)
    assert [(row["own"]["memory"], row["own"]["processes"]) for row in rows] == [
        (4 * GIB, 1),
        (2 * GIB, 1),
        (0, 0),
        (GIB, 1),
    ]
    assert [row["own"]["utilization"] for row in rows] == pytest.approx([0.25, 0.05, 0, 0])
    assert {(row["memory_used"], row["memory_total"], row["duty_cycle"]) for row in rows} == {(9 * GIB, 80 * GIB, 40)}
    assert set(ids) <= set(gpus["GPU-shared"]["containers"])
    assert gpus["GPU-shared"]["memory_unattributed"] == (9 - 4 - 2 - 1) * GIB
    assert not set(ids) & set(gpus["GPU-free"]["containers"])


def test_what_a_person_sees_of_a_shared_gpu(driver: Driver, host: Host, start: Start) -> None:
    one, other = (start(DENY_ALL, "allow c 195:1 rw") for _ in range(2))
    for container, name in ((one, "one"), (other, "other")):
        host.add(container, name)
    processes = (FakeProcess(pid=one.pid, memory=4 * GIB),)
    shares = (FakeShare(pid=one.pid, sm=25),)
    driver.set(World(gpus=(replace(SHARED, processes=processes, shares=shares), FREE)))
    first, *others = lines_of(host.run("once"), "nvidia1")
    device = ["nvidia1", "L4", "shared", "9216", "/", "81920", "MiB", "40", "%"]
    assert first[: len(device)] == device
    lines = [first[len(device) :], *others]
    assert ["4096", "MiB", "25", "%", "1", "one"] in lines
    assert ["0", "MiB", "0", "%", "0", "other"] in lines
    assert lines[-1] == ["5120", "MiB", "(unattributed)"]
    explained = host.run("explain", "one").splitlines()
    assert "uses       nvidia1: 1 process of it, memory 4096 MiB, busy 25 %" in explained


def test_instances_are_devices_of_their_own(driver: Driver, host: Host, start: Start) -> None:
    """One container may open instance 7 and uses it; one the GPU's node alone; one a node of each of two instances."""
    user = start(DENY_ALL, "allow c 195:3 rw", "allow c 236:471 rw", "allow c 236:472 rw")
    bare = start(DENY_ALL, "allow c 195:3 rw")
    mixed = start(DENY_ALL, "allow c 195:3 rw", "allow c 236:471 rw", "allow c 236:481 rw")
    ids = [host.add(it, name) for it, name in ((user, "user"), (bare, "bare"), (mixed, "mixed"))]
    driver.set(World(gpus=(replace(CUT, processes=(FakeProcess(pid=user.pid, memory=2 * GIB, gi=7, ci=0),)),)))
    gpus, found = documents(host.run("once", "--format", "json"), *ids)
    assert {key: (gpu["kind"], gpu["parent"], gpu["mig_profile"]) for key, gpu in gpus.items()} == {
        "GPU-cut": ("partitioned", None, None),
        "MIG-seven": ("mig", "GPU-cut", "2g.20gb"),
        "MIG-eight": ("mig", "GPU-cut", "1g.10gb"),
    }
    assert {(gpu["index"], gpu["minor"], gpu["model"]) for gpu in gpus.values()} == {(0, 3, "NVIDIA H100")}
    assert [gpus[key]["duty_cycle"] for key in ("GPU-cut", "MIG-seven", "MIG-eight")] == [None, 40, 0]
    assert gpus["MIG-seven"]["memory_unattributed"] == GIB
    holders = {key: [it for it in ids if it in gpu["containers"]] for key, gpu in gpus.items()}
    assert holders == {"GPU-cut": ids[:1], "MIG-seven": ids[:1], "MIG-eight": []}
    assert [it["access"] for it in found] == ["explicit"] * 3
    assert [it["accelerators"] for it in found[1:]] == [[], []]
    [row] = found[0]["accelerators"]
    assert row == {
        "make": "nvidia",
        "model": "NVIDIA H100",
        "id": "MIG-seven",
        "memory_total": 20 * GIB,
        "memory_used": 3 * GIB,
        "duty_cycle": 40,
        "own": {"memory": 2 * GIB, "utilization": None, "processes": 1},
        "lost": False,
        "reason": None,
    }


def test_what_a_person_sees_of_instances(driver: Driver, host: Host, start: Start) -> None:
    user = start(DENY_ALL, "allow c 195:3 rw", "allow c 236:471 rw", "allow c 236:472 rw")
    host.add(user, "user")
    driver.set(World(gpus=(replace(CUT, processes=(FakeProcess(pid=user.pid, memory=2 * GIB, gi=7, ci=0),)),)))
    text = host.run("once")
    assert lines_of(text, "nvidia3") == [["nvidia3", "H100", "MIG", "4096", "/", "81920", "MiB", "-"]]
    [user_line, *_] = lines_of(text, "nvidia3/gi7")
    assert user_line == [
        *("nvidia3/gi7", "2g.20gb", "held", "3072", "/", "20480", "MiB", "40", "%"),
        *("2048", "MiB", "-", "1", "user"),
    ]
    [free] = lines_of(text, "nvidia3/gi8")
    device = ["nvidia3/gi8", "1g.10gb", "free", "1024", "/", "10240", "MiB", "0", "%"]
    assert free == [*device, "1024", "MiB", "(unattributed)"]
    explained = host.run("explain", "user").splitlines()
    verdicts = {line.split()[0]: _verdict(line.split()) for line in explained if line.lstrip().startswith("nvidia")}
    assert verdicts == {
        "nvidia3": "allow",
        "nvidia3/gi7": "allow",
        "nvidia-cap471": "allow",
        "nvidia-cap472": "allow",
        "nvidia3/gi8": "deny",
        "nvidia-cap480": "deny",
        "nvidia-cap481": "deny",
    }
    assert "access     explicit: it may open 1 of 2 GPUs and MIG instances" in explained
    assert "uses       nvidia3/gi7: 1 process of it, memory 2048 MiB, busy -" in explained


def _verdict(words: Sequence[str]) -> str:
    return next(word for word in words if word in ("allow", "deny", "unknown"))
