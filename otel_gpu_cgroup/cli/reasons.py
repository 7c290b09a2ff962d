# SPDX-License-Identifier: Apache-2.0
"""Pure: why a policy answers as it does, in its own words: a list's rules, a program's path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.listing import Line, deciding_place, list_program
from otel_gpu_cgroup.cgroup.bpf.policy import BpfPolicy, DeviceProgram
from otel_gpu_cgroup.cgroup.devices_list import DevicesList
from otel_gpu_cgroup.cgroup.fallback.stated import StandInPolicy, StatedPolicy
from otel_gpu_cgroup.cgroup.policy import BothPolicies, UnknownPolicy
from otel_gpu_cgroup.cli.table import counted
from otel_gpu_cgroup.model import READ_WRITE, DeviceNode, Verdict
from otel_gpu_cgroup.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from otel_gpu_cgroup.cgroup.policy import DevicePolicy

_NO_RULE: Final = "no rule"
_LEGEND: Final = "type: 1 block, 2 char; access: 1 mknod + 2 read + 4 write"


@dataclass(frozen=True, slots=True)
class Subject:
    """A device node that the policy is asked about, and what people call it."""

    name: str
    node: DeviceNode

    def __str__(self) -> str:
        return f"{self.name} ({self.node})"


@dataclass(frozen=True, slots=True)
class Voice:
    """One list or program that has a say, and what it says of each node in a few words."""

    title: str
    says: Callable[[DeviceNode], str]
    lines: Callable[[Sequence[Subject], Subject], Iterator[str]]
    """All of it, for all subjects; a program's path is that of the one."""


def voices(policy: DevicePolicy) -> list[Voice]:
    """Everything in a policy that may deny."""
    if isinstance(policy, BothPolicies | StandInPolicy):
        return [voice for part in policy.parts for voice in voices(part)]
    if isinstance(policy, DevicesList):
        return [_list_voice(policy)]
    if isinstance(policy, StatedPolicy):
        return [_stated_voice(policy)]
    if isinstance(policy, BpfPolicy) and policy.programs:
        ids: Sequence[int | None] = policy.ids or [None] * len(policy.programs)
        return [_program_voice(program, number) for program, number in zip(policy.programs, ids, strict=True)]
    return [_plain_voice(policy)]


def _list_voice(policy: DevicesList) -> Voice:
    def says(node: DeviceNode) -> str:
        rule = policy.deciding_rule(node, READ_WRITE)
        return _NO_RULE if rule is None else str(rule)

    def lines(subjects: Sequence[Subject], shown: Subject) -> Iterator[str]:
        del shown
        yield f"devices.list: {counted(len(policy.rules), 'rule')}; the first that covers read and write decides"
        yield from _marked([str(rule) for rule in policy.rules], says, subjects)
        if any(rule.type is None for rule in policy.rules):
            yield "  a list that allows by default may have exceptions; the kernel does not show them"

    return Voice("devices.list", says, lines)


def _stated_voice(policy: StatedPolicy) -> Voice:
    def says(node: DeviceNode) -> str:
        statement = policy.deciding_statement(node, READ_WRITE)
        return _NO_RULE if statement is None else str(statement)

    def lines(subjects: Sequence[Subject], shown: Subject) -> Iterator[str]:
        del shown
        count = counted(len(policy.statements), "rule")
        yield f"{policy.source}, in place of the kernel: {count}; the last that covers read and write decides"
        yield from _marked([str(statement) for statement in policy.statements], says, subjects)

    return Voice(policy.source, says, lines)


def _marked(rules: list[str], says: Callable[[DeviceNode], str], subjects: Sequence[Subject]) -> Iterator[str]:
    """Each rule, with the nodes that it decided on, and at last those that none did."""
    decided: dict[str, list[str]] = {}
    for subject in subjects:
        decided.setdefault(says(subject.node), []).append(subject.name)
    for rule in rules:
        yield f"  {rule:<18}  <- {', '.join(decided[rule])}" if rule in decided else f"  {rule}"
    if _NO_RULE in decided:
        yield f"  {'no rule: denied':<18}  <- {', '.join(decided[_NO_RULE])}"


def _program_voice(program: DeviceProgram, number: int | None) -> Voice:
    title = "program" if number is None else f"program {number}"

    def says(node: DeviceNode) -> str:
        verdict, place = program.allows(node, READ_WRITE), _deciding_place(program, node)
        return verdict.value if place is None or verdict is Verdict.UNKNOWN else f"{verdict.value} at {place}"

    def lines(subjects: Sequence[Subject], shown: Subject) -> Iterator[str]:
        del subjects
        name = printable(program.name) or "none"
        size = counted(len(program.instructions), "instruction")
        yield f"{title}: tag {program.tag.hex() or 'not known'}, name {name}, {size}"
        yield f"  > executed for {shown}, read and write; => the condition that decided"
        yield f"  {_LEGEND}"
        yield from map(_program_line, list_program(program.instructions, program.trace(shown.node, READ_WRITE)))
        answer = program.allows(shown.node, READ_WRITE)
        why = f": {printable(program.trouble or '')}" if answer is Verdict.UNKNOWN else ""
        yield f"  its answer for {shown}: {answer.value}{why}"

    return Voice(title, says, lines)


def _deciding_place(program: DeviceProgram, node: DeviceNode) -> int | None:
    return deciding_place(program.instructions, program.trace(node, READ_WRITE))


def _program_line(line: Line) -> str:
    mark = "=>" if line.decides else " >" if line.executed else "  "
    text = f"{line.text:<26}  ; {line.meaning}" if line.meaning else line.text
    return f"  {mark} {line.at:>4}  {text}"


def _plain_voice(policy: DevicePolicy) -> Voice:
    """Of what has nothing to show but its verdicts."""
    title = "not told" if isinstance(policy, UnknownPolicy) else policy.source.value

    def says(node: DeviceNode) -> str:
        return policy.allows(node, READ_WRITE).value

    def lines(subjects: Sequence[Subject], shown: Subject) -> Iterator[str]:
        del subjects, shown
        if isinstance(policy, UnknownPolicy):
            yield f"not told: {printable(str(policy.trouble))}"
        elif isinstance(policy, BpfPolicy):
            yield "no program: nothing is restricted"
        else:
            yield f"{policy.source}: it has nothing to show but its answers"

    return Voice(title, says, lines)
