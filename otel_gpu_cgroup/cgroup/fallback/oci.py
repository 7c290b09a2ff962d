# SPDX-License-Identifier: Apache-2.0
"""Pure: the device rules in an OCI bundle's config.json (runtime-spec, `linux.resources.devices`).

They are what the engine asked the runtime for, CDI's devices among them. What a hook changes later
(libnvidia-container's) does not appear there.
"""

from __future__ import annotations

import json
from typing import Any, Final

from otel_gpu_cgroup.cgroup.devices_list import DeviceRule, parse_permissions
from otel_gpu_cgroup.cgroup.fallback.stated import EVERY_PERMISSION, StatedPolicy, Statement
from otel_gpu_cgroup.errors import ParseError
from otel_gpu_cgroup.model import DeviceType, PolicySource

_TYPES: Final = {"a": None, "b": DeviceType.BLOCK, "c": DeviceType.CHAR, "u": DeviceType.CHAR}
_FORM: Final = "an OCI bundle's configuration"


def parse_bundle(text: str) -> StatedPolicy | None:
    """The device policy that a config.json asks for.

    None where it lists no rules, which runtimes take differently: runc denies, crun allows. Raises ParseError.
    """
    try:
        resources = (json.loads(text).get("linux") or {}).get("resources") or {}
        statements = tuple(_statement(entry) for entry in resources.get("devices") or ())
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ParseError(text, _FORM) from error
    return StatedPolicy(PolicySource.OCI, statements) if statements else None


def _statement(entry: dict[str, Any]) -> Statement:
    """One entry; an absent type, number or access is any."""
    letters = entry.get("access")
    permissions = parse_permissions(letters, str(entry)) if letters else EVERY_PERMISSION
    kind = _TYPES[entry.get("type") or "a"]
    rule = DeviceRule(kind, _number(entry.get("major")), _number(entry.get("minor")), permissions)
    return Statement(allow=bool(entry["allow"]), rule=rule)


def _number(value: object) -> int | None:
    """Engines write a wildcard as no number or as -1."""
    if value is None or value == -1:
        return None
    if not isinstance(value, int):
        raise TypeError(value)
    return value
