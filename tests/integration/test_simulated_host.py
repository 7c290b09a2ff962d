# SPDX-License-Identifier: Apache-2.0
"""What a newcomer sees: every case of the simulated host, in the document, the table and the log."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.agent import run_command
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import StartAgent

VERSIONS: Final = ("v1", "v2")
EXPLICIT: Final = ("trainer", "slurm-4211.0", "server", "embedder", "lab", "jupyter")
HELD: Final = {
    "trainer": {"nvidia0", "nvidia1"},
    "slurm-4211.0": {"nvidia2", "nvidia3"},
    "server": {"nvidia4"},
    "embedder": {"nvidia4"},
    "lab": {"3g.40gb"},
    "jupyter": {"2g.20gb"},
    "transcoder": {"nvidia6"},
    "node-exporter": set(),
    "web": set(),
}
"""The transcoder has lost it."""
PROCESSES: Final = {
    "trainer": 2,
    "slurm-4211.0": 2,
    "server": 1,
    "embedder": 2,
    "lab": 1,
    "jupyter": 1,
    "transcoder": 1,
}
WIDTH: Final = 124
"""Columns that both tables fit into."""


def once(tmp_path: Path, version: str, *options: str) -> str:
    done = run_command(tmp_path, "once", f"--simulate={version}", *options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(params=VERSIONS)
def document(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(once(tmp_path, request.param, "--format", "json"))
    return found


def test_every_container_has_the_devices_that_it_was_given(document: dict[str, Any]) -> None:
    devices = {gpu["id"]: gpu["mig_profile"] or f"nvidia{gpu['minor']}" for gpu in document["gpus"]}
    containers = {it["name"]: it for it in document["containers"]}
    held = {name: {devices[row["id"]] for row in it["accelerators"]} for name, it in containers.items()}
    assert held == HELD
    access = {name: it["access"] for name, it in containers.items()}
    none = dict.fromkeys(("transcoder", "web"), "none")
    assert access == {**dict.fromkeys(EXPLICIT, "explicit"), **none, "node-exporter": "unrestricted"}
    assert containers["server"]["pod"] == {
        "uid": "5e4e0000-0000-4000-8000-000000000002",
        "name": "chat-7d9f8",
        "namespace": "inference",
        "container": "server",
    }
    assert (containers["slurm-4211.0"]["slurm"]["job"], containers["slurm-4211.0"]["slurm"]["step"]) == ("4211", "0")
    assert document["problems"] == []


def test_one_has_lost_its_gpu_and_goes_on(document: dict[str, Any]) -> None:
    lost = {it["name"]: row for it in document["containers"] for row in it["accelerators"] if row["lost"]}
    [(name, row)] = lost.items()
    assert name == "transcoder"
    assert {row["memory_total"], row["memory_used"], row["duty_cycle"]} == {None}
    assert row["reason"]
    assert row["own"]["processes"] == 1
    assert row["own"]["memory"] > 0


def test_own_shares_and_what_is_nobodys_are_what_is_in_use(document: dict[str, Any]) -> None:
    own: defaultdict[str, list[int]] = defaultdict(list)
    processes: defaultdict[str, int] = defaultdict(int)
    for container in document["containers"]:
        for row in container["accelerators"]:
            own[row["id"]].append(row["own"]["memory"])
            processes[container["name"]] += row["own"]["processes"]
    assert processes == PROCESSES
    devices = {gpu["id"]: gpu for gpu in document["gpus"]}
    for uuid, gpu in devices.items():
        if gpu["kind"] != "partitioned":
            assert sum(own[uuid]) + gpu["memory_unattributed"] == gpu["memory_used"], uuid
    parts = [gpu for gpu in devices.values() if gpu["kind"] == "mig"]
    [parent] = {part["parent"] for part in parts}
    nobodys = sum(part["memory_unattributed"] for part in parts)
    assert devices[parent]["kind"] == "partitioned"
    assert sum(map(sum, (own[part["id"]] for part in parts))) + nobodys == sum(part["memory_used"] for part in parts)


def test_how_busy_is_told_where_a_driver_can(document: dict[str, Any]) -> None:
    """After the second look: of processes on whole GPUs, and of each instance; not of processes on instances."""
    kinds = {gpu["id"]: gpu["kind"] for gpu in document["gpus"]}
    rows = [row for it in document["containers"] for row in it["accelerators"]]
    assert all(0 <= row["own"]["utilization"] <= 1 for row in rows if kinds[row["id"]] == "gpu")
    assert {row["own"]["utilization"] for row in rows if kinds[row["id"]] == "mig"} == {None}
    assert {gpu["id"] for gpu in document["gpus"] if gpu["duty_cycle"] is None} == {
        uuid for uuid, kind in kinds.items() if kind == "partitioned"
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tables_fit_and_show_it_all(tmp_path: Path, version: str) -> None:
    devices, containers, losses = once(tmp_path, version).split("\n\n")
    assert max(map(len, (devices + containers).splitlines())) <= WIDTH
    uses = {line.split()[0]: line for line in devices.splitlines()[1:] if not line.startswith(" ")}
    words = {
        name: next(word for word in ("held", "shared", "free", "lost", "MIG") if word in uses[name]) for name in uses
    }
    assert words == {
        **dict.fromkeys(("nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidia5/gi2", "nvidia5/gi3"), "held"),
        "nvidia4": "shared",
        "nvidia5": "MIG",
        "nvidia6": "lost",
        **dict.fromkeys(("nvidia5/gi9", "nvidia7"), "free"),
    }
    for name in ("training/llama-sft-0/trainer", "inference/chat-7d9f8/server", "slurm-4211.0", "embedder", "lab"):
        assert f"  {name}\n" in devices
    assert devices.count("transcoder (lost)") == 1
    assert losses.startswith("lost: transcoder should be able to open nvidia6: ")
    assert len(containers.splitlines()) == 1 + len(HELD)


def test_the_agent_logs_the_loss_that_commands_print(start_agent: StartAgent) -> None:
    agent = start_agent("--simulate")
    [line] = eventually(lambda: agent.lines("warning container has lost its GPU"), agent.log)
    assert "transcoder" in line
