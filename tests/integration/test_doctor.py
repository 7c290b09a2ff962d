# SPDX-License-Identifier: Apache-2.0
"""`doctor` on this machine, with and without its privileges, and above the fake driver."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_gpu_cgroup.containers.discovery.mounts import devices_mount, parse_cgroup_mounts
from tests.fakes.fake_nvml import FakeError, FakeGpu, World
from tests.integration.host_tree import write, write_host
from tests.support.agent import run_command
from tests.support.bpf import need_bpf, unified_hierarchy
from tests.support.privileges import run_without

if TYPE_CHECKING:
    from tests.support.agent import Driver

ADDRESSES = ("0000:3b:00.0", "0000:5e:00.0")


def checks(stdout: str) -> dict[str, dict[str, Any]]:
    """The document's checks by name."""
    return {check["check"]: check for check in json.loads(stdout)}


def results(stdout: str) -> dict[str, str]:
    return {name: check["result"] for name, check in checks(stdout).items()}


def host_with_gpus(root: Path) -> str:
    """Two NVIDIA GPUs on the PCI bus, their driver's files and one device node."""
    write_host(root, {f"/docker/{'ab' * 32}": "c 195:0 rw\n"})
    for minor, address in enumerate(ADDRESSES):
        device = root / "sys/bus/pci/devices" / address
        write(device / "vendor", "0x10de\n")
        write(device / "class", "0x030200\n")
        text = f"GPU UUID: \t GPU-{minor}\nBus Location: \t {address}\nDevice Minor: \t {minor}\n"
        write(root / "proc/driver/nvidia/gpus" / address / "information", text)
    for name in ("nvidiactl", "nvidia0"):
        write(root / "dev" / name, "")
    return os.fspath(root)


def gpus() -> tuple[FakeGpu, ...]:
    return tuple(
        FakeGpu(uuid=f"GPU-{minor}", minor=minor, bus=f"0000{address}") for minor, address in enumerate(ADDRESSES)
    )


def test_this_machine(tmp_path: Path) -> None:
    need_bpf()
    devices = devices_mount(parse_cgroup_mounts(Path("/proc/self/mountinfo").read_text()))
    done = run_command(tmp_path, "doctor", "--format", "json")
    found = checks(done.stdout)
    assert done.stderr == ""
    for place in (devices and devices.point, unified_hierarchy()):
        assert place is None or str(place) in found["cgroups"]["message"]
    for name in ("cgroups", "CAP_SYS_ADMIN", "device programs", "packages"):
        assert found[name]["result"] == "ok", found[name]
    assert found["cgroups"]["cure"] is None
    assert done.returncode == (1 if "fail" in results(done.stdout).values() else 0)


def test_without_privileges_each_that_is_missing_is_named() -> None:
    need_bpf()
    done = run_without(("sys_admin", "net_admin", "sys_ptrace"), "doctor", "--format", "json")
    found = checks(done.stdout)
    assert done.returncode == 1, done.stderr
    assert [found[name]["result"] for name in ("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_SYS_PTRACE")] == [
        "fail",
        "warn",
        "warn",
    ]
    assert "--cap-add SYS_ADMIN" in found["CAP_SYS_ADMIN"]["cure"]
    assert found["device programs"]["result"] == "fail"
    assert "refused" in found["device programs"]["message"]


def test_a_host_with_gpus(driver: Driver, tmp_path: Path) -> None:
    driver.set(World(gpus=gpus(), driver_version="595.45.04"))
    host = host_with_gpus(tmp_path / "host")
    done = run_command(tmp_path, "doctor", "--host-root", host, "--format", "json", **driver.variables())
    found = checks(done.stdout)
    assert done.returncode == 0, done.stdout
    assert found["cgroups"]["message"] == f"v1: v1 devices at {host}/sys/fs/cgroup/devices"
    assert found["CAP_SYS_ADMIN"]["result"] == "does not apply"
    assert found["containers"]["message"] == "1 container found, and what each may open"
    assert found["NVML"]["message"] == "driver 595.45.04 lists 2 GPUs"
    assert found["PCI bus"]["message"] == "2 NVIDIA GPUs on the PCI bus, 2 in NVML"
    assert found["driver's files"]["result"] == "ok"
    assert found["device nodes"]["result"] == "warn"
    assert "/dev: nvidia1;" in found["device nodes"]["message"]


def test_a_gpu_that_nvml_does_not_list_is_a_failure(driver: Driver, tmp_path: Path) -> None:
    driver.set(World(gpus=gpus()[:1]))
    host = host_with_gpus(tmp_path / "host")
    done = run_command(tmp_path, "doctor", "--host-root", host, "--format", "json", **driver.variables())
    assert done.returncode == 1
    assert [name for name, result in results(done.stdout).items() if result == "fail"] == ["PCI bus"]


def test_a_gpu_that_is_lost_is_a_warning(driver: Driver, tmp_path: Path) -> None:
    lost = FakeGpu(uuid="GPU-1", minor=1, bus=f"0000{ADDRESSES[1]}", errors={"nvmlDeviceGetMemoryInfo*": FakeError(15)})
    driver.set(World(gpus=(gpus()[0], lost)))
    host = host_with_gpus(tmp_path / "host")
    done = run_command(tmp_path, "doctor", "--host-root", host, "--format", "json", **driver.variables())
    nvml = checks(done.stdout)["NVML"]
    assert (done.returncode, nvml["result"]) == (0, "warn")
    assert "GPU-1" in nvml["message"]


def test_gpus_without_a_driver_are_a_failure(driver: Driver, tmp_path: Path) -> None:
    host = host_with_gpus(tmp_path / "host")
    done = run_command(tmp_path, "doctor", "--host-root", host, "--format", "json", **driver.variables())
    nvml = checks(done.stdout)["NVML"]
    assert (done.returncode, nvml["result"]) == (1, "fail")
    assert "--nvml-library" in nvml["cure"]


def test_a_host_without_a_gpu_or_driver_is_healthy(tmp_path: Path, bare_host: str) -> None:
    done = run_command(tmp_path, "doctor", "--host-root", bare_host)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert lines[0].split() == ["RESULT", "CHECK", "MEANING"]
    nvml = next(line for line in lines if " NVML " in line)
    assert nvml.startswith("does not apply")


def test_a_host_without_cgroups_is_told_what_to_do(tmp_path: Path) -> None:
    write(tmp_path / "proc/1/mountinfo", "22 1 0:21 / /proc rw - proc proc rw\n")
    done = run_command(tmp_path, "doctor", "--host-root", os.fspath(tmp_path), "--format", "json")
    found = checks(done.stdout)
    assert done.returncode == 1
    assert (found["cgroups"]["result"], found["containers"]["result"]) == ("fail", "fail")
    assert "--host-root" in found["cgroups"]["cure"]


def test_the_simulated_host_is_healthy(tmp_path: Path) -> None:
    done = run_command(tmp_path, "doctor", "--simulate", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert set(results(done.stdout).values()) == {"ok", "does not apply"}
    assert checks(done.stdout)["NVML"]["message"] == "driver 595.45.04 lists 8 GPUs"
