# SPDX-License-Identifier: Apache-2.0
"""Pure: which driver has which major number, as /proc/devices lists them (fs/proc/devices.c)."""

from __future__ import annotations

from typing import NamedTuple

from otel_gpu_cgroup.model import DeviceType


class Driver(NamedTuple):
    """A line of /proc/devices; a driver may have several."""

    type: DeviceType
    name: str
    major: int


def parse_drivers(proc_devices: str) -> tuple[Driver, ...]:
    """The lines of /proc/devices, below their two headings."""
    kind, drivers = DeviceType.CHAR, []
    for line in proc_devices.splitlines():
        match line.split():
            case ["Block", "devices:"]:
                kind = DeviceType.BLOCK
            case [major, name] if major.isascii() and major.isdigit():
                drivers.append(Driver(kind, name, int(major)))
    return tuple(drivers)
