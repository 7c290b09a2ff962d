# SPDX-License-Identifier: Apache-2.0
"""Pure: the device settings of a systemd unit, as systemd.resource-control(5) means them.

Runtimes that leave cgroups to systemd hand it the rules of a container as DevicePolicy= and DeviceAllow=, which it
writes into the transient unit's file or, for settings that came later, into drop-ins `50-DeviceAllow.conf` and
`50-DevicePolicy.conf`. What else changes the rules (libnvidia-container's hook) does not appear there.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.devices_list import DeviceRule, parse_devices_list, parse_permissions
from otel_gpu_cgroup.cgroup.fallback.stated import EVERY_PERMISSION, StatedPolicy, Statement, everything
from otel_gpu_cgroup.errors import ParseError
from otel_gpu_cgroup.model import DeviceType, PolicySource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from otel_gpu_cgroup.cgroup.drivers import Driver
    from otel_gpu_cgroup.model import DeviceNode, Permission

_CLASSES: Final = {"char": DeviceType.CHAR, "block": DeviceType.BLOCK}
_NUMBERED: Final = re.compile(r"/dev/(char|block)/([0-9]{1,10}):([0-9]{1,10})")
_GROUP: Final = re.compile(r"(char|block)-(.+)")
_STANDARD: Final = parse_devices_list(
    "c 1:3 rwm\nc 1:5 rwm\nc 1:7 rwm\nc 1:8 rwm\nc 1:9 rwm\nc 5:0 rwm\nc 5:2 rwm\nc 136:* rw\n"
).rules
"""What every unit may open whose policy is not `strict`: null, zero, full, random, urandom, tty, ptmx, pts."""
_POLICIES: Final = ("auto", "closed", "strict")


@dataclass(frozen=True, slots=True)
class UnitDevices:
    """What a unit's files say of devices."""

    policy: str
    allow: tuple[tuple[str, Permission], ...] = ()
    """Devices as systemd spells them: a node's path, or `char-` or `block-` and a driver's name or number."""


def parse_unit(text: str) -> UnitDevices | None:
    """The device settings in the text of a unit's files, one after the other; None where there are none.

    Raises ParseError for a setting that systemd would not have written.
    """
    policy: str | None = None
    allow: list[tuple[str, Permission]] | None = None
    for line in text.splitlines():
        key, _, value = (part.strip() for part in line.partition("="))
        if key == "DevicePolicy":
            policy = _parse_policy(value, line)
        elif key == "DeviceAllow":
            allow = [*(allow or []), _parse_allow(value, line)] if value else []
    if policy is None and allow is None:
        return None
    return UnitDevices(policy or "auto", tuple(allow or ()))


def unit_policy(
    unit: UnitDevices, drivers: tuple[Driver, ...], node_at: Callable[[str], DeviceNode | None]
) -> StatedPolicy:
    """What a unit's processes may open; `node_at` tells the device node at a path, None where there is none."""
    if unit.policy == "auto" and not unit.allow:
        return everything(PolicySource.SYSTEMD)
    standard = () if unit.policy == "strict" else _STANDARD
    listed = (rule for device, permissions in unit.allow for rule in _rules(device, permissions, drivers, node_at))
    rules = (*standard, *listed)
    return StatedPolicy(PolicySource.SYSTEMD, tuple(Statement(allow=True, rule=rule) for rule in rules))


def _parse_policy(value: str, line: str) -> str:
    if value and value not in _POLICIES:
        raise ParseError(line, "a device policy of systemd: " + ", ".join(_POLICIES))
    return value or "auto"


def _parse_allow(value: str, line: str) -> tuple[str, Permission]:
    match value.split():
        case [device]:
            return device, EVERY_PERMISSION
        case [device, letters]:
            return device, parse_permissions(letters, line)
    raise ParseError(line, "a setting of the form 'DeviceAllow=DEVICE rwm'")


def _rules(
    device: str,
    permissions: Permission,
    drivers: tuple[Driver, ...],
    node_at: Callable[[str], DeviceNode | None],
) -> Iterator[DeviceRule]:
    """The rules of one device; none for one that is not there, which systemd leaves out as well."""
    if (numbered := _NUMBERED.fullmatch(device)) is not None:
        kind, major, minor = numbered.groups()
        yield DeviceRule(_CLASSES[kind], int(major), int(minor), permissions)
    elif (group := _GROUP.fullmatch(device)) is not None:
        kind, name = group.groups()
        for major_or_any in _majors(_CLASSES[kind], name, drivers):
            yield DeviceRule(_CLASSES[kind], major_or_any, None, permissions)
    elif (node := node_at(device)) is not None:
        yield DeviceRule(node.type, node.major, node.minor, permissions)


def _majors(kind: DeviceType, name: str, drivers: tuple[Driver, ...]) -> Sequence[int | None]:
    """The major numbers that a driver's name, pattern or number stands for; None is any."""
    if name == "*":
        return [None]
    if name.isascii() and name.isdigit():
        return [int(name)]
    return sorted({it.major for it in drivers if it.type is kind and fnmatch.fnmatchcase(it.name, name)})
