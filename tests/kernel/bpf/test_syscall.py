# SPDX-License-Identifier: Apache-2.0
"""bpf(2) asked for real: what comes back, what is refused and how, and that nothing stays open."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import tests
from otel_gpu_cgroup.cgroup.bpf.isa import decode
from otel_gpu_cgroup.cgroup.bpf.syscall import Bpf, ProgramGone
from otel_gpu_cgroup.errors import Gone, PolicyUnreadable
from tests.kernel.bpf import less_privilege
from tests.kernel.bpf.comparison import is_blinded
from tests.kernel.bpf.lab import effective
from tests.kernel.bpf.sysctl import hardening
from tests.support import bpf_programs
from tests.support.bpf import attached, need_bpf, unified_cgroup
from tests.support.bpf_programs import parse_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

_ONE_GPU: Final = bpf_programs.runc([parse_rule("allow c 195:0 rw")])
_NOTHING: Final = bpf_programs.systemd([])
_NET_ADMIN, _SYS_PTRACE, _SYS_ADMIN, _SYSLOG, _PERFMON, _BPF = 12, 19, 21, 34, 38, 39


@pytest.fixture
def cgroup() -> Iterator[Path]:
    need_bpf()
    with unified_cgroup() as cgroup:
        yield cgroup


def test_a_cgroup_without_programs_has_none(cgroup: Path) -> None:
    assert Bpf().query_effective(str(cgroup)) == ()


def test_a_program_is_read_as_it_was_loaded(cgroup: Path) -> None:
    with hardening(0, 0), attached(cgroup, _ONE_GPU, name="Slurm_Cgroup_v2"):
        (identifier,) = Bpf().query_effective(str(cgroup))
        program = Bpf().read_program(identifier)
    assert (program.id, program.name, program.code, program.has_maps) == (
        identifier,
        "Slurm_Cgroup_v2",
        _ONE_GPU,
        False,
    )


def test_equal_programs_have_equal_tags_also_where_they_are_blinded(cgroup: Path) -> None:
    with hardening(2, 0), attached(cgroup, _ONE_GPU), attached(cgroup, _ONE_GPU), attached(cgroup, _NOTHING):
        bpf = Bpf()
        first, second, other = map(bpf.read_program, bpf.query_effective(str(cgroup)))
    assert first.tag == second.tag != other.tag
    assert _ONE_GPU != first.code != second.code


def test_more_programs_than_one_cgroup_can_have_are_all_told() -> None:
    """The first query has room for 64; the kernel then says how many there are."""
    need_bpf()
    with ExitStack() as stack:
        outer = stack.enter_context(unified_cgroup())
        inner = stack.enter_context(unified_cgroup(outer))
        for cgroup in (outer, inner):
            for _ in range(64):
                stack.enter_context(attached(cgroup, _ONE_GPU))
        identifiers = Bpf().query_effective(str(inner))
        assert len(set(identifiers)) == len(identifiers) == 128
        assert len(Bpf().query_effective(str(outer))) == 64


def test_a_program_that_went_after_the_query(cgroup: Path) -> None:
    with attached(cgroup, _ONE_GPU):
        (identifier,) = Bpf().query_effective(str(cgroup))
    with pytest.raises(ProgramGone):
        Bpf().read_program(identifier)


def test_a_cgroup_that_ended_before_it_was_opened(cgroup: Path) -> None:
    with pytest.raises(Gone):
        Bpf().query_effective(f"{cgroup}/never")


def test_a_cgroup_that_ended_after_it_was_opened(cgroup: Path) -> None:
    with unified_cgroup(cgroup) as ended:
        descriptor = os.open(ended, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(Gone):
            Bpf().query_effective(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def test_a_folder_that_is_no_cgroup(tmp_path: Path) -> None:
    need_bpf()
    with pytest.raises(PolicyUnreadable, match="cannot be read: Bad file descriptor"):
        Bpf().query_effective(str(tmp_path))


def test_blinded_programs_are_shown_unless_addresses_are_hidden(cgroup: Path) -> None:
    with hardening(2, 0), attached(cgroup, _ONE_GPU):
        (code,) = effective(cgroup)
    assert is_blinded(decode(code))
    with hardening(2, 2), attached(cgroup, _ONE_GPU), pytest.raises(PolicyUnreadable, match=r"kernel\.kptr_restrict"):
        effective(cgroup)


def test_nothing_stays_open(cgroup: Path, tmp_path: Path) -> None:
    bpf = Bpf()
    before = _open_descriptors()
    with attached(cgroup, _ONE_GPU):
        (identifier,) = bpf.query_effective(str(cgroup))
        held = _open_descriptors()  # the test itself holds the program
        bpf.query_effective(str(cgroup))
        bpf.read_program(identifier)
        assert _open_descriptors() == held
    with pytest.raises(ProgramGone):
        bpf.read_program(identifier)
    for folder in (cgroup / "never", tmp_path):
        with pytest.raises((Gone, PolicyUnreadable)):
            bpf.query_effective(str(folder))
    with hardening(2, 2), attached(cgroup, _ONE_GPU), pytest.raises(PolicyUnreadable):
        effective(cgroup)
    assert _open_descriptors() == before


@pytest.mark.parametrize(
    ("kept", "query", "read"),
    [
        ((), "CAP_NET_ADMIN", "CAP_SYS_ADMIN"),
        ((_BPF, _PERFMON, _SYSLOG, _SYS_PTRACE), "CAP_NET_ADMIN", "CAP_SYS_ADMIN"),
        ((_NET_ADMIN,), None, "CAP_SYS_ADMIN"),
        ((_NET_ADMIN, _BPF, _PERFMON), None, "CAP_SYS_ADMIN"),
        ((_NET_ADMIN, _SYS_ADMIN), None, None),
    ],
)
def test_a_missing_capability_is_named(
    kept: tuple[int, ...], query: str | None, read: str | None, cgroup: Path
) -> None:
    with hardening(0, 0), attached(cgroup, _ONE_GPU):
        (identifier,) = Bpf().query_effective(str(cgroup))
        answers = _asked_with(kept, cgroup, identifier)
    for missing, (outcome, what), expected in zip(
        (query, read), answers, ([identifier], [_ONE_GPU.hex()]), strict=True
    ):
        if missing is None:
            assert (outcome, what) == ("done", expected)
        else:
            assert outcome == "PolicyUnreadable"
            assert missing in str(what)
            assert "\n" not in str(what)


def _asked_with(kept: tuple[int, ...], cgroup: Path, identifier: int) -> list[tuple[str, object]]:
    """What a process gets that has only these capabilities."""
    arguments = [str(cgroup), str(identifier), *map(str, kept)]
    command = [sys.executable, "-m", less_privilege.__name__, *arguments]
    root = Path(tests.__file__).parents[1]
    answered = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    return [tuple(json.loads(line)) for line in answered.stdout.splitlines()]


def _open_descriptors() -> set[int]:
    """Without the one that lists them."""
    return {int(name) for name in os.listdir("/proc/self/fd") if _is_open(int(name))}


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
