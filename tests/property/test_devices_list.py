# SPDX-License-Identifier: Apache-2.0
"""Any devices.list: rules survive being written and read, verdicts are those of plain sets, garbage is refused."""

from __future__ import annotations

import itertools
from typing import Final, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from otel_gpu_cgroup.cgroup.devices_list import DevicesList, parse_devices_list
from otel_gpu_cgroup.cgroup.policy import classify
from otel_gpu_cgroup.model import READ_WRITE, AccessClass, DeviceNode, DeviceType, Permission, Verdict, gpu_node
from tests.property.refusal import parsed_or_refused

LETTERS: Final = {"r": Permission.READ, "w": Permission.WRITE, "m": Permission.MKNOD}
MAJORS: Final = (1, 195, 507)
MINORS: Final = (0, 1, 2, 255)


class Line(NamedTuple):
    """One line as the kernel prints it, in words."""

    kind: str
    major: str
    minor: str
    access: str

    def __str__(self) -> str:
        return f"{self.kind} {self.major}:{self.minor} {self.access}"


class Request(NamedTuple):
    """One question, in words."""

    kind: str
    major: int
    minor: int
    access: frozenset[str]


ACCESS: Final = [frozenset(some) for size in (1, 2, 3) for some in itertools.combinations("rwm", size)]
UNIVERSE: Final = [Request(*fields) for fields in itertools.product("bc", MAJORS, MINORS, ACCESS)]


def numbers(some: tuple[int, ...]) -> st.SearchStrategy[str]:
    return st.sampled_from([*map(str, some), "*"])


accesses = st.sampled_from(
    [letters for size in (1, 2, 3) for letters in map("".join, itertools.combinations("rwm", size))]
)
lines = st.builds(Line, st.sampled_from("abc"), numbers(MAJORS), numbers(MINORS), accesses)
wide_numbers = st.integers(0, 2**32 - 1).map(str) | st.just("*")
wide_lines = st.builds(Line, st.sampled_from("abc"), wide_numbers, wide_numbers, accesses)


def text_of(rules: list[Line]) -> str:
    return "".join(f"{line}\n" for line in rules)


def requests_of(line: Line) -> set[Request]:
    """Every request of the universe that this line allows, by counting them out."""
    kinds = "bc" if line.kind == "a" else line.kind
    majors = MAJORS if line.major == "*" else (int(line.major),)
    minors = MINORS if line.minor == "*" else (int(line.minor),)
    access = [some for some in ACCESS if not some.difference(line.access)]
    return {Request(*fields) for fields in itertools.product(kinds, majors, minors, access)}


def answer(policy: DevicesList, request: Request) -> Verdict:
    permissions = Permission(0)
    for letter in request.access:
        permissions |= LETTERS[letter]
    return policy.allows(DeviceNode(DeviceType(request.kind), request.major, request.minor), permissions)


@given(st.lists(lines, max_size=6))
def test_a_request_is_allowed_if_and_only_if_the_sets_say_so(rules: list[Line]) -> None:
    allowed = set[Request]().union(*map(requests_of, rules))
    policy = parse_devices_list(text_of(rules))
    assert {request for request in UNIVERSE if answer(policy, request) is Verdict.ALLOW} == allowed
    assert {answer(policy, request) for request in UNIVERSE} <= {Verdict.ALLOW, Verdict.DENY}


@given(st.lists(wide_lines, max_size=6))
def test_rules_survive_being_written_and_read(rules: list[Line]) -> None:
    read = parse_devices_list(text_of(rules)).rules
    written = [
        Line(
            rule.type.value if rule.type else "a",
            "*" if rule.major is None else str(rule.major),
            "*" if rule.minor is None else str(rule.minor),
            "".join(letter for letter, permission in LETTERS.items() if permission in rule.permissions),
        )
        for rule in read
    ]
    assert written == rules


@given(st.lists(lines, max_size=6).flatmap(lambda rules: st.tuples(st.just(rules), st.permutations(rules))))
def test_the_order_of_lines_changes_no_verdict(orders: tuple[list[Line], list[Line]]) -> None:
    one, other = (parse_devices_list(text_of(rules)) for rules in orders)
    assert [answer(one, request) for request in UNIVERSE] == [answer(other, request) for request in UNIVERSE]


@given(st.lists(lines, max_size=4), lines)
def test_one_more_line_takes_nothing_away(rules: list[Line], line: Line) -> None:
    fewer, more = parse_devices_list(text_of(rules)), parse_devices_list(text_of([*rules, line]))
    for request in UNIVERSE:
        assert answer(fewer, request) is Verdict.DENY or answer(more, request) is Verdict.ALLOW


@given(st.lists(lines, max_size=6), st.sets(st.sampled_from(MINORS)))
def test_the_class_follows_from_the_sets(rules: list[Line], minors: set[int]) -> None:
    allowed = set[Request]().union(*map(requests_of, rules))
    gpus = {minor: Request("c", 195, minor, frozenset("rw")) in allowed for minor in minors}
    policy = parse_devices_list(text_of(rules))
    access = classify(policy, [gpu_node(minor) for minor in minors])
    assert access is not AccessClass.UNKNOWN
    assert (access is AccessClass.EXPLICIT) <= any(gpus.values())
    assert (access is AccessClass.UNRESTRICTED) <= all(gpus.values())
    assert (access is AccessClass.NONE) <= (not any(gpus.values()))
    named = {int(rule.minor) for rule in rules if (rule.major, rule.minor != "*") == ("195", True)}
    assert policy.named_minors(195) <= named


garbage = (
    st.text()
    | st.text("abcrwm195:* \n\t", max_size=40)
    | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))
)


@given(garbage)
@example("c 195:" + "9" * 5000 + " rw")
@example("\x85")
@example("c 195:0 rw\x0cc 195:1 rw")
def test_any_text_is_a_policy_or_refused_in_one_printable_line(text: str) -> None:
    policy = parsed_or_refused(parse_devices_list, text)
    if policy is not None:
        assert policy.allows(gpu_node(0), READ_WRITE) in (Verdict.ALLOW, Verdict.DENY)
        assert text.strip() == "" or policy.rules
