# SPDX-License-Identifier: Apache-2.0
"""The host's /proc as the schedule has it, for the product to find the processes' containers in."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.property.ledger.schedule import Schedule, Step

_TICK: Final = 10_000
"""Microseconds in which the kernel counts when a process began."""
_OUTSIDE: Final = "/system.slice/nvidia-persistenced.service"


class ProcTree:
    """Folders of processes; one stays as it is for as long as its process lives."""

    def __init__(self, root: Path, schedule: Schedule) -> None:
        self._proc = root / "proc"
        self._schedule = schedule
        self._there: dict[int, tuple[int, str]] = {}
        """By pid, when the process began and its cgroup."""

    def set(self, step: Step) -> None:
        """What /proc has after the NVML pass of this step.

        Of the processes that end in between, those with an even pid leave it to another container's new process.
        """
        there = dict(self._living(step)) | dict(self._newcomers(step))
        for pid, process in self._there.items():
            if there.get(pid) != process:
                shutil.rmtree(self._proc / str(pid))
        for pid, process in there.items():
            if self._there.get(pid) != process:
                self._write(pid, *process)
        self._there = there

    def _living(self, step: Step) -> Iterable[tuple[int, tuple[int, str]]]:
        for work in self._schedule.works:
            if work.is_there(step.at) and not work.is_hidden and work.pid not in step.gone:
                yield work.pid, (work.begin, _OUTSIDE if work.life is None else _cgroup(work.life.key, work.pid))

    def _newcomers(self, step: Step) -> Iterable[tuple[int, tuple[int, str]]]:
        keys = [life.key for life in self._schedule.lives if life.is_there(step.at)]
        for pid in step.gone:
            if keys and pid % 2 == 0:
                yield pid, (step.at + 3 * _TICK, _cgroup(keys[pid % len(keys)], pid))

    def _write(self, pid: int, begin: int, cgroup: str) -> None:
        folder = self._proc / str(pid)
        folder.mkdir(parents=True)
        fields = ["S", *["0"] * 18, str(begin // _TICK), *["0"] * 30]
        (folder / "stat").write_text(f"{pid} (python) (3)) {' '.join(fields)}\n")
        (folder / "cgroup").write_text(f"0::{cgroup}\n")


def _cgroup(key: str, pid: int) -> str:
    """A container's own, or one inside it."""
    return f"/{key}/init.scope" if pid % 3 == 0 else f"/{key}"
