# SPDX-License-Identifier: Apache-2.0
"""Reads which NVIDIA GPUs the kernel and the driver's own files name, without NVML."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.errors import Gone, HostUnreadable, ParseError
from otel_gpu_cgroup.host import HostPaths, read_names, read_text
from otel_gpu_cgroup.model import Gpu, PciAddress, Problem, Stage
from otel_gpu_cgroup.nvidia.devices.nodes import parse_gpu_information

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_log: Final = logging.getLogger(__name__)
_NVIDIA_VENDOR: Final = "0x10de"
_DISPLAY_CLASS: Final = "0x03"
"""PCI base class of display controllers, 3D controllers among them; audio functions and NVSwitches have others."""


class PciBus:
    """The PCI bus as sysfs shows it; what a device is gets read once, for as long as it is there."""

    def __init__(self, host: HostPaths) -> None:
        self._devices = host.sys / "bus/pci/devices"
        self._is_gpu: dict[str, bool] = {}

    def read(self) -> tuple[PciAddress, ...]:
        """The NVIDIA GPUs that the nvidia driver has, or no driver (not those given to a guest by vfio)."""
        try:
            names = read_names(self._devices)
        except HostUnreadable:
            names = []
        known = self._is_gpu
        self._is_gpu = {name: known[name] if name in known else self._read_kind(name) for name in names}
        return tuple(PciAddress(name) for name, gpu in self._is_gpu.items() if gpu and self._is_ours(name))

    def _read_kind(self, name: str) -> bool:
        try:
            vendor, kind = (read_text(self._devices / name / file).strip().lower() for file in ("vendor", "class"))
        except HostUnreadable as error:
            _log.debug("PCI device left out device=%s error=%s", name, error)
            return False
        return vendor == _NVIDIA_VENDOR and kind.startswith(_DISPLAY_CLASS)

    def _is_ours(self, name: str) -> bool:
        try:
            return os.path.basename(os.readlink(self._devices / name / "driver")) == "nvidia"
        except OSError:
            return True


class GpuFiles:
    """The driver's information files, each read once: reading takes the driver's locks, and can hang with it."""

    def __init__(self, host: HostPaths) -> None:
        self._folder = host.proc / "driver/nvidia/gpus"
        self._known: dict[tuple[str, int], Gpu] = {}

    def read(self) -> tuple[tuple[Gpu, ...], tuple[Problem, ...]]:
        """Every GPU that the driver has, none where its files are not visible, and what is wrong with files.

        A file is read again while it does not tell the UUID, and when the driver has made it anew (another inode).
        """
        problems: list[Problem] = []
        try:
            names = read_names(self._folder)
        except Gone:
            names = []
        except HostUnreadable as error:
            return (), (_problem(self._folder, error),)
        self._known = {key: gpu for name in names for key, gpu in self._read_gpu(name, problems)}
        return tuple(self._known.values()), tuple(problems)

    def _read_gpu(self, name: str, problems: list[Problem]) -> Iterator[tuple[tuple[str, int], Gpu]]:
        path = self._folder / name / "information"
        try:
            key = (name, os.stat(path).st_ino)
            known = self._known.get(key)
            yield key, known if known is not None and known.uuid is not None else _read_information(path)
        except (OSError, Gone) as error:
            _log.debug("GPU file left out file=%s error=%s", path, error)
        except (HostUnreadable, ParseError) as error:
            problems.append(_problem(path, error))


def _read_information(path: Path) -> Gpu:
    return parse_gpu_information(read_text(path))


def _problem(path: Path, error: Exception) -> Problem:
    return Problem(Stage.DISCOVERY, os.fspath(path), str(error))
