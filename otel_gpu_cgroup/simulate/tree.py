# SPDX-License-Identifier: Apache-2.0
"""Writes the simulated host's files under a folder; the real code then reads them through HostPaths."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.simulate.containers import CONTAINERS, SimulatedContainer
from otel_gpu_cgroup.simulate.machine import CAPS_MAJOR, GPUS, MODEL, SimulatedGpu
from otel_gpu_cgroup.simulate.names import write_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.settings import SimulatedVersion

DEVICES: Final = "sys/fs/cgroup/devices"
"""The v1 hierarchy."""
UNIFIED: Final = "sys/fs/cgroup"
"""The cgroup2 hierarchy."""
PROGRAMS: Final = "device-programs"
"""No folder of a real host: what bpf(2) would tell of the cgroup with the same path."""
_RECORDED: Final = Path(__file__).parent / "programs"
_MOUNTS: Final = """\
22 1 0:21 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
23 1 0:22 / /sys rw,nosuid,nodev,noexec,relatime - sysfs sysfs rw
"""
_CGROUP_MOUNTS: Final = {
    "v1": """\
31 23 0:27 / /sys/fs/cgroup ro,nosuid,nodev,noexec - tmpfs tmpfs ro,mode=755
33 31 0:29 / /sys/fs/cgroup/devices rw,nosuid,nodev,noexec,relatime - cgroup cgroup rw,devices
""",
    "v2": """\
31 23 0:27 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - cgroup2 cgroup2 rw,nsdelegate
""",
}
_INFORMATION: Final = """\
Model: \t\t {model}
IRQ:   \t\t {irq}
GPU UUID: \t {uuid}
Video BIOS: \t 96.00.89.00.01
Bus Type: \t PCIe
DMA Size: \t 52 bits
DMA Mask: \t 0xfffffffffffff
Bus Location: \t {address}
Device Minor: \t {minor}
GPU Excluded:\t No
"""


_DRIVERS: Final = """\
Character devices:
  1 mem
  5 /dev/tty
136 pts
195 nvidia
195 nvidiactl
507 nvidia-uvm
{caps} nvidia-caps

Block devices:
259 blkext
"""
_STAT: Final = "{pid} (python3) S 1 {pid} {pid} 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0\n"
"""Of proc_pid_stat(5), as far as the time at which it began: a second after the machine."""


def write_tree(root: Path, version: SimulatedVersion) -> None:
    """Write mounts, cgroups, the driver's files and the PCI bus of the simulated host below a folder."""
    _write(root / "proc/1/mountinfo", _MOUNTS + _CGROUP_MOUNTS[version])
    _write(root / "etc/hostname", "simulated-host\n")
    _write(root / "proc/devices", _DRIVERS.format(caps=CAPS_MAJOR))
    for container in CONTAINERS:
        if version == "v1":
            _write_rules(root, container)
        else:
            _write_programs(root, container)
        _write_processes(root, container, version)
    write_names(root, CONTAINERS)
    for gpu in GPUS:
        _write_gpu(root, gpu)
    _write(root / "proc/driver/nvidia-caps/mig-minors", "".join(_capability_lines()))


def devices_list(root: Path, cgroup: str) -> Path:
    """The file with the v1 device rules of a simulated cgroup."""
    return root / DEVICES / cgroup.lstrip("/") / "devices.list"


def programs_folder(root: Path, cgroup: str) -> Path:
    """The folder with the device programs of a simulated cgroup."""
    return root / PROGRAMS / cgroup.lstrip("/")


def _write_rules(root: Path, container: SimulatedContainer) -> None:
    """The cgroups below a container's have its rules."""
    for below in {"", container.below}:
        _write(devices_list(root, container.path("v1") + below), container.devices_list())


def _write_processes(root: Path, container: SimulatedContainer, version: SimulatedVersion) -> None:
    """The container's processes, in its cgroup and in /proc."""
    path = container.path(version)
    hierarchy, line = (DEVICES, "7:devices") if version == "v1" else (UNIFIED, "0:")
    pids = "".join(f"{process.pid}\n" for process in container.processes)
    for below in {"", container.below}:
        _write(
            root / hierarchy / f"{path}{below}".lstrip("/") / "cgroup.procs", pids if below == container.below else ""
        )
    for process in container.processes:
        folder = root / "proc" / str(process.pid)
        _write(folder / "cgroup", f"{line}:{path}{container.below}\n")
        _write(folder / "stat", _STAT.format(pid=process.pid))


def _capability_lines() -> Iterator[str]:
    yield "config 1\nmonitor 2\n"
    for gpu in GPUS:
        for instance in gpu.instances:
            name, (first, second) = f"gpu{gpu.minor}/gi{instance.gpu_instance}", instance.capabilities(gpu.minor)
            yield f"{name}/access {first}\n{name}/ci0/access {second}\n"


def _write_programs(root: Path, container: SimulatedContainer) -> None:
    folder = programs_folder(root, container.cgroup)
    folder.mkdir(parents=True)
    for name in container.programs:
        shutil.copy(_RECORDED / f"{name}.bin", folder)


def _write_gpu(root: Path, gpu: SimulatedGpu) -> None:
    text = _INFORMATION.format(model=MODEL, irq=64 + gpu.index, uuid=gpu.uuid, address=gpu.address, minor=gpu.minor)
    _write(root / "proc/driver/nvidia/gpus" / gpu.address / "information", text)
    _write(root / "sys/bus/pci/devices" / gpu.address / "vendor", "0x10de\n")
    _write(root / "sys/bus/pci/devices" / gpu.address / "class", "0x030200\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
