# SPDX-License-Identifier: Apache-2.0
"""Compares what we compute of device programs with what the kernel does, and counts what was compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.isa import decode
from otel_gpu_cgroup.cgroup.bpf.machine import Step, request_context, run
from otel_gpu_cgroup.errors import UnsupportedProgram
from otel_gpu_cgroup.model import DeviceType
from tests.kernel.bpf.opcodes import ALL, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_gpu_cgroup.cgroup.bpf.isa import Program
    from otel_gpu_cgroup.model import DeviceNode, Permission
    from tests.support.devices_cgroup import Answer

    Answers = Mapping[tuple[DeviceNode, Permission], Answer]

_KINDS: Final = {DeviceType.BLOCK: 1, DeviceType.CHAR: 2}
_BLINDING: Final = ((0xB4, 0xB7), (0xA4, 0xA7))
"""Moves and exclusive ors with a number, one after the other on register 11: a constant that is taken apart."""
_LEAST: Final = 0.2
"""The share that neither verdict may be below."""


def evaluate(programs: Sequence[Program], node: DeviceNode, asked: Permission, trace: list[Step] | None = None) -> str:
    """Our verdict, `allow` or `deny`, or why there is none; steps are those of the last program."""
    context = request_context(asked.value, _KINDS[node.type], node.major, node.minor)
    try:
        results = {run(program, context, trace) for program in programs}
    except UnsupportedProgram as error:
        return f"unknown: {error}"
    return "allow" if results <= {1} else "deny"


def differs(programs: Sequence[Program], answers: Answers) -> bool:
    """Whether one answer is not what we compute."""
    return any(evaluate(programs, *request) != _said(answer) for request, answer in answers.items())


def is_blinded(program: Program) -> bool:
    """Whether its constants are."""
    return any(
        first is not None
        and second is not None
        and (first.dst, second.dst) == (11, 11)
        and (first.code in _BLINDING[0] and second.code in _BLINDING[1])
        for first, second in pairwise(program)
    )


@dataclass(slots=True)
class Tally:
    """Totals of one run."""

    seed: int
    programs: Counter[str] = field(default_factory=Counter)
    """By what they were compared for."""
    seen: Counter[str] = field(default_factory=Counter)
    """Random programs that were blinded, and those that were rewritten."""
    refused: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    random_verdicts: Counter[str] = field(default_factory=Counter)
    opcodes: Counter[str] = field(default_factory=Counter)
    """Executed instructions of random programs."""
    jumps: Counter[str] = field(default_factory=Counter)
    """Executed jumps of random programs by where they lead and whether they were taken."""
    disagreements: list[str] = field(default_factory=list)
    caught: dict[str, int] = field(default_factory=dict)
    """After how many programs an evaluator with this defect was."""

    def add(self, kind: str, codes: Sequence[bytes], answers: Answers) -> None:
        """Compare each answer of the kernel with ours for programs that must all allow."""
        self.programs[kind] += 1
        programs = [decode(code) for code in codes]
        for (node, asked), answer in answers.items():
            self._compare(codes, evaluate(programs, node, asked), answer, f"{node} {asked}")

    def add_random(self, loaded: bytes, code: bytes, answers: Answers) -> None:
        """The same for one random program, whose instructions are counted, too."""
        self.programs["random"] += 1
        program = decode(code)
        blinded = is_blinded(program)
        self.seen["blinded"] += blinded
        self.seen["rewritten otherwise"] += not blinded and code != loaded
        steps: list[Step] = []
        for (node, asked), answer in answers.items():
            ours = evaluate([program], node, asked, steps)
            self.random_verdicts[ours] += 1
            self._compare([code], ours, answer, f"{node} {asked}")
        self._count(program, steps)

    def _compare(self, codes: Sequence[bytes], ours: str, answer: Answer, request: str) -> None:
        assert answer.agree, f"access(2) and open(2) differ for {request}: {answer}"
        self.verdicts[ours] += 1
        if ours != _said(answer):
            programs = " ".join(code.hex() for code in codes)
            self.disagreements.append(f"{request}: the kernel says {_said(answer)}, we {ours}: {programs}")

    def _count(self, program: Program, steps: Sequence[Step]) -> None:
        for step, times in Counter(steps).items():
            it = program[step.at]
            assert it is not None
            name = name_of(it)
            self.opcodes[name] += times
            if name[0] == "j" or name == "gotol":
                backward = (it.imm if name == "gotol" else it.off) < 0
                taken = "taken" if step.next != step.at + 1 else "not taken"
                self.jumps[f"{'backward' if backward else 'forward'} {taken}"] += times
        self.opcodes["exit"] += 1  # no step: it leads nowhere

    def missing(self) -> list[str]:
        """What a long enough run has to meet and this one did not."""
        total = self.random_verdicts.total()
        return [
            *(name for name in ALL if not self.opcodes[name]),
            *(sign for sign in ("forward taken", "backward taken", "backward not taken") if not self.jumps[sign]),
            *(seen for seen in ("blinded", "rewritten otherwise") if not self.seen[seen]),
            *(verdict for verdict in ("allow", "deny") if self.random_verdicts[verdict] < _LEAST * total),
        ]

    def lines(self) -> list[str]:
        """For the terminal."""
        lines = [
            f"seed {self.seed}; programs: {_listed(self.programs)}; {self.refused} that the verifier refused",
            f"{self.verdicts.total()} comparisons ({_listed(self.verdicts)}), {len(self.disagreements)} disagreements",
        ]
        if self.caught:
            lines.append(f"{len(self.caught)} wrong evaluators, each caught{_worst(self.caught)}")
        if self.opcodes:
            lines.append(f"of the random ones: {_listed(self.random_verdicts)}; {_listed(self.seen)}")
            lines += [f"executed jumps: {_listed(self.jumps)}", "executed:", *_table(self.opcodes)]
        return lines


def _said(answer: Answer) -> str:
    return "allow" if answer.allowed else "deny"


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _worst(caught: dict[str, int]) -> str:
    name = max(caught, key=lambda name: caught[name])
    return f" within {caught[name]} programs (the last: {name}); half of them within {int(median(caught.values()))}"


def _table(opcodes: Counter[str], columns: int = 6) -> list[str]:
    """Executed instructions by opcode."""
    cells = [f"{name:<11}{opcodes[name]:>8}" for name in ALL]
    return ["  ".join(cells[at : at + columns]) for at in range(0, len(cells), columns)]
