# SPDX-License-Identifier: Apache-2.0
"""Pure: what shows that a container should be able to open a device that it is denied.

A systemd that reloads its units gives every cgroup that it manages the device rules that it knows of, and takes away
those that a runtime or a hook has added behind its back. What it leaves can be told from what nobody ever granted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.isa import Class, Jump
from otel_gpu_cgroup.cgroup.policy import MEMORY_NODE
from otel_gpu_cgroup.model import READ_WRITE, DeviceNode, Permission, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from otel_gpu_cgroup.cgroup.bpf.isa import Instruction, Program
    from otel_gpu_cgroup.cgroup.bpf.policy import BpfPolicy, DeviceProgram
    from otel_gpu_cgroup.cgroup.devices_list import DeviceRule, DevicesList

_SYSTEMDS_NAME: Final = "sd_devices"
"""Of its programs since systemd 261; before, they have none."""
_ALWAYS: Final = Class.JMP | Jump.ALWAYS
_EXIT: Final = Class.JMP | Jump.EXIT
_RESULT: Final = 0


def list_signature(policy: DevicesList, denied: Sequence[DeviceNode], *, any_minor: bool) -> str | None:
    """What a list has left of the rules for nodes that it denies, in words; None unless it has for each of them.

    `any_minor` is whether a rule for all minors of a major counts.
    """
    rules = [_rule_left(policy, node) for node in denied]
    if not rules or any(rule is None or (rule.minor is None and not any_minor) for rule in rules):
        return None
    left = ", ".join(dict.fromkeys(str(rule).split()[1] for rule in rules))
    return f"its devices.list has mknod alone for {left}, as systemd leaves it at daemon-reload"


def program_signature(
    policy: BpfPolicy, denied: Sequence[DeviceNode], on_cgroups: Callable[[], Sequence[Collection[int]]]
) -> str | None:
    """How systemd's program and a runtime's on one cgroup differ about nodes, in words; None unless about each of them.

    `on_cgroups` gives the ids of the programs on each of the container's cgroups, and is asked where any differ.
    """
    found = [_find_disagreement(policy, node) for node in denied]
    differing = [it for it in found if it is not None]
    if not differing or len(differing) < len(found):
        return None
    counts = [len(ids) for ids in on_cgroups() if all(it.is_among(ids) for it in differing)]
    return f"of the {counts[0]} programs on its cgroup systemd's denies it" if counts else None


@dataclass(frozen=True, slots=True)
class _Disagreement:
    """Which programs in effect on a container differ about a node, by their ids."""

    systemds: frozenset[int]
    """All that deny it; each is systemd's."""
    others: frozenset[int]
    """Those that allow it, and not everything, and are not systemd's."""

    def is_among(self, ids: Collection[int]) -> bool:
        """Whether they are all programs of the one cgroup that has these: a denial from above is a true restriction."""
        return self.systemds.issubset(ids) and not self.others.isdisjoint(ids)


def is_systemd_shaped(program: Program) -> bool:
    """Whether it has the shape of systemd's: each rule jumps over a common denial to a common end, the one exit.

    Without a rule it is a denial alone. Constants are not looked at, as a hardened kernel blinds them.
    """
    if [at for at, it in enumerate(program) if _is(it, _EXIT)] != [len(program) - 1]:
        return False
    jumps = [(at, at + 1 + it.off) for at, it in enumerate(program) if it is not None and it.code == _ALWAYS]
    if not jumps:
        return not any(_is_condition(it) for it in program)
    *rules, (denial, end) = jumps
    answers = (program[denial - 1], program[-2])
    return end == len(program) - 1 and all(to == denial + 1 for _, to in rules) and all(map(_sets_result, answers))


@dataclass(frozen=True, slots=True)
class DevMounts:
    """What a process' mounts say of its /dev."""

    is_hosts: bool
    """Whether it is a whole devtmpfs, which there is one of: the host's."""
    nodes: tuple[str, ...]
    """Where NVIDIA's device nodes are mounted one by one."""


def parse_dev_mounts(mountinfo: str) -> DevMounts:
    """What the text of a /proc/PID/mountinfo says of /dev; lines that are none are passed over."""
    mounts = [mount for line in mountinfo.split("\n") if (mount := _parse_mount(line)) is not None]
    uppermost = next((mount for mount in reversed(mounts) if mount[1] == "/dev"), None)
    nodes = dict.fromkeys(point for _, point, _ in mounts if point.startswith("/dev/nvidia"))
    return DevMounts(uppermost is not None and uppermost[0] == "/" and uppermost[2] == "devtmpfs", tuple(nodes))


def _rule_left(policy: DevicesList, node: DeviceNode) -> DeviceRule | None:
    """The rule for mknod alone that names a node's major, the one for its minor first.

    Runtimes ask for `char-* m` in every container, which systemd 239 spells as a rule for each major of the host: with
    another such rule beside it, a rule for all minors tells nothing.
    """
    alone = [rule for rule in policy.rules if rule.type is node.type and rule.permissions is Permission.MKNOD]
    ours = {rule.minor: rule for rule in alone if rule.major == node.major}
    generic = {rule.major for rule in alone if rule.minor is None}
    return ours.get(node.minor) or (ours.get(None) if generic == {node.major} else None)


def _find_disagreement(policy: BpfPolicy, node: DeviceNode) -> _Disagreement | None:
    """Which programs differ about a node; None unless each that denies it is systemd's, and another grants it."""
    verdicts = [
        (number, program, program.allows(node, READ_WRITE))
        for number, program in zip(policy.ids, policy.programs, strict=True)
    ]
    denying = [(number, program) for number, program, verdict in verdicts if verdict is Verdict.DENY]
    others = frozenset(number for number, program, verdict in verdicts if verdict is Verdict.ALLOW and _grants(program))
    if not denying or not others or not all(_is_systemds(program) for _, program in denying):
        return None
    return _Disagreement(frozenset(number for number, _ in denying), others)


def _grants(program: DeviceProgram) -> bool:
    """Whether what it allows was asked for: neither systemd's own, nor one that allows everything."""
    return not _is_systemds(program) and program.allows(MEMORY_NODE, READ_WRITE) is Verdict.DENY


def _is_systemds(program: DeviceProgram) -> bool:
    return program.name == _SYSTEMDS_NAME or is_systemd_shaped(program.instructions)


def _is(it: Instruction | None, code: int) -> bool:
    return it is not None and it.code == code


def _is_condition(it: Instruction | None) -> bool:
    return it is not None and it.group in (Class.JMP, Class.JMP32) and it.code != _EXIT


def _sets_result(it: Instruction | None) -> bool:
    """Blinded, a move of 0 is the register exclusive-or itself."""
    return it is not None and it.group in (Class.ALU, Class.ALU64) and it.dst == _RESULT


def _parse_mount(line: str) -> tuple[str, str, str] | None:
    """What of a file system is mounted, where, and its type: `ID PARENT DEV ROOT POINT OPTIONS [TAG…] - TYPE …`."""
    before, _, after = line.partition(" - ")
    fields, kind = before.split(" "), after.partition(" ")[0]
    return (fields[3], fields[4], kind) if len(fields) >= 6 and kind else None
