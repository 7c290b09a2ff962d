# SPDX-License-Identifier: Apache-2.0
"""Names containers, cycle after cycle: waits for a name that may come, and then never changes it. Only reads.

The attributes of a series must not change while it lives. So a container whose names may yet come is marked
(`is_named`) and held back for two cycles at most, and with the third keeps what it has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from otel_gpu_cgroup import host as host_files
from otel_gpu_cgroup.containers.identity.nesting import find_enclosing
from otel_gpu_cgroup.containers.naming.names import has_names, named
from otel_gpu_cgroup.containers.naming.slurm_steps import SlurmSteps
from otel_gpu_cgroup.containers.naming.sources import DOCKERS, NameSources
from otel_gpu_cgroup.model import Problem, Runtime, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_gpu_cgroup.host import Files, HostPaths
    from otel_gpu_cgroup.model import Container

_MOST_CYCLES: Final = 2
"""In so many cycles a name is waited for."""
_OF_ENGINES_WITH_NAMES: Final = DOCKERS | {Runtime.PODMAN}
_Mark: TypeAlias = "tuple[str, int | None]"
"""What tells one life of a container from the next."""


@dataclass(slots=True)
class _Record:
    """What is known of one container."""

    given: Container
    named: Container | None
    """None for one that only holds a pod's place."""
    cycles: int
    """In how many it was looked for."""
    is_up: bool | None
    """Whether it was given a name; None for one that does not want one, or still waits."""
    problems: tuple[Problem, ...] = ()

    @property
    def is_final(self) -> bool:
        return self.named is None or self.named.is_named


class Naming:
    """Gives the containers of a host the names that kubelet, the engines and Slurm left in files."""

    def __init__(self, host: HostPaths, files: Files = host_files) -> None:
        self._sources = NameSources(host, files)
        self._steps = SlurmSteps(host, files)
        self._records: dict[_Mark, _Record] = {}
        """Of the last cycle."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why containers that live are without names, or which files were not believed."""
        return tuple(dict.fromkeys(problem for record in self._records.values() for problem in record.problems))

    @property
    def is_up(self) -> bool | None:
        """Whether every container that wants a name has got one; None while none here does."""
        told = {record.is_up for record in self._records.values()} - {None}
        return None if not told else False not in told

    def name(self, containers: Sequence[Container]) -> list[Container]:
        """The containers with their names, without those that only hold a pod's place; an unchanged one is the same."""
        known, self._records = self._records, {}
        crowds: Counter[str] | None = None
        by_path: dict[str, Container] = {}
        result = []
        for container in containers:
            mark = (container.id or container.cgroup, container.inode)
            record = known.get(mark)
            if record is None or not record.is_final:
                if crowds is None:
                    self._sources.begin_cycle()
                    crowds = Counter(other.pod.uid for other in containers if other.pod is not None)
                    by_path = {other.cgroup: other for other in containers}
                if find_enclosing(container, by_path) is None:
                    record = self._looked_at(container, record, crowds)
                else:  # the host's files name the host's containers
                    record = _Record(container, _final(container), 1, is_up=None)
            elif record.given is not container and record.given != container:
                record = replace(record, given=container, named=_as_before(container, record.named))
            self._records[mark] = record
            if record.named is not None:
                result.append(record.named)
        return result

    def _looked_at(self, container: Container, before: _Record | None, crowds: Counter[str]) -> _Record:
        cycles = 1 if before is None else before.cycles + 1
        is_last = cycles > _MOST_CYCLES
        if container.slurm is not None:
            return self._step(container, cycles, is_last=is_last)
        if has_names(container) or (container.id is None and container.pod is None):
            return _Record(container, _final(container), cycles, is_up=None)
        is_alone = is_last and container.pod is not None and crowds[container.pod.uid] == 1
        answer = self._sources.ask(container, is_alone=is_alone)
        found, problems = named(container, answer.told), tuple(answer.problems)
        if answer.told.is_sandbox:
            return _Record(container, None, cycles, is_up=None, problems=problems)
        if answer.is_awaited and not is_last and not has_names(found):
            return _Record(container, replace(found, is_named=False), cycles, is_up=None, problems=problems)
        is_up = _is_up(found, is_source_here=answer.is_source_here)
        if is_up is False:
            problems = (*problems, _nameless(found, is_source_here=answer.is_source_here))
        return _Record(container, _final(found), cycles, is_up, problems)

    def _step(self, container: Container, cycles: int, *, is_last: bool) -> _Record:
        found = self._steps.told(container)
        step = found.slurm
        if step is None or (None in (step.job, step.uid) and not is_last):
            return _Record(container, replace(found, is_named=False), cycles, is_up=None)
        if container.slurm is not None and container.slurm.job is not None:
            return _Record(container, _final(found), cycles, is_up=None)
        is_up = step.job is not None
        problems = () if is_up else (_nameless(found, is_source_here=True),)
        return _Record(container, _final(found), cycles, is_up, problems)


class OwnNaming:
    """Leaves the own container as it was found: from inside nothing tells more than its environment has."""

    problems: tuple[Problem, ...] = ()
    is_up: bool | None = None

    def name(self, containers: Sequence[Container]) -> list[Container]:
        """The same."""
        return list(containers)


def _is_up(container: Container, *, is_source_here: bool) -> bool | None:
    """Whether it has a name by which people know it; pods have one everywhere, engines' containers may have none."""
    if container.pod is not None:
        return container.pod.name is not None
    if container.name is not None:
        return True
    return False if is_source_here and container.runtime in _OF_ENGINES_WITH_NAMES else None


def _nameless(container: Container, *, is_source_here: bool) -> Problem:
    if not is_source_here:
        message = "no source of the names of pods is here; let the host's /var/log/pods and /run/containerd be seen"
        return Problem(Stage.NAMES, "pods", message)
    what = "name" if container.slurm is None else "job's number"
    message = f"nothing has told its {what} in {_MOST_CYCLES + 1} cycles; it is reported without until it ends"
    return Problem(Stage.NAMES, container.cgroup, message)


def _final(container: Container) -> Container:
    return container if container.is_named else replace(container, is_named=True)


def _as_before(container: Container, before: Container | None) -> Container | None:
    """A container whose place has changed, with the names that it has had."""
    if before is None:
        return None
    return replace(container, name=before.name, pod=before.pod, slurm=before.slurm, is_named=True)
