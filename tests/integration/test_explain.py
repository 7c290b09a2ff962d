# SPDX-License-Identifier: Apache-2.0
"""`explain` of real containers, of a host made of files, and of the simulated one."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Final

import pytest

from tests.fakes.fake_nvml import GIB, FakeGpu, FakeMemory, Steady, World
from tests.integration.host_tree import write_host
from tests.support.agent import run_command
from tests.support.bpf import attached, need_bpf, unified_cgroup, unified_hierarchy
from tests.support.privileges import run_without
from tests.support.runc import DENY_ALL, RuncSpec, docker_cgroup, need_runc, runc_container

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.agent import Driver
    from tests.support.runc import RuncContainer

ONE: Final = "abcd1" + "0" * 59
OTHER: Final = "abcd2" + "0" * 59
RULES: Final = (DENY_ALL, "allow c 195:0 rw", "allow c 195:255 rw")
FIRST: Final = FakeGpu(
    uuid="GPU-first", minor=1, memory=FakeMemory(total=40 * GIB, used=7 * GIB), samples=Steady((75,))
)
SECOND: Final = FakeGpu(uuid="GPU-second", minor=0, memory=FakeMemory(total=40 * GIB, used=0), samples=Steady((0,)))
ONLY_MINOR_0: Final = b"".join(
    struct.pack("<BBhi", *fields)
    for fields in (
        (0xB7, 0, 0, 0),  # r0 = 0
        (0x61, 0x11, 8, 0),  # r1 = minor
        (0x55, 1, 1, 0),  # if r1 != 0 goto exit
        (0xB7, 0, 0, 1),  # r0 = 1
        (0x95, 0, 0, 0),  # exit
    )
)


@pytest.fixture
def container(tmp_path: Path) -> Iterator[RuncContainer]:
    need_runc()
    with runc_container(tmp_path, RuncSpec(docker_cgroup(), rules=RULES)) as container:
        yield container


@pytest.fixture
def host(driver: Driver, tmp_path: Path) -> str:
    """Two GPUs, whose indices and minor numbers differ, and three containers."""
    driver.set(World(gpus=(FIRST, SECOND)))
    containers = {
        f"/docker/{ONE}": "c 1:3 rwm\nc 195:1 rw\n",
        f"/docker/{OTHER}": "a *:* rwm\n",
        "/docker/" + "ef" * 32: "nonsense\n",
    }
    return os.fspath(write_host(tmp_path / "host", containers))


def rows(text: str) -> dict[str, list[str]]:
    """The table's rows by their first word."""
    table = text.split("\n\n")[1].splitlines()
    return {line.split()[0]: line.split() for line in table}


def test_a_container_of_a_host_with_gpus(driver: Driver, tmp_path: Path, host: str) -> None:
    done = run_command(tmp_path, "explain", "abcd1", "--host-root", host, **driver.variables())
    assert (done.returncode, done.stderr) == (0, "")
    folder = f"{host}/sys/fs/cgroup/devices/docker/{ONE}"
    head = done.stdout.split("\n\n")[0].splitlines()
    assert f"container  {ONE}" in head
    assert f"cgroup v1  {folder} (its own cgroup; no process of it is seen)" in head
    table = rows(done.stdout)
    assert table["nvidia1"][1:] == [
        "0",
        "GPU-first",
        "allow",
        "c",
        "195:1",
        "rw",
        "7168",
        "/",
        "40960",
        "MiB",
        "75",
        "%",
    ]
    assert table["nvidia0"][1:6] == ["1", "GPU-second", "deny", "no", "rule"]
    assert done.stdout.splitlines()[-4:] == [
        "devices.list: 2 rules; the first that covers read and write decides",
        "  c 1:3 rwm",
        "  c 195:1 rw          <- nvidia1",
        "  no rule: denied     <- nvidia0, 195:253, 1:1",
    ]


def test_a_container_whose_rules_cannot_be_read(driver: Driver, tmp_path: Path, host: str) -> None:
    done = run_command(tmp_path, "explain", "efef", "--host-root", host, **driver.variables())
    assert done.returncode == 0
    assert {row[3] for name, row in rows(done.stdout).items() if name.startswith("nvidia")} == {"unknown"}
    assert done.stdout.splitlines()[-1].startswith("not told: ")
    assert "'nonsense'" in done.stdout


def test_a_container_that_is_left_out_of_metrics_is_explained_all_the_same(
    driver: Driver, tmp_path: Path, host: str
) -> None:
    options = ("--host-root", host, "--exclude-containers", "abcd1*")
    done = run_command(tmp_path, "explain", ONE, *options, **driver.variables())
    assert rows(done.stdout)["nvidia1"][3] == "allow"
    assert "access     excluded: left out of all metrics by --exclude-containers 'abcd1*'" in done.stdout.splitlines()


def test_a_word_that_may_be_several_gets_a_list(driver: Driver, tmp_path: Path, host: str) -> None:
    done = run_command(tmp_path, "explain", "abcd", "--host-root", host, **driver.variables())
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"docker  {identifier[:12]}  /docker/{identifier}" for identifier in (ONE, OTHER)
    ]
    assert done.stderr == "otel-gpu-cgroup: 'abcd' may be each of these 2; say more of its id, or its cgroup\n"


@pytest.mark.parametrize("wanted", ["abc", "nothing\x1b[2J"])
def test_a_word_that_is_none_gets_one_line(driver: Driver, tmp_path: Path, host: str, wanted: str) -> None:
    done = run_command(tmp_path, "explain", wanted, "--host-root", host, **driver.variables())
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("otel-gpu-cgroup: none of the 3 containers here is ")
    assert line.isprintable()


def test_without_cgroups_the_reason_is_told(tmp_path: Path) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text("22 1 0:21 / /proc rw - proc proc rw\n")
    done = run_command(tmp_path, "explain", "abcd", "--host-root", os.fspath(tmp_path))
    assert done.returncode == 1
    assert "names no cgroup hierarchy" in done.stderr


def test_without_a_word_it_is_wrong_usage(tmp_path: Path) -> None:
    done = run_command(tmp_path, "explain", "--simulate")
    assert done.returncode == 2
    assert "CONTAINER" in done.stderr


def test_a_container_of_the_simulated_host(tmp_path: Path) -> None:
    done = run_command(tmp_path, "explain", "7a1de4", "--simulate=v1")
    assert (done.returncode, done.stderr) == (0, "")
    verdicts = {name: row[3] for name, row in rows(done.stdout).items() if name.startswith("nvidia")}
    assert [verdicts[f"nvidia{minor}"] for minor in range(8)] == ["allow"] * 2 + ["deny"] * 6


@pytest.mark.parametrize(
    ("wanted", "begin"),
    [
        ("training/llama-sft-0/trainer", "7a1de4"),
        ("inference/chat-7d9f8", "5e4e1"),
        ("embedder", "5e4e2"),
        ("lab", "0b00c"),
        ("jupyter", "1d1e"),
    ],
)
def test_a_container_is_found_by_what_people_call_it(tmp_path: Path, wanted: str, begin: str) -> None:
    done = run_command(tmp_path, "explain", wanted, "--simulate")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == f"container  {begin.ljust(64, '0')}"


def test_a_step_of_slurm_is_found_by_its_name(tmp_path: Path) -> None:
    done = run_command(tmp_path, "explain", "slurm-4211.0", "--simulate=v1")
    head = done.stdout.split("\n\n")[0].splitlines()
    assert "cgroup     /slurm/uid_1000/job_4211/step_0" in head
    assert "slurm      job 4211 of user 1000, step 0" in head
    assert "access     explicit: it may open 2 of 10 GPUs and MIG instances" in head


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("v1", "its devices.list has mknod alone for 195:6, as systemd leaves it at daemon-reload"),
        ("v2", "of the 2 programs on its cgroup systemd's denies it"),
    ],
)
def test_a_loss_is_explained_and_that_its_process_goes_on(tmp_path: Path, version: str, reason: str) -> None:
    done = run_command(tmp_path, "explain", "transcoder", f"--simulate={version}")
    assert (done.returncode, done.stderr) == (0, "")
    head = done.stdout.split("\n\n")[0].splitlines()
    assert "access     none: it may open no GPU" in head
    assert f"lost       nvidia6: it should be able to open it: {reason}" in head
    [uses] = [line for line in head if line.startswith("uses ")]
    assert uses.startswith("uses       nvidia6: 1 process of it, memory ")
    assert uses.endswith(" %; denied and using: it goes on with what was opened before")


def test_an_instance_is_explained_node_by_node(tmp_path: Path) -> None:
    done = run_command(tmp_path, "explain", "research/notebook-ada", "--simulate")
    table = rows(done.stdout)
    assert [table[name][3] for name in ("nvidia5", "nvidia5/gi3", "nvidia5/gi2")] == ["allow", "allow", "deny"]
    assert table["nvidia-cap705"][1:5] == ["(GPU", "instance", "2g.20gb)", "allow"]
    assert table["nvidia-cap696"][1:5] == ["(GPU", "instance", "3g.40gb)", "deny"]


def test_a_unit_that_has_no_row_is_explained_all_the_same(driver: Driver, tmp_path: Path) -> None:
    driver.set(World(gpus=(FIRST, SECOND)))
    root = write_host(tmp_path / "host", {"/system.slice/ollama.service": "a *:* rwm\n"})
    options = ("--host-root", os.fspath(root))
    done = run_command(tmp_path, "explain", "ollama.service", *options, **driver.variables())
    assert (done.returncode, done.stderr) == (0, "")
    head = done.stdout.split("\n\n")[0].splitlines()
    assert "unit       ollama.service" in head
    assert any(line.startswith("rows       none: a unit is reported where ") for line in head)
    document = json.loads(run_command(tmp_path, "once", *options, "--format", "json", **driver.variables()).stdout)
    assert document["containers"] == []


def test_the_rules_of_a_real_container(tmp_path: Path, container: RuncContainer) -> None:
    done = run_command(tmp_path, "explain", container.cgroup.rpartition("/")[2][:12])
    assert (done.returncode, done.stderr) == (0, "")
    sections = done.stdout.split("\n\n")
    own = f"(its own cgroup, where its first process, {container.pid}, is)"
    assert f"cgroup v1  {container.devices_cgroup} {own}" in sections[0].splitlines()
    rules = (container.devices_cgroup / "devices.list").read_text().splitlines()
    heading, *shown, denied = sections[2].splitlines()
    assert heading.startswith(f"devices.list: {len(rules)} rules")
    assert [line.partition("<-")[0].strip() for line in shown] == rules
    assert [line for line in shown if "<-" in line] == ["  c 195:0 rw          <- nvidia0"]
    assert denied == "  no rule: denied     <- 195:253, 1:1"
    if unified_hierarchy() is not None:
        assert sections[3] == "no program: nothing is restricted\n"


def test_the_program_of_a_real_container(tmp_path: Path, container: RuncContainer) -> None:
    need_bpf()
    top = unified_hierarchy()
    assert top is not None
    with unified_cgroup() as cgroup:
        (cgroup / "cgroup.procs").write_text(str(container.pid))
        try:
            with attached(cgroup, ONLY_MINOR_0, name="sd_devices"):
                done = run_command(tmp_path, "explain", container.cgroup)
        finally:
            (top / "cgroup.procs").write_text(str(container.pid))
    assert (done.returncode, done.stderr) == (0, "")
    sections = done.stdout.split("\n\n")
    assert f"cgroup v2  {cgroup} (where its first process, {container.pid}, is)" in sections[0].splitlines()
    assert "source     devices.list+bpf" in sections[0].splitlines()
    table = rows(done.stdout)
    assert table["nvidia0"][3:10] == ["allow", "c", "195:0", "rw", "allow", "at", "2"]
    heading, _, _, *listing = sections[3].splitlines()
    assert heading.startswith("program ")
    assert heading.endswith(", name sd_devices, 5 instructions")
    assert listing == [
        "   >    0  r0 = 0",
        "   >    1  r1 = *(u32 *)(r1 +8)        ; minor",
        "  =>    2  if r1 != 0 goto 4           ; minor",
        "   >    3  r0 = 1",
        "   >    4  exit",
        "  its answer for nvidia0 (c 195:0): allow",
    ]


def test_without_privileges_what_others_know_of_a_real_container_is_shown(container: RuncContainer) -> None:
    need_bpf()
    done = run_without(("sys_admin", "net_admin"), "explain", container.cgroup)
    assert done.returncode == 0, done.stderr
    sections = done.stdout.split("\n\n")
    assert "source     nodes" in sections[0].splitlines()
    assert any(line.startswith("trouble    refused: ") for line in sections[0].splitlines())
    heading, *rules = sections[4].splitlines()
    assert heading.startswith("nodes, in place of the kernel: ")
    assert rules[-1] == "  no rule: denied     <- nvidia0, 195:253, 1:1"
    assert rows(done.stdout)["nvidia0"][3:10] == ["deny", "c", "195:0", "rw", "unknown", "no", "rule"]
