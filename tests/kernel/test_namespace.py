# SPDX-License-Identifier: Apache-2.0
"""A reader in a real cgroup namespace, to whom the host's hierarchies are mounted as a whole."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from otel_gpu_cgroup.containers.discovery.containers import read_cgroup_layout
from otel_gpu_cgroup.host import HostPaths
from tests.support.need import need

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.model import CgroupLayout

REPOSITORY: Final = Path(__file__).parents[2]
READER: Final = """
import json, sys
from otel_gpu_cgroup.containers.discovery.containers import ContainerDiscovery
from otel_gpu_cgroup.containers.own.discovery import read_own_cgroups
from otel_gpu_cgroup.host import HostPaths
found = [it for it in ContainerDiscovery(HostPaths()).discover() if it.id in sys.argv[1:]]
rows = {it.id: [it.devices, it.unified, it.is_hidden] for it in found}
mounts, own = open("/proc/self/mountinfo").read(), open("/proc/self/cgroup").read()
print(json.dumps({"rows": rows, "own": sorted(read_own_cgroups()), "mountinfo": mounts, "cgroup": own}))
"""


@pytest.fixture
def layout() -> CgroupLayout:
    """A hybrid host's."""
    need(os.geteuid() == 0 and shutil.which("unshare") is not None, "a cgroup namespace needs root and util-linux")
    found = read_cgroup_layout(HostPaths())
    need(found.devices is not None and found.unified is not None, "cgroup v1 and v2 are not both mounted here")
    need(found.unified is not None and os.access(found.unified, os.W_OK), "cgroup2 cannot be written here")
    return found


@contextmanager
def cgroup(hierarchy: Path | None, path: str) -> Iterator[Path]:
    """A cgroup and all above it that were not there, removed in the end."""
    assert hierarchy is not None
    made = []
    for names in range(1, path.count("/") + 1):
        folder = hierarchy / "/".join(path.split("/")[1 : names + 1])
        if not folder.exists():
            folder.mkdir()
            made.append(folder)
    try:
        yield hierarchy / path.lstrip("/")
    finally:
        for folder in reversed(made):
            folder.rmdir()


@contextmanager
def process_in(*folders: Path) -> Iterator[int]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            for folder in folders:
                (folder / "cgroup.procs").write_text(str(process.pid))
            yield process.pid
        finally:
            process.kill()


def read_in_namespace(folders: list[Path], inside: str, *identities: str) -> dict[str, Any]:
    """What a process of a new namespace reads, whose root is the cgroup of these folders, from below that root."""
    move = "for folder in $1; do echo $$ > $folder$0/cgroup.procs || exit; done; shift; "
    places = " ".join(map(str, folders))
    read = ["sh", "-c", move + 'exec "$@"', inside, places, sys.executable, "-c", READER, *identities]
    command = ["sh", "-c", move + 'exec unshare --cgroup -- "$@"', "", places, *read]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("inside", ["", "/main"])
def test_containers_beside_above_and_below_the_reader_are_placed(layout: CgroupLayout, inside: str) -> None:
    top = f"/gpu-cgroup-test-{secrets.token_hex(6)}"
    beside, away, below = (secrets.token_hex(32) for _ in range(3))
    places = {beside: "/pods/one/other", away: "/services/web", below: "/pods/one/agent/inner"}
    with ExitStack() as stack:
        own = [
            stack.enter_context(cgroup(layout.devices, f"{top}/agent")),
            stack.enter_context(cgroup(layout.unified, f"{top}/pods/one/agent")),
        ]
        expected = {}
        for identity, place in places.items():
            devices = stack.enter_context(cgroup(layout.devices, f"{top}/docker/{identity}"))
            unified = stack.enter_context(cgroup(layout.unified, f"{top}{place}"))
            stack.enter_context(process_in(devices, unified))
            expected[identity] = [os.fspath(devices), os.fspath(unified), False]
        if inside:
            for folder in own:
                stack.enter_context(cgroup(folder, inside))
        answer = read_in_namespace(own, inside, *places)
    assert f"0::{inside or '/'}\n" in answer["cgroup"]
    assert " /../../../.. " in answer["mountinfo"]  # the namespace hides the path indeed
    assert answer["rows"] == expected
    assert answer["own"] == sorted({top, f"{top}/agent", f"{top}/agent{inside}"})


def test_without_a_namespace_the_same_is_read(layout: CgroupLayout) -> None:
    top = f"/gpu-cgroup-test-{secrets.token_hex(6)}"
    identity = secrets.token_hex(32)
    with (
        cgroup(layout.devices, f"{top}/docker/{identity}") as devices,
        cgroup(layout.unified, f"{top}/services/web") as unified,
        process_in(devices, unified),
    ):
        done = subprocess.run(
            [sys.executable, "-c", READER, identity], cwd=REPOSITORY, capture_output=True, text=True, check=True
        )
        assert json.loads(done.stdout)["rows"] == {identity: [os.fspath(devices), os.fspath(unified), False]}
