# SPDX-License-Identifier: Apache-2.0
"""Programs as policies, and the readers that keep them; programs are written here instruction by instruction."""

from __future__ import annotations

import gc

import pytest

from otel_gpu_cgroup.cgroup.bpf.isa import Instruction, encode
from otel_gpu_cgroup.cgroup.bpf.policy import BpfPolicy, DeviceProgram
from otel_gpu_cgroup.cgroup.bpf.reader import BpfReader
from otel_gpu_cgroup.cgroup.bpf.syscall import Bpf, ProgramGone, ProgramInfo
from otel_gpu_cgroup.cgroup.policy import BothPolicies, DevicePolicy, UnknownPolicy, classify
from otel_gpu_cgroup.errors import PolicyUnreadable
from otel_gpu_cgroup.model import READ_WRITE, AccessClass, PolicySource, Verdict, gpu_node

ALLOW = encode((Instruction(0xB7, 0, 0, 0, 1), Instruction(0x95, 0, 0, 0, 0)))
DENY = encode((Instruction(0xB7, 0, 0, 0, 0), Instruction(0x95, 0, 0, 0, 0)))
CALL = encode((Instruction(0x85, 0, 0, 0, 5), Instruction(0x95, 0, 0, 0, 0)))


def only_minor(minor: int) -> bytes:
    """r0 = 0; r1 = context's minor; if it is the one, r0 = 1."""
    return encode(
        (
            Instruction(0xB7, 0, 0, 0, 0),
            Instruction(0x61, 1, 1, 8, 0),
            Instruction(0x55, 1, 0, 1, minor),
            Instruction(0xB7, 0, 0, 0, 1),
            Instruction(0x95, 0, 0, 0, 0),
        )
    )


def verdict(policy: DevicePolicy, minor: int = 0) -> Verdict:
    return policy.allows(gpu_node(minor), READ_WRITE)


def test_without_a_program_nothing_is_restricted() -> None:
    policy = BpfPolicy(())
    assert verdict(policy) is Verdict.ALLOW
    assert classify(policy, [gpu_node(0)]) is AccessClass.UNRESTRICTED
    assert policy.source is PolicySource.BPF


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ((ALLOW, ALLOW), Verdict.ALLOW),
        ((ALLOW, DENY), Verdict.DENY),
        ((ALLOW, CALL), Verdict.UNKNOWN),
        ((CALL, DENY), Verdict.DENY),
        ((b"1234567",), Verdict.UNKNOWN),
    ],
    ids=["all allow", "one denies", "one is unknown", "a denial beats the unknown", "no program at all"],
)
def test_all_programs_must_allow(codes: tuple[bytes, ...], expected: Verdict) -> None:
    policy = BpfPolicy([DeviceProgram(code) for code in codes])
    assert verdict(policy) is expected
    assert (policy.trouble is not None) is (expected is Verdict.UNKNOWN or CALL in codes)


def test_a_program_that_names_one_gpu_is_explicit() -> None:
    policy = BpfPolicy([DeviceProgram(only_minor(3))])
    assert [verdict(policy, minor) for minor in (2, 3)] == [Verdict.DENY, Verdict.ALLOW]
    assert classify(policy, [gpu_node(2), gpu_node(3)]) is AccessClass.EXPLICIT


@pytest.mark.parametrize(
    ("first", "second", "expected", "source"),
    [
        (ALLOW, ALLOW, Verdict.ALLOW, PolicySource.BPF),
        (ALLOW, DENY, Verdict.DENY, PolicySource.BPF),
        (ALLOW, None, Verdict.UNKNOWN, PolicySource.BPF),
        (DENY, None, Verdict.DENY, PolicySource.BPF),
    ],
)
def test_two_controllers_must_both_allow(
    first: bytes, second: bytes | None, expected: Verdict, source: PolicySource
) -> None:
    trouble = PolicyUnreadable("refused")
    other: DevicePolicy = UnknownPolicy(trouble) if second is None else BpfPolicy([DeviceProgram(second)])
    both = BothPolicies(BpfPolicy([DeviceProgram(first)]), other)
    assert verdict(both) is expected
    assert both.source is source
    assert both.trouble is (trouble if second is None else None)


class Kernel(Bpf):
    """What bpf(2) would answer, told by the test."""

    def __init__(self, *programs: tuple[int, bytes]) -> None:
        self.attached = [identifier for identifier, _ in programs]
        self.programs = dict(programs)
        self.asked: list[int] = []

    def query_effective(self, cgroup: str) -> tuple[int, ...]:
        del cgroup
        return tuple(self.attached)

    def read_program(self, identifier: int) -> ProgramInfo:
        self.asked.append(identifier)
        if identifier not in self.programs:
            self.attached = sorted(self.programs)  # it was replaced: the next query tells the new one
            raise ProgramGone(identifier)
        code = self.programs[identifier]
        return ProgramInfo(identifier, code[-16:-8], "", code, has_maps=False)


def test_a_known_program_costs_one_query_and_gives_the_same_policy() -> None:
    kernel = Kernel((7, ALLOW))
    reader = BpfReader(kernel)
    policies = []
    for _ in range(3):
        reader.begin_cycle()
        policies.append(reader.read("/c"))
    assert policies[0] is policies[1] is policies[2]
    assert kernel.asked == [7]


def test_equal_programs_under_different_ids_are_one() -> None:
    reader = BpfReader(Kernel((7, ALLOW), (8, ALLOW)))
    first, second = reader.read("/c").programs
    assert first is second


def test_a_program_that_is_not_met_for_a_cycle_is_forgotten_with_its_id() -> None:
    kernel = Kernel((7, ALLOW))
    reader = BpfReader(kernel)
    reader.read("/c")
    reader.begin_cycle()
    reader.begin_cycle()
    gc.collect()
    kernel.programs[7] = DENY
    assert verdict(reader.read("/c")) is Verdict.DENY


def test_a_program_that_is_replaced_between_two_calls_is_asked_for_again() -> None:
    kernel = Kernel((9, DENY))
    kernel.attached = [7]
    assert verdict(BpfReader(kernel).read("/c")) is Verdict.DENY
    assert kernel.asked == [7, 9]


class RestlessKernel(Kernel):
    """One whose programs are replaced faster than anybody can look."""

    def read_program(self, identifier: int) -> ProgramInfo:
        raise ProgramGone(identifier)


def test_programs_that_never_stand_still_are_unreadable() -> None:
    kernel = RestlessKernel((7, ALLOW))
    with pytest.raises(PolicyUnreadable):
        BpfReader(kernel).read("/c")
