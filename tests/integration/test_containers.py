# SPDX-License-Identifier: Apache-2.0
"""Containers whose cgroup is broken, strange or gone: each costs itself alone."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.fakes.fake_nvml import FakeGpu, World
from tests.integration.host_tree import devices_list, write, write_host
from tests.support.agent import run_command
from tests.support.eventually import eventually
from tests.support.runc import DENY_ALL, PRIVILEGED, RuncSpec, docker_cgroup, need_runc, runc_container

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import PushingAgent, StartAgent
    from tests.support.agent import Driver

SOUND: Final = "c0" * 32
BROKEN: Final = "bad0" * 16
GPU: Final = FakeGpu(uuid="GPU-a", minor=3)
ROWS: Final = [GPU.uuid]


def _once(driver: Driver, root: Path) -> dict[str, Any]:
    driver.set(World(gpus=(GPU,)))
    variables = driver.variables()
    done = run_command(root, "once", "--format", "json", "--host-root", os.fspath(root), **variables)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _host(tmp_path: Path, broken: str) -> Path:
    return write_host(tmp_path / "host", {f"/docker/{SOUND}": "c 195:3 rw\n", f"/docker/{BROKEN}": broken})


def _rows(document: dict[str, Any]) -> dict[str, tuple[str, list[str]]]:
    """Access and GPUs by container."""
    return {
        container["id"]: (container["access"], [row["id"] for row in container["accelerators"]])
        for container in document["containers"]
    }


@pytest.mark.parametrize(
    "line", ["c 195:x rw", "c 195 rw", "c 195:0", "q 1:1 r", "c 195:0 rwx", "c 195:0 rw \x1b[2J", "c" * 5000, "\udcff"]
)
def test_a_malformed_rule_makes_its_container_unknown_and_is_shown(driver: Driver, tmp_path: Path, line: str) -> None:
    root = _host(tmp_path, "")
    devices_list(root, f"/docker/{BROKEN}").write_bytes(f"c 195:3 rw\n{line}\n".encode("utf-8", "surrogateescape"))
    document = _once(driver, root)
    assert _rows(document) == {SOUND: ("explicit", ROWS), BROKEN: ("unknown", [])}
    [problem] = document["problems"]
    assert (problem["stage"], problem["subject"]) == ("policy", f"/docker/{BROKEN}")
    assert ascii(line[:40])[1:-1] in problem["message"]
    assert problem["message"].isprintable()
    assert len(problem["message"]) < 1000


def test_rules_that_cannot_be_read_make_their_container_unknown(driver: Driver, tmp_path: Path) -> None:
    root = _host(tmp_path, "")
    path = devices_list(root, f"/docker/{BROKEN}")
    path.unlink()
    path.mkdir()
    document = _once(driver, root)
    assert _rows(document) == {SOUND: ("explicit", ROWS), BROKEN: ("unknown", [])}
    [problem] = document["problems"]
    assert os.fspath(path) in problem["message"]


def test_a_container_that_ends_between_two_looks_is_left_out_in_silence(driver: Driver, tmp_path: Path) -> None:
    root = _host(tmp_path, "")
    devices_list(root, f"/docker/{BROKEN}").unlink()
    document = _once(driver, root)
    assert _rows(document) == {SOUND: ("explicit", ROWS)}
    assert document["problems"] == []


def test_a_gpu_that_this_host_does_not_have_is_a_problem_and_the_others_are_reported(
    driver: Driver, tmp_path: Path
) -> None:
    document = _once(driver, _host(tmp_path, "c 195:3 rw\nc 195:7 rw\n"))
    assert _rows(document) == {SOUND: ("explicit", ROWS), BROKEN: ("explicit", ROWS)}
    [problem] = document["problems"]
    assert problem["subject"] == f"/docker/{BROKEN}"
    assert "195:7" in problem["message"]


def test_two_cgroups_of_one_id_are_one_container(driver: Driver, tmp_path: Path) -> None:
    root = _host(tmp_path, "")
    write(devices_list(root, f"/system.slice/docker-{SOUND}.scope"), "c 195:3 rw\n")
    document = _once(driver, root)
    assert _rows(document) == {SOUND: ("explicit", ROWS), BROKEN: ("none", [])}
    [problem] = document["problems"]
    assert problem["stage"] == "discovery"


def test_a_host_without_cgroups_has_no_containers_and_says_so(driver: Driver, tmp_path: Path) -> None:
    write(tmp_path / "host/proc/1/mountinfo", "22 1 0:21 / /proc rw - proc proc rw\n")
    document = _once(driver, tmp_path / "host")
    assert document["containers"] == []
    assert document["host"]["cgroup"] is None
    assert [gpu["id"] for gpu in document["gpus"]] == ROWS
    [problem] = document["problems"]
    assert problem["stage"] == "discovery"


def test_the_problem_of_one_container_reaches_the_log_once_and_the_metrics(
    driver: Driver, start_agent: StartAgent, tmp_path: Path
) -> None:
    driver.set(World(gpus=(GPU,)))
    root = _host(tmp_path, "nonsense\n")
    agent = start_agent("--host-root", os.fspath(root), **driver.variables())
    export = agent.wait_for(2)[-1]
    assert export.value("container.gpu.access", {"container.id": SOUND}) == 1
    assert export.of("container.gpu.access", {"container.id": BROKEN}) == []
    assert export.value("gpu_cgroup.container.count", {"gpu_cgroup.access": "unknown"}) == 1
    problems = export.value("gpu_cgroup.cycle.problems", {"gpu_cgroup.stage": "policy"})
    assert problems is not None
    assert problems >= 2
    [line] = agent.lines("warning")
    assert BROKEN in line
    devices_list(root, f"/docker/{BROKEN}").write_text("c 195:3 rw\n")
    eventually(lambda: agent.lines("info solved", BROKEN), agent.log)


def test_a_containers_series_begin_and_end_with_it(driver: Driver, start_agent: StartAgent, tmp_path: Path) -> None:
    need_runc()
    gpu = FakeGpu(uuid="GPU-a", minor=22)
    driver.set(World(gpus=(gpu,)))
    agent = start_agent(**driver.variables())
    rules = (DENY_ALL, f"allow c 195:{gpu.minor} rw")
    with runc_container(tmp_path, RuncSpec(cgroup=docker_cgroup(), rules=rules)) as container:
        wanted = {"container.id": container.cgroup.rpartition("/")[2]}
        eventually(lambda: _last(agent, wanted), agent.log)
    eventually(lambda: not _last(agent, wanted), agent.log)
    assert _last(agent, {"hw.id": gpu.uuid})  # the device goes on
    assert agent.lines("warning", wanted["container.id"]) == []


def test_a_privileged_container_gets_rows_only_on_demand(
    driver: Driver, start_agent: StartAgent, tmp_path: Path
) -> None:
    need_runc()
    driver.set(World(gpus=(FakeGpu(uuid="GPU-a", minor=22),)))
    with runc_container(tmp_path, RuncSpec(cgroup=docker_cgroup(), rules=PRIVILEGED)) as container:
        wanted = {"container.id": container.cgroup.rpartition("/")[2]}
        for choice, expected in (("using", None), ("none", None), ("all", 1)):
            export = start_agent("--unrestricted", choice, **driver.variables()).flushed()
            assert export.value("container.gpu.access", wanted) == expected
            assert export.of("gpu_cgroup.container.count", {"gpu_cgroup.access": "unrestricted"})[0].value >= 1


def _last(agent: PushingAgent, wanted: dict[str, str]) -> list[object]:
    exports = agent.exports()
    return [point for point in exports[-1].points if wanted.items() <= point.attributes.items()] if exports else []
