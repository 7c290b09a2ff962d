# SPDX-License-Identifier: Apache-2.0
"""Reads of a Slurm step what its cgroup's path does not tell: its job's number and whose job it is.

With cgroup v2 the daemon of a step is in its `slurm` cgroup and shows both numbers as its command line; the step's
tasks are below `user` and belong to the job's owner.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.containers.naming.texts import parse_step_title
from otel_gpu_cgroup.errors import HostUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.host import Files, HostPaths
    from otel_gpu_cgroup.model import Container, SlurmStep

_MOST_TASKS: Final = 1000
_MOST_PROCESSES: Final = 1000


class SlurmSteps:
    """Asks the processes of steps."""

    def __init__(self, host: HostPaths, files: Files) -> None:
        self._proc = os.fspath(host.proc)
        self._files = files

    def told(self, container: Container) -> Container:
        """The step with its job, its owner and its name, as far as its processes tell them. Never raises."""
        folder, step = _folder(container), container.slurm
        if folder is None or step is None or None not in (step.job, step.uid):
            return container
        step = replace(
            step,
            job=step.job or self._job(folder, step),
            uid=self._owner(folder) if step.uid is None else step.uid,
        )
        name = container.name if step.job is None else f"slurm-{step.job}.{step.step}"
        return container if step == container.slurm else replace(container, slurm=step, name=name)

    def _job(self, folder: str, step: SlurmStep) -> str | None:
        for process in self._processes(f"{folder}/slurm"):
            try:
                title = parse_step_title(self._files.read_text(f"{self._proc}/{process}/cmdline"))
            except HostUnreadable:
                continue
            if title is not None and title[1] == step.step:
                return title[0]
        return None

    def _owner(self, folder: str) -> int | None:
        """Of the first process of a task that is not root's: a step is set up by root."""
        for task in self._tasks(f"{folder}/user"):
            for process in self._processes(task):
                try:
                    uid = self._files.read_status(f"{self._proc}/{process}").st_uid
                except HostUnreadable:
                    continue
                if uid != 0:
                    return uid
        return None

    def _tasks(self, folder: str) -> Iterator[str]:
        """The cgroups of tasks, and that above them, in which processes are where Slurm does not confine tasks."""
        try:
            names = self._files.read_names(folder, _MOST_TASKS)
        except HostUnreadable:
            return
        yield from (f"{folder}/{name}" for name in names if name.startswith("task_"))
        yield folder

    def _processes(self, folder: str) -> list[str]:
        try:
            words = self._files.read_text(f"{folder}/cgroup.procs").split()
        except HostUnreadable:
            return []
        return [word for word in words if word.isascii() and word.isdigit() and word != "0"][:_MOST_PROCESSES]


def _folder(container: Container) -> str | None:
    """The step's own folder, above that of the task which speaks for it; None where no hierarchy shows it."""
    for folder in (container.unified, container.devices):
        above, found, _ = f"{folder or ''}/".rpartition(f"{container.cgroup}/")
        if found:
            return f"{above}{container.cgroup}"
    return None
