# SPDX-License-Identifier: Apache-2.0
"""What a cgroup's path tells: paths as runtimes make them (tests/data/identity), and such as only look alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from otel_gpu_cgroup.containers.identity import parse_container
from otel_gpu_cgroup.model import CgroupPath, Container, Pod, Runtime, SlurmStep

ID: Final = "4f1d9c0a7be25d83" * 4
OTHER: Final = "0a1b2c3d4e5f6789" * 4
UID: Final = "7f0dd8f9-4b9c-4d5e-a5b3-9a1c1f0d1b2e"
HASH: Final = "5a1e6c4f0d3b2a9887766554433221ff"
RECORDED: Final = Path(__file__).parents[2] / "data/identity"
ROWS: Final = [
    pytest.param(row["path"], row["container"], id=f"{file.stem}:{row['path'][-60:]}")
    for file in sorted(RECORDED.glob("*.json"))
    for row in json.loads(file.read_text())
]


def container(path: str, told: dict[str, Any]) -> Container:
    """As a file of the data tells it."""
    return Container(
        CgroupPath(path),
        Runtime(told["runtime"]),
        told.get("id"),
        told.get("name"),
        None if "pod" not in told else Pod(told["pod"]),
        None if "slurm" not in told else SlurmStep(**told["slurm"]),
    )


@pytest.mark.parametrize(("path", "told"), ROWS)
def test_paths_of_runtimes(path: str, told: dict[str, Any] | None) -> None:
    assert parse_container(CgroupPath(path)) == (None if told is None else container(path, told))


def test_every_runtime_has_paths_and_every_file_its_source() -> None:
    runtimes = {row.values[1]["runtime"] for row in ROWS if isinstance(row.values[1], dict)}
    assert runtimes == {runtime.value for runtime in Runtime} - {"unknown"}
    source = (RECORDED / "SOURCE.md").read_text()
    assert [file.name for file in RECORDED.glob("*.json") if f"`{file.name}`" not in source] == []


@pytest.mark.parametrize(
    "name",
    [
        f"pod{UID[:-1]}",
        f"pod{UID}0",
        f"xpod{UID}",
        f"pod{UID.upper()}",
        f"pod{HASH[:-1]}",
        f"pod{HASH}0",
        f"pod_{HASH}",
        "podinfo",
        f"kubepods-pod{UID.replace('-', '_')}.slice.d",
        f"libpod-{HASH}",
    ],
)
def test_names_that_are_no_pod(name: str) -> None:
    found = parse_container(CgroupPath(f"/kubepods/{name}/{ID}"))
    assert found is not None
    assert found.pod is None


def test_the_innermost_pod_is_the_containers() -> None:
    found = parse_container(CgroupPath(f"/kubepods/pod{HASH}/{OTHER}/kubelet/kubepods/pod{UID}/{ID}"))
    assert found is not None
    assert found.pod == Pod(UID)


def test_the_key_is_the_id_or_the_path() -> None:
    assert Container(CgroupPath("/docker/x"), Runtime.DOCKER, ID).key == ID
    unit = parse_container(CgroupPath("/system.slice/trainer.service"))
    assert unit is not None
    assert unit.key == "/system.slice/trainer.service"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "x",
        "/",
        "//",
        f"/{ID}/",
        "/step_0",
        "job_1/step_0",
        f"/uid_{'9' * 5000}/job_1/step_0",
        f"/slurm/uid_1/job_1/step_{'9' * 5000}x",
        "/" + "a/" * 3000,
        "/lxc/",
        "/lxc.payload.",
        "/default/",
        "default/train",
        "system.slice/trainer.service",
    ],
)
def test_what_is_no_path_of_a_container(path: str) -> None:
    assert parse_container(CgroupPath(path)) is None


@pytest.mark.parametrize("name", ["\x1b[31mred", "caf\udce9 \udcff", "x" * 4096, "\u202etxt", "a\nb", "a\x00b"])
def test_hostile_names_are_kept_as_they_are(name: str) -> None:
    for path, runtime in (
        (f"/lxc.payload.{name}", Runtime.LXC),
        (f"/lxc/{name}", Runtime.LXC),
        (f"/machine.slice/systemd-nspawn@{name}.service", Runtime.NSPAWN),
        (f"/nomad.slice/{UID}.{name}.scope", Runtime.NOMAD),
    ):
        assert parse_container(CgroupPath(path)) == Container(CgroupPath(path), runtime, name=name)
    unit = CgroupPath(f"/system.slice/{name}.service")
    assert parse_container(unit) == Container(unit, Runtime.SYSTEMD, name=f"{name}.service")
    inside = CgroupPath(f"/{name}/{ID}")
    assert parse_container(inside) == Container(inside, Runtime.CONTAINERD, ID)
    assert parse_container(CgroupPath(f"/default/{name}")) == (
        None if name != "x" * 76 else Container(CgroupPath(f"/default/{name}"), Runtime.CONTAINERD, name)
    )
