# SPDX-License-Identifier: Apache-2.0
"""Policies read while programs are exchanged under the reader."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.cgroup.bpf.reader import BpfReader
from otel_gpu_cgroup.cgroup.bpf.syscall import Bpf
from otel_gpu_cgroup.errors import PolicyUnreadable
from otel_gpu_cgroup.model import READ_WRITE, Verdict, gpu_node
from tests.support import bpf_programs
from tests.support.bpf import attach, attached, detach, loaded, unified_cgroup
from tests.support.bpf_programs import parse_rule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_READS = 1000


@pytest.mark.usefixtures("shown")
def test_a_program_that_vanishes_between_the_calls_is_asked_for_again() -> None:
    """GPU 0 is always allowed and GPU 1 never, whichever programs are there."""
    reader, outcomes, before = BpfReader(Bpf()), [], len(os.listdir("/proc/self/fd"))
    with unified_cgroup() as cgroup, _exchanged(cgroup):
        for _ in range(_READS):
            reader.begin_cycle()
            try:
                policy = reader.read(str(cgroup))
            except PolicyUnreadable as error:
                if "replaced faster" not in str(error):
                    raise
                continue
            outcomes.append([policy.allows(gpu_node(minor), READ_WRITE) for minor in (0, 1)])
    assert len(outcomes) > _READS // 2
    assert all(outcome == [Verdict.ALLOW, Verdict.DENY] for outcome in outcomes)
    assert len(os.listdir("/proc/self/fd")) == before


@contextmanager
def _exchanged(cgroup: Path) -> Iterator[None]:
    """Programs are loaded, attached, and the one before detached and freed, as fast as it goes."""
    end = threading.Event()
    codes = [bpf_programs.runc([parse_rule(f"allow c 195:{minor} rw") for minor in (0, other)]) for other in (2, 3)]

    def exchange() -> None:
        with attached(cgroup, codes[1]):
            while not end.is_set():
                for code in codes:
                    with loaded(code) as program:
                        attach(cgroup, program)
                        detach(cgroup, program)

    thread = threading.Thread(target=exchange)
    with attached(cgroup, codes[0]):
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
