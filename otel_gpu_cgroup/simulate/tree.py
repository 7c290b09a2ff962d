# SPDX-License-Identifier: Apache-2.0
"""Writes the simulated host's files under a folder; the real code then reads them through HostPaths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.simulate.machine import CONTAINERS, GPUS, MODEL, SimulatedGpu

if TYPE_CHECKING:
    from pathlib import Path

DEVICES: Final = "sys/fs/cgroup/devices"
_MOUNTINFO: Final = """\
22 1 0:21 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
23 1 0:22 / /sys rw,nosuid,nodev,noexec,relatime - sysfs sysfs rw
31 23 0:27 / /sys/fs/cgroup ro,nosuid,nodev,noexec - tmpfs tmpfs ro,mode=755
33 31 0:29 / /sys/fs/cgroup/devices rw,nosuid,nodev,noexec,relatime - cgroup cgroup rw,devices
"""
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


def write_tree(root: Path) -> None:
    """Write mounts, cgroups, the driver's files and the PCI bus of the simulated host below a folder."""
    _write(root / "proc/1/mountinfo", _MOUNTINFO)
    _write(root / "etc/hostname", "simulated-host\n")
    _write(root / DEVICES / "devices.list", "a *:* rwm\n")
    for container in CONTAINERS:
        _write(devices_list(root, container.cgroup), container.devices_list())
    for gpu in GPUS:
        _write_gpu(root, gpu)


def devices_list(root: Path, cgroup: str) -> Path:
    """The file with the device rules of a simulated cgroup."""
    return root / DEVICES / cgroup.lstrip("/") / "devices.list"


def _write_gpu(root: Path, gpu: SimulatedGpu) -> None:
    text = _INFORMATION.format(model=MODEL, irq=64 + gpu.index, uuid=gpu.uuid, address=gpu.address, minor=gpu.minor)
    _write(root / "proc/driver/nvidia/gpus" / gpu.address / "information", text)
    _write(root / "sys/bus/pci/devices" / gpu.address / "vendor", "0x10de\n")
    _write(root / "sys/bus/pci/devices" / gpu.address / "class", "0x030200\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
