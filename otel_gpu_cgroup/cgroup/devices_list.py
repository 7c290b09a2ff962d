# SPDX-License-Identifier: Apache-2.0
"""Pure: the text of a cgroup v1 `devices.list`, and the verdicts that the kernel reaches by it.

The kernel (security/device_cgroup.c, 6.18) prints either the one line `a *:* rwm`, for a list that allows by
default and whose exceptions it keeps to itself, or one line for each rule of a list that denies by default.
An empty file therefore denies everything, and one rule must cover all that a request asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from otel_gpu_cgroup.errors import ParseError
from otel_gpu_cgroup.model import READ_WRITE, DeviceNode, DeviceType, Permission, PolicySource, Verdict

_LETTERS: Final = {"r": Permission.READ, "w": Permission.WRITE, "m": Permission.MKNOD}
_TYPES: Final = {"a": None, "b": DeviceType.BLOCK, "c": DeviceType.CHAR}
_MAX_DIGITS: Final = 10
"""Of the kernel's unsigned 32-bit numbers."""
_FORM: Final = "a rule of the form 'TYPE MAJOR:MINOR ACCESS', such as 'c 195:0 rw'"


@dataclass(frozen=True, slots=True)
class DeviceRule:
    """One line; None stands for the wildcard."""

    type: DeviceType | None
    major: int | None
    minor: int | None
    permissions: Permission

    def __str__(self) -> str:
        kind = "a" if self.type is None else self.type.value
        major, minor = ("*" if number is None else number for number in (self.major, self.minor))
        letters = "".join(letter for letter, permission in _LETTERS.items() if permission in self.permissions)
        return f"{kind} {major}:{minor} {letters}"

    def covers(self, node: DeviceNode, permissions: Permission) -> bool:
        """Whether this rule alone allows the whole request."""
        return (
            self.type in (None, node.type)
            and self.major in (None, node.major)
            and self.minor in (None, node.minor)
            and permissions in self.permissions
        )


@dataclass(frozen=True, slots=True, eq=False)
class DevicesList:
    """The device policy that a `devices.list` states.

    A list that allows by default may deny some nodes all the same (the kernel does not print its exceptions);
    for those `allows` says more than the kernel does. Compared by identity: what was found out about a policy is
    remembered by it, and a node's policies are parsed once.
    """

    rules: tuple[DeviceRule, ...]

    @property
    def source(self) -> PolicySource:
        """Always the file."""
        return PolicySource.DEVICES_LIST

    @property
    def trouble(self) -> None:
        """None: a list always answers."""

    def deciding_rule(self, node: DeviceNode, permissions: Permission) -> DeviceRule | None:
        """The first rule that allows the request; None when it is denied."""
        return next((rule for rule in self.rules if rule.covers(node, permissions)), None)

    def allows(self, node: DeviceNode, permissions: Permission) -> Verdict:
        """Allow if one rule covers the whole request, else deny; never unknown."""
        return Verdict.DENY if self.deciding_rule(node, permissions) is None else Verdict.ALLOW

    def named_minors(self, major: int) -> frozenset[int]:
        """The minors of character devices that a rule of their own allows read+write."""
        return frozenset(
            rule.minor
            for rule in self.rules
            if rule.minor is not None
            and rule.major == major
            and rule.covers(DeviceNode(DeviceType.CHAR, major, rule.minor), READ_WRITE)
        )


def parse_devices_list(text: str) -> DevicesList:
    """The policy that the text of a `devices.list` states; ParseError names the line that is no rule."""
    return DevicesList(tuple(_parse_rule(line) for line in text.splitlines()))


def parse_permissions(letters: str, line: str) -> Permission:
    """The permissions that letters such as `rwm` stand for; ParseError names the line that has another one."""
    permissions = Permission(0)
    for letter in letters:
        if letter not in _LETTERS:
            raise ParseError(line, _FORM)
        permissions |= _LETTERS[letter]
    return permissions


def _parse_rule(line: str) -> DeviceRule:
    match line.split():
        case [kind, numbers, letters] if kind in _TYPES and numbers.count(":") == 1:
            major, minor = (_parse_number(number, line) for number in numbers.split(":"))
            return DeviceRule(_TYPES[kind], major, minor, parse_permissions(letters, line))
    raise ParseError(line, _FORM)


def _parse_number(text: str, line: str) -> int | None:
    if text == "*":
        return None
    if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS:
        return int(text)
    raise ParseError(line, _FORM)
