# SPDX-License-Identifier: Apache-2.0
"""Device programs in the shapes that container runtimes emit, assembled from rules.

None of this is a runtime's code. Each shape has the order of checks, the registers and the opcodes that the runtime's
programs have (seen in dumps of runc's and crun's, read in the sources of the others), so that what such a program
looks like can be evaluated, and attached, where the runtime itself cannot run.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_gpu_cgroup.model import DeviceNode, Permission

_KINDS: Final = {"b": 1, "c": 2}
_ACCESS: Final = {"m": 1, "r": 2, "w": 4}
_ALL: Final = 7
_RESULT, _CONTEXT, _TYPE, _ASKED, _MAJOR, _MINOR, _SPARE = range(7)
"""Registers."""
_EXIT: Final = struct.pack("<BBhi", 0x95, 0, 0, 0)
_Check: TypeAlias = "Callable[[int], bytes]"
"""An instruction made from how many follow it in its block."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a list; None is a wildcard."""

    allow: bool
    kind: str | None
    """`b` or `c`."""
    major: int | None
    minor: int | None
    access: int
    """The sum of 1 (mknod), 2 (read) and 4 (write)."""

    def matches(self, node: DeviceNode, asked: Permission) -> bool:
        """Whether a program that tests it takes this request for one of its own: all of it must be covered."""
        return self.names(node) and not asked.value & ~self.access

    def names(self, node: DeviceNode) -> bool:
        """Whether it concerns the node."""
        own = (self.kind, self.major, self.minor)
        return all(
            mine in (None, its) for mine, its in zip(own, (node.type.value, node.major, node.minor), strict=True)
        )


def parse_rule(text: str) -> Rule:
    """A rule in the words of the tests, such as `allow c 195:0 rw`; `a` is both kinds."""
    verb, kind, numbers, access = text.split()
    major, minor = (None if number == "*" else int(number) for number in numbers.split(":"))
    return Rule(verb == "allow", None if kind == "a" else kind, major, minor, sum(_ACCESS[letter] for letter in access))


def instruction(code: int, dst: int = 0, src: int = 0, off: int = 0, imm: int = 0) -> bytes:
    """One instruction as the kernel takes it."""
    return struct.pack("<BBhi", code, src << 4 | dst, off, imm)


def runc(rules: Sequence[Rule], *, default: bool = False) -> bytes:
    """As opencontainers/cgroups emits it: the first rule that covers the request decides."""
    return _listed(rules, _runc_checks, 0xB4, default=default)


def crun(rules: Sequence[Rule], *, default: bool = False) -> bytes:
    """As runc's, but the result is moved as 64 bits."""
    return _listed(rules, _runc_checks, 0xB7, default=default)


def systemd(rules: Sequence[Rule]) -> bytes:
    """Rules that allow, each of a type, jumping to one common end; what none covers is denied."""
    blocks = [_checks([*_access_check(rule), *_node_checks(rule)], instruction(0x05)) for rule in rules]
    tail = instruction(0xB7) + instruction(0x05, off=1) + instruction(0xB7, imm=1) + _EXIT
    body = b""
    for index, block in enumerate(blocks):
        rest = sum(map(len, blocks[index + 1 :])) // 8
        body += block[:-8] + instruction(0x05, off=rest + 2)  # over r0 = 0 and the jump after it
    return _prologue() + body + (tail if rules else instruction(0xB7) + _EXIT)


def nvcgo(rules: Sequence[Rule], existing: bytes) -> bytes:
    """As the legacy hook of NVIDIA's container library: a prologue and a rule per device before what there was."""
    return b"".join(_nvcgo_block(rule) for rule in reversed(rules)) + existing


def lxc(rules: Sequence[Rule], *, default: bool = False) -> bytes:
    """As LXC's: the access is checked before the numbers."""
    return _listed(rules, lambda rule: [*_access_check(rule), *_node_checks(rule)], 0xB7, default=default)


def slurm(rules: Sequence[Rule], *, default: bool = True) -> bytes:
    """As Slurm's: no access is checked, and what no rule names is allowed."""
    return _listed(rules, _node_checks, 0xB7, default=default)


def first_match(rules: Sequence[Rule], node: DeviceNode, asked: Permission, *, default: bool) -> bool:
    """What a list says, told by the rules themselves."""
    return next((rule.allow for rule in rules if rule.matches(node, asked)), default)


def first_named(rules: Sequence[Rule], node: DeviceNode, asked: Permission, *, default: bool) -> bool:
    """What a list says that does not look at what is asked."""
    del asked
    return next((rule.allow for rule in rules if rule.names(node)), default)


def _prologue(type_load: int = 0x61) -> bytes:
    loads = [instruction(type_load, _TYPE, _CONTEXT)]
    if type_load == 0x61:
        loads.append(instruction(0x54, _TYPE, imm=0xFFFF))
    return b"".join(
        [
            *loads,
            instruction(0x61, _ASKED, _CONTEXT),
            instruction(0x74, _ASKED, imm=16),
            instruction(0x61, _MAJOR, _CONTEXT, 4),
            instruction(0x61, _MINOR, _CONTEXT, 8),
        ]
    )


def _listed(rules: Sequence[Rule], checks: Callable[[Rule], list[_Check]], move: int, *, default: bool) -> bytes:
    """A prologue, a block for each rule, and the default; a rule without a check ends it: behind is dead code."""
    body = b""
    for rule in rules:
        body += _checks(checks(rule), _return(move, result=rule.allow))
        if not checks(rule):
            return _prologue() + body
    return _prologue() + body + _return(move, result=default)


def _runc_checks(rule: Rule) -> list[_Check]:
    """The type, the access, the numbers."""
    numbers = _node_checks(rule)
    kind = [numbers.pop(0)] if rule.kind is not None else []
    return [*kind, *_access_check(rule), *numbers]


def _nvcgo_block(rule: Rule) -> bytes:
    checks = [*_access_check(rule, temporary=_SPARE, jump=0x5E), *_node_checks(rule, jump=0x56)]
    return _prologue(type_load=0x69) + _checks(checks, _return(0xB4, result=rule.allow))


def _checks(checks: Sequence[_Check], then: bytes) -> bytes:
    """Instructions that go on behind the block unless all hold, and what is done when they do."""
    places = range(len(checks) - 1, -1, -1)
    return b"".join(check(behind + len(then) // 8) for check, behind in zip(checks, places, strict=True)) + then


def _access_check(rule: Rule, temporary: int = 1, jump: int = 0x5D) -> list[_Check]:
    """That nothing is asked beyond the rule's access; none where the rule gives all."""
    if rule.access == _ALL:
        return []
    return [
        lambda _: instruction(0xBC, temporary, _ASKED),
        lambda _: instruction(0x54, temporary, imm=rule.access),
        lambda skip: instruction(jump, temporary, _ASKED, skip),
    ]


def _node_checks(rule: Rule, jump: int = 0x55) -> list[_Check]:
    """That type, major and minor are the rule's; nothing for a wildcard."""
    kind = None if rule.kind is None else _KINDS[rule.kind]
    pairs = ((_TYPE, kind), (_MAJOR, rule.major), (_MINOR, rule.minor))
    return [_unless(jump, register, number) for register, number in pairs if number is not None]


def _unless(jump: int, register: int, number: int) -> _Check:
    return lambda skip: instruction(jump, register, off=skip, imm=number)


def _return(move: int, *, result: bool) -> bytes:
    return instruction(move, _RESULT, imm=int(result)) + _EXIT
