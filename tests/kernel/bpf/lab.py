# SPDX-License-Identifier: Apache-2.0
"""A cgroup in which a process of ours asks for device nodes while programs come and go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from otel_gpu_cgroup.cgroup.bpf.syscall import Bpf
from tests.support.bpf import MULTI, attached

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kernel.bpf.comparison import Answers


class Case(NamedTuple):
    """A program as the kernel shows it, and the kernel's answers under it."""

    code: bytes
    answers: Answers


def effective(cgroup: Path) -> list[bytes]:
    """The instructions of all programs that decide on this cgroup, as the product reads them."""
    bpf = Bpf()
    return [bpf.read_program(identifier).code for identifier in bpf.query_effective(str(cgroup))]


@dataclass(frozen=True, slots=True)
class Lab:
    """Where programs are tried."""

    cgroup: Path
    ask: Callable[[], Answers]
    """The kernel's answers to the process in the cgroup."""

    def attempt(self, code: bytes) -> Case:
        """Attach the program alone and ask; raises Refused."""
        with attached(self.cgroup, code, MULTI):
            (shown,) = effective(self.cgroup)
            return Case(shown, self.ask())
