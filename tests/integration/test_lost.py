# SPDX-License-Identifier: Apache-2.0
"""The whole agent over real containers whose rules are taken away while they run."""

from __future__ import annotations

import json
import re
import secrets
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.fakes.fake_nvml import FakeGpu, World
from tests.integration.gpu_nodes import nodes
from tests.integration.test_cgroup2 import GPUS, once
from tests.kernel.bpf.runtimes import CASES, created, need_runtime
from tests.support import bpf_programs
from tests.support.agent import run_command
from tests.support.bpf import attached
from tests.support.bpf_programs import parse_rule
from tests.support.devices_cgroup import DevicesCgroup
from tests.support.eventually import eventually
from tests.support.losses import as_systemd_rewrites, reload
from tests.support.runc import DENY_ALL, RuncSpec, docker_cgroup, need_runc, runc_container

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import PushingAgent, StartAgent
    from tests.support.agent import Driver

MINORS: Final = (0, 1, 2, 3)
WORLD: Final = World(gpus=tuple(FakeGpu(uuid=f"GPU-{minor}", minor=minor) for minor in MINORS))
RULES: Final = (DENY_ALL, *(f"allow c 195:{minor} rw" for minor in (0, 1)), "allow c 195:255 rw")
ACCESS: Final = "container.gpu.access"
LOST: Final = "warning container has lost its GPU"
OVER: Final = "info GPU is not lost any more"
OWN_DEV: Final = "it could open it before; its own /dev has the node"
MKNOD: Final = (
    "it could open it before; its devices.list has mknod alone for 195:*, as systemd leaves it at daemon-reload"
)
AGAIN: Final = "it may open it again"
ENDED: Final = "the container has ended"


def _access(agent: PushingAgent, container: str) -> dict[str, int | float]:
    """By GPU, in the last export."""
    exports = agent.exports()
    points = exports[-1].of(ACCESS, {"container.id": container}) if exports else []
    return {point.attributes["hw.id"]: point.value for point in points}


def _until(agent: PushingAgent, container: str, expected: dict[str, int]) -> None:
    def said() -> str:
        return f"{_access(agent, container)} instead of {expected}: {agent.log()}"

    eventually(lambda: _access(agent, container) == expected, said)


def test_a_loss_is_told_in_metrics_and_log_and_so_is_its_end(
    driver: Driver, start_agent: StartAgent, tmp_path: Path
) -> None:
    need_runc()
    driver.set(WORLD)
    agent = start_agent("--log-level", "info", **driver.variables())
    spec, other = (RuncSpec(docker_cgroup(), RULES, binds=nodes(tmp_path, [0, 1])) for _ in range(2))
    with runc_container(tmp_path, spec) as real, runc_container(tmp_path, other) as untouched:
        ids = [it.cgroup.removeprefix("/docker/") for it in (real, untouched)]
        for identity in ids:
            _until(agent, identity, {"GPU-0": 1, "GPU-1": 1})
        cgroup = DevicesCgroup(real.devices_cgroup)
        before = cgroup.devices_list()
        agent.wait_for(2)  # so that two cycles running have seen it
        assert cgroup.deny("c 195:1 rw")
        _until(agent, ids[0], {"GPU-0": 1, "GPU-1": 0})
        reload(cgroup.path, as_systemd_rewrites(before))
        _until(agent, ids[0], {"GPU-0": 0, "GPU-1": 0})
        assert agent.exports()[-1].value("gpu_cgroup.device.container.count", {"hw.id": "GPU-0"}) == 1  # the other's
        reload(cgroup.path, before.splitlines())
        _until(agent, ids[0], {"GPU-0": 1, "GPU-1": 1})
        reload(cgroup.path, as_systemd_rewrites(before, expanded=True))
        _until(agent, ids[0], {"GPU-0": 0, "GPU-1": 0})
        assert _access(agent, ids[1]) == {"GPU-0": 1, "GPU-1": 1}
    _until(agent, ids[0], {})
    eventually(lambda: len(agent.lines(OVER, ids[0])) == 4, agent.log)
    told = [_told(line) for line in agent.lines(LOST, ids[0])]
    assert told == [("GPU-1", OWN_DEV), ("GPU-0", MKNOD), ("GPU-0", OWN_DEV), ("GPU-1", OWN_DEV)]
    ends = [_told(line) for line in agent.lines(OVER, ids[0])]
    assert sorted(ends) == sorted((gpu, end) for gpu in ("GPU-0", "GPU-1") for end in (AGAIN, ENDED))
    assert agent.lines(LOST, ids[1]) == []


def _told(line: str) -> tuple[str, str]:
    """The GPU and the reason of a line of the log."""
    found = re.search(r"gpu='?(GPU-\d)'? reason=[\"'](.*)[\"']$", line)
    assert found is not None, line
    return found[1], found[2]


def test_a_command_that_begins_after_the_loss_finds_it(driver: Driver, tmp_path: Path) -> None:
    need_runc()
    driver.set(WORLD)
    with runc_container(tmp_path, RuncSpec(docker_cgroup(), RULES, binds=nodes(tmp_path, [0, 1]))) as real:
        reload(real.devices_cgroup, as_systemd_rewrites(DevicesCgroup(real.devices_cgroup).devices_list()))
        identity = real.cgroup.removeprefix("/docker/")
        done = run_command(tmp_path, "once", "--format", "json", **driver.variables())
        explained = run_command(tmp_path, "explain", identity, **driver.variables())
    assert done.returncode == 0, done.stderr
    assert _rows(json.loads(done.stdout), identity) == {"GPU-0": True, "GPU-1": True}
    assert explained.returncode == 0, explained.stderr
    assert "mknod alone for 195:*" in explained.stdout


def _rows(document: dict[str, Any], identity: str) -> dict[str, bool]:
    """Whether each GPU of the container is lost; one that is has no values."""
    [container] = [it for it in document["containers"] if it["id"] == identity]
    rows = container["accelerators"]
    assert all(row["memory_used"] is None and row["memory_total"] is None for row in rows if row["lost"])
    return {row["id"]: row["lost"] for row in rows}


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_on_cgroup2_systemds_program_beside_the_runtimes_is_a_loss(
    driver: Driver, tmp_path: Path, runtime: str
) -> None:
    need_runtime(runtime)
    driver.set(World(gpus=GPUS))
    reloaded = bpf_programs.systemd([parse_rule("allow c 1:3 rwm"), parse_rule("allow c *:* m")])
    name = secrets.token_hex(32)
    with created(runtime, tmp_path, CASES["one-gpu"].rules, name=name) as cgroup:
        assert _rows(once(driver, tmp_path), name) == {"GPU-0": False}
        with attached(cgroup, reloaded):
            assert _rows(once(driver, tmp_path), name) == {"GPU-0": True}
        assert _rows(once(driver, tmp_path), name) == {"GPU-0": False}
