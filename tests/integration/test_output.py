# SPDX-License-Identifier: Apache-2.0
"""Commands whose output nobody takes, whose surroundings are odd, or who are interrupted: one line, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.model import PciAddress
from tests.fakes.fake_nvml import FakeGpu, World
from tests.integration.host_tree import write_host
from tests.support.agent import run_command
from tests.support.collector import free_port
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import StartAgent
    from tests.support.agent import Driver

COMMAND = (sys.executable, "-m", "otel_gpu_cgroup")


def shell(script: str, tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in which $0 is the program."""
    program = " ".join(COMMAND)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return subprocess.run(
        ["bash", "-c", script.replace("$0", program)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("options", ["once --simulate", "once --simulate --format json", "doctor --simulate"])
@pytest.mark.parametrize("buffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_full_disk_is_one_line(tmp_path: Path, options: str, buffered: str) -> None:
    done = shell(f"$0 {options} > /dev/full", tmp_path, PYTHONUNBUFFERED=buffered)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "No space left on device" in line


@pytest.mark.parametrize("options", ["once --simulate", "--help"])
def test_a_reader_that_goes_away_is_no_error_to_tell(tmp_path: Path, options: str) -> None:
    assert shell(f"$0 {options} | true", tmp_path).stderr == ""


def test_an_interrupt_is_one_line(driver: Driver, tmp_path: Path) -> None:
    driver.set(World(hangs=("nvmlInitWithFlags",)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **driver.variables()}
    command = [*COMMAND, "once"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        eventually(lambda: driver.counts().get("in_flight"), lambda: "")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors == "otel-gpu-cgroup: interrupted\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_names_that_the_terminal_cannot_show_are_escaped(tmp_path: Path, encoding: str) -> None:
    root = write_host(tmp_path / "host", {f"/中/docker-{'a1' * 32}.scope": "nonsense\n"})
    done = run_command(tmp_path, "once", "--host-root", os.fspath(root), PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    assert r"\u4e2d" in done.stdout


def test_a_model_cannot_move_the_cursor(driver: Driver, tmp_path: Path) -> None:
    driver.set(World(gpus=(FakeGpu(uuid="GPU-a", minor=0, name="\x1b[2Jboo\nhoo"),)))
    root = write_host(tmp_path / "host", {})
    done = run_command(tmp_path, "once", "--host-root", os.fspath(root), **driver.variables())
    assert r"\x1b[2Jboo\nhoo" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({"OTEL_METRICS_EXEMPLAR_FILTER": "bogus"}, "OTEL_"),
        ({"OTEL_PYTHON_GPU_CGROUP_INTERVAL": "1e10"}, "86400"),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "nan"}, "seconds above 0"),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "-1"}, "seconds above 0"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "foo"}, "a URL"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:99999999"}, "a URL"),
        ({"OTEL_PYTHON_GPU_CGROUP_HOST_ROOT": "/" + "x" * 5000}, "a folder"),
    ],
)
def test_odd_settings_end_in_one_line(tmp_path: Path, variables: dict[str, str], word: str) -> None:
    done = run_command(tmp_path, "run", **variables)
    assert done.returncode in (1, 2)
    [line] = done.stderr.splitlines()
    assert word in line


def test_a_dead_collector_starves_no_other_exporter(start_agent: StartAgent, driver: Driver) -> None:
    driver.set(World(gpus=(FakeGpu(uuid="GPU-a", minor=0),)))
    agent = start_agent(
        "--exporter",
        "otlp,console",
        "--interval",
        "3600",
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}",
        **driver.variables(),
    )
    eventually(lambda: agent.lines("gpu_cgroup.up"), agent.log)
    agent.end()
    assert len(agent.lines("gpu_cgroup.up")) == 2  # the push at the start, and the last one


def test_a_file_of_the_driver_that_hangs_keeps_nobody_waiting(tmp_path: Path) -> None:
    root = write_host(tmp_path / "host", {f"/docker/{'a1' * 32}": "c 195:0 rw\n"})
    folder = root / "proc/driver/nvidia/gpus" / PciAddress("0000:01:00.0")
    folder.mkdir(parents=True)
    os.mkfifo(folder / "information")
    done = run_command(tmp_path, "once", "--host-root", os.fspath(root))
    assert done.returncode == 0
    assert "a1a1a1a1a1a1  docker   explicit" in done.stdout
