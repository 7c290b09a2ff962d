# SPDX-License-Identifier: Apache-2.0
"""Reads which device nodes open a MIG instance, beside its GPU's.

Reading the driver's own files may wait for the driver: this belongs on a thread that nobody has to wait for.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.drivers import parse_drivers
from otel_gpu_cgroup.errors import HostUnreadable, ParseError
from otel_gpu_cgroup.host import HostPaths, read_text
from otel_gpu_cgroup.model import DeviceNode, DeviceType, Gpu, Problem, Stage
from otel_gpu_cgroup.nvidia.devices.capability_texts import (
    capability_names,
    capability_path,
    parse_capability,
    parse_mig_minors,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_log: Final = logging.getLogger(__name__)
_DRIVER: Final = "nvidia-caps"
_TABLE_BYTES: Final = 1 << 20
"""The table of 32 GPUs has about 100 KiB."""
_FILE_BYTES: Final = 4096
_NOBODY: Final = "nobody can say which containers may open it"


class CapabilityFiles:
    """The driver's lists of capabilities; read again when the instances change, or the driver made them anew."""

    def __init__(self, host: HostPaths) -> None:
        self._drivers = host.proc / "devices"
        self._table = host.proc / "driver/nvidia-caps/mig-minors"
        self._tree = host.proc / "driver/nvidia/capabilities"
        self._read_for: tuple[frozenset[str], int, int | None] | None = None
        self._minors: Mapping[str, int] = {}

    def read(self, gpus: tuple[Gpu, ...]) -> tuple[tuple[Gpu, ...], tuple[Problem, ...]]:
        """The same GPUs, every instance with its nodes, and a Problem where they are not told."""
        names = {gpu: capability_names(gpu.minor, gpu.instance) for gpu in gpus if gpu.instance is not None}
        if not names:
            return gpus, ()
        try:
            major = self._read_major()
        except (HostUnreadable, ParseError) as error:
            return gpus, (Problem(Stage.POLICY, "MIG instances", f"{error}; {_NOBODY}"),)
        minors = self._find_minors(frozenset(name for pair in names.values() for name in pair), major)
        known = {gpu: pair for gpu, pair in names.items() if all(name in minors for name in pair)}
        told = {gpu: tuple(DeviceNode(DeviceType.CHAR, major, minors[name]) for name in known[gpu]) for gpu in known}
        problems = tuple(self._problem(gpu) for gpu in names if gpu not in told)
        return tuple(_with_nodes(gpu, told.get(gpu)) for gpu in gpus), problems

    def _read_major(self) -> int:
        """Dynamic: another one when the driver's module is loaded again."""
        for driver in parse_drivers(read_text(self._drivers)):
            if (driver.type, driver.name) == (DeviceType.CHAR, _DRIVER):
                return driver.major
        raise HostUnreadable(f"'{self._drivers}' names no driver {_DRIVER}")

    def _find_minors(self, names: frozenset[str], major: int) -> Mapping[str, int]:
        key = (names, major, _inode(self._table))
        if key != self._read_for or not names <= self._minors.keys():
            self._read_for, self._minors = key, self._read_minors(names)
        return self._minors

    def _read_minors(self, names: frozenset[str]) -> dict[str, int]:
        """From the table; what it lacks, from the capability's own file."""
        try:
            minors = parse_mig_minors(read_text(self._table, _TABLE_BYTES), names)
        except HostUnreadable as error:
            _log.debug("table of capabilities left out error=%s", error)
            minors = {}
        for name in names - minors.keys():
            path = self._tree / capability_path(name)
            try:
                minors[name] = parse_capability(read_text(path, _FILE_BYTES))
            except (HostUnreadable, ParseError) as error:
                _log.debug("capability left out file=%s error=%s", path, error)
        return minors

    def _problem(self, gpu: Gpu) -> Problem:
        message = f"neither '{self._table}' nor '{self._tree}' tells its capability nodes; {_NOBODY}"
        return Problem(Stage.POLICY, gpu.uuid or "MIG instance", message)


def _with_nodes(gpu: Gpu, nodes: tuple[DeviceNode, ...] | None) -> Gpu:
    if gpu.instance is None or gpu.instance.nodes == nodes:
        return gpu
    return replace(gpu, instance=replace(gpu.instance, nodes=nodes))


def _inode(path: Path) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None
