# SPDX-License-Identifier: Apache-2.0
"""Processes that are looked at from other namespaces, through a /proc that hides them, and by pids of others before."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from otel_gpu_cgroup.containers.processes.table import MOST_CYCLES, ProcessTable
from otel_gpu_cgroup.host import HostPaths
from tests.support.attribution import REPOSITORY, Look, Seen, container, end, inventory, keys, look_from, sleeper
from tests.support.bpf import unified_cgroup, unified_hierarchy
from tests.support.devices_cgroup import DevicesCgroup, devices_cgroup, need_devices_cgroup
from tests.support.need import need

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INNER_PID: Final = ("--pid", "--fork", "--mount-proc", "--kill-child")
NOBODY: Final = 65534


class Tree:
    """`own`, `sibling` and `inner` (inside `own`), in one hierarchy; what looks is in `own`."""

    def __init__(self, top: Path, above: Path, own: Path, sibling: Path, inner: Path, *, is_v1: bool) -> None:
        self.folders = {"own": str(own), "sibling": str(sibling), "inner": str(inner), "above": str(above)}
        self.paths = {name: folder.removeprefix(str(top)) for name, folder in self.folders.items()}
        self.is_v1 = is_v1

    def look(self, *containers: str, own_only: bool = False, driver: str | None = None) -> Look:
        return Look(
            containers={name: self.paths[name] for name in containers},
            sleepers={name: [folder] for name, folder in self.folders.items()},
            is_v1=self.is_v1,
            own_only=own_only,
            driver_version=driver,
        )

    def see(self, look: Look, *namespaces: str) -> Seen:
        return look_from(look, *namespaces, within=[self.folders["own"]])


@pytest.fixture(params=["v1", "v2"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tree]:
    with ExitStack() as stack:
        yield _tree(stack, request.param, tmp_path)


@pytest.fixture
def v1(tmp_path: Path) -> Iterator[Tree]:
    with ExitStack() as stack:
        yield _tree(stack, "v1", tmp_path)


def _tree(stack: ExitStack, kind: str, tmp_path: Path) -> Tree:
    need(os.geteuid() == 0 and shutil.which("unshare") is not None, "namespaces need root and util-linux")
    if kind == "v1":
        need_devices_cgroup(tmp_path)
    top = unified_hierarchy()
    need(kind == "v1" or (top is not None and os.access(top, os.W_OK)), "cgroup2 cannot be written here")

    def made(above: Path | None = None) -> Path:
        if kind == "v2":
            return stack.enter_context(unified_cgroup(above))
        return stack.enter_context(devices_cgroup(None if above is None else DevicesCgroup(above))).path

    above = made()
    own, sibling = made(above), made(above)
    return Tree(above.parent, above, own, sibling, made(own), is_v1=kind == "v1")


def test_from_the_hosts_namespaces(tree: Tree) -> None:
    seen = tree.see(tree.look("own", "sibling", "inner"), "--uts")
    assert seen == Seen(
        is_told=True,
        are_samples_told=True,
        messages=[],
        owners={"own": "own", "sibling": "sibling", "inner": "inner", "above": None},
    )


def test_from_a_cgroup_namespace_with_the_hosts_tree(tree: Tree) -> None:
    """The root of the namespace is `own`, which shows as /; nothing says what it is called."""
    seen = tree.see(tree.look("own", "sibling", "inner"), "--cgroup", "--mount")
    assert seen.is_told
    assert seen.owners["sibling"] == "sibling"
    assert seen.owners["inner"] == "inner"
    assert seen.owners["above"] is None


@pytest.mark.parametrize("driver", ["470.82.01", "580.65.06"])
def test_from_a_pid_namespace_nothing_is_told_of_the_host(v1: Tree, driver: str) -> None:
    seen = v1.see(v1.look("own", "sibling", driver=driver), *INNER_PID)
    assert (seen.is_told, seen.are_samples_told, seen.owners) == (False, False, {})
    assert [message.partition(":")[0] for message in seen.messages] == ["needs the host PID namespace"]


@pytest.mark.parametrize(
    ("driver", "is_told", "are_samples_told"),
    [(None, False, False), ("535.104.05", False, False), ("550.54.14", True, False), ("580.65.06", True, True)],
)
def test_a_container_knows_its_own_processes(
    tree: Tree, driver: str | None, *, is_told: bool, are_samples_told: bool
) -> None:
    """Also where the pod's containers share a PID namespace: the sibling is in /proc, in another cgroup."""
    seen = tree.see(tree.look(own_only=True, driver=driver), "--cgroup", *INNER_PID)
    assert (seen.is_told, seen.are_samples_told) == (is_told, are_samples_told)
    assert len(seen.messages) == (not are_samples_told)
    if tree.is_v1 and is_told:
        owners = {name: owner is not None for name, owner in seen.owners.items()}
        assert owners == {"own": True, "inner": True, "sibling": False, "above": False}


def test_processes_that_are_not_in_the_own_proc_are_nobodys(v1: Tree) -> None:
    look = v1.look(own_only=True, driver="580.65.06")
    look.pids = [os.getpid(), 1 << 21]
    seen = v1.see(look, "--cgroup", *INNER_PID)
    assert sorted(seen.owners) == ["above", "inner", "own", "sibling"]
    assert seen.messages == []


def test_in_the_hosts_pid_namespace_any_driver_will_do(v1: Tree) -> None:
    seen = v1.see(v1.look(own_only=True, driver="470.82.01"), "--cgroup")
    assert (seen.is_told, seen.are_samples_told, seen.messages) == (True, True, [])
    assert {name for name, owner in seen.owners.items() if owner is not None} == {"own", "inner"}


@pytest.mark.parametrize("option", ["noaccess", "invisible"])
def test_a_proc_that_hides_processes_tells_nothing(v1: Tree, option: str) -> None:
    """Not that there are none: their pids exist, as the kernel says."""
    pids = [sleeper(v1.folders["own"]), sleeper(v1.folders["sibling"])]
    look = [container(name, path) for name, path in v1.paths.items()]
    try:
        with _proc(option) as root:
            table = ProcessTable(HostPaths(root))
            for_root = keys(table.attribute(inventory(pids), look))
            told = _as_nobody(lambda: asdict(table.attribute(inventory(pids), look)))
            gone = _as_nobody(lambda: asdict(table.attribute(inventory([1 << 21]), look)))
    finally:
        for pid in pids:
            end(pid)
    assert for_root == {pids[0]: "own", pids[1]: "sibling"}
    assert (told["is_told"], told["owners"]) == (False, {})
    assert "hidepid" in told["problems"][0]["message"]
    assert (gone["is_told"], gone["owners"], gone["problems"]) == (True, {}, [])


@contextmanager
def _proc(option: str) -> Iterator[Path]:
    """A root with such a /proc, into which everybody may look."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        place = Path(folder, "proc")
        place.mkdir()
        command = ["mount", "-t", "proc", "-o", f"hidepid={option}", "proc", str(place)]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        need(mounted.returncode == 0, f"no /proc with hidepid can be mounted here: {mounted.stderr}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", place], check=True)


def _as_nobody(call: Callable[[], object]) -> dict[str, Any]:
    """What a process without any privilege finds, by JSON."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writer, json.dumps(call()).encode())
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    told: dict[str, Any] = json.loads(text)
    return told


def test_no_process_is_taken_for_one_that_had_its_pid_before(v1: Tree) -> None:
    """Forty processes with one pid, in one container and the other in turn."""
    lives, places = 40, {"a": (v1.folders["own"], v1.paths["own"]), "b": (v1.folders["sibling"], v1.paths["sibling"])}
    need(os.access("/proc/sys/kernel/ns_last_pid", os.W_OK), "the kernel takes no wish for a pid")
    program = ["-m", "tests.kernel.pid_reuse", str(lives), json.dumps(places)]
    done = subprocess.run(
        ["unshare", *INNER_PID, sys.executable, *program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=REPOSITORY,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert len({tuple(identity) for identity in seen["identities"]}) == lives + 1
    assert len({inode for inode, _ in seen["identities"]}) == lives + 1
    assert seen["changes"] == 0
    assert seen["owners"] == ["ab"[life % 2] for life in range(lives) for _ in range(MOST_CYCLES)]
    assert seen["stale"] == [{}] * lives
