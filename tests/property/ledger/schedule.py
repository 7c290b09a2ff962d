# SPDX-License-Identifier: Apache-2.0
"""A made-up hour of a host: who lives when, which processes they start on which GPU, and when somebody looks.

All times are microseconds since boot.
"""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from tests.fakes.nvml_world import FakeGrant

if TYPE_CHECKING:
    from collections.abc import Sequence

SECOND: Final = 1_000_000
MIB: Final = 1 << 20
GPUS: Final = ("GPU-a", "GPU-b", "GPU-c")
_START: Final = 5000 * SECOND
_PIDS: Final = tuple(range(101, 141))
"""Few, so that most of them are given to several processes in turn."""


class Gap(enum.Enum):
    """Why a container has no row on a device that it should have."""

    LOST = "lost"
    """It is denied, and reported as that."""
    DENIED = "denied"
    """Its rules were changed."""


class Trouble(enum.Enum):
    """What a GPU does not answer in one pass."""

    LOST = "lost"
    LISTS = "lists"
    SAMPLES = "samples"
    MEMORY = "memory"
    HANG = "hang"


@dataclass(frozen=True, slots=True)
class Life:
    """One container from its begin to its end."""

    key: str
    inode: int
    begin: int
    end: int
    gpus: tuple[str, ...]
    namespace: str | None
    named_from: int
    gaps: tuple[tuple[str, int, int, Gap], ...] = ()
    """GPU, from, until, why."""

    def is_there(self, at: int) -> bool:
        return self.begin <= at < self.end

    def gap(self, gpu: str, at: int) -> Gap | None:
        return next((gap for its, begin, end, gap in self.gaps if its == gpu and begin <= at < end), None)

    def holds(self, gpu: str, at: int) -> bool:
        return self.is_there(at) and gpu in self.gpus and self.gap(gpu, at) is None


@dataclass(frozen=True, slots=True)
class Work:
    """One process on one GPU."""

    pid: int
    begin: int
    end: int
    life: Life | None
    """None for a process of the host."""
    is_hidden: bool
    """Whether this PID namespace does not show it."""
    gpu: str
    memory: int | None
    kinds: tuple[Literal["compute", "graphics", "mps"], ...]
    """The lists that it is in."""
    grants: tuple[FakeGrant, ...]

    def is_there(self, at: int) -> bool:
        return self.begin <= at < self.end


@dataclass(frozen=True, slots=True)
class Step:
    """One cycle."""

    at: int
    is_silent: bool
    """Whether NVML as a whole says nothing in time."""
    troubles: dict[str, Trouble]
    gone: frozenset[int]
    """Pids that end between the NVML pass and the look at /proc."""
    rest: dict[str, int]
    """Bytes in use beside all processes; negative where the driver's numbers contradict each other."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """All of it."""

    seed: int
    lives: tuple[Life, ...]
    works: tuple[Work, ...]
    steps: tuple[Step, ...]
    lag: dict[str, int]
    clock: dict[str, Literal["epoch", "boottime"]]


def make_schedule(seed: int, steps: int = 30) -> Schedule:
    """The same for the same seed."""
    chance = random.Random(seed)
    times = _times(chance, steps)
    lives = _lives(chance, times[-1])
    return Schedule(
        seed,
        lives,
        _Works(chance, times[-1]).make(lives),
        tuple(_step(chance, at) for at in times),
        lag={gpu: chance.choice((0, 0, chance.randrange(SECOND))) for gpu in GPUS},
        clock={gpu: chance.choice(("epoch", "boottime")) for gpu in GPUS},
    )


def _times(chance: random.Random, steps: int) -> list[int]:
    """One in ten is missed: the next comes as late as two."""
    usual = chance.choice((2, 5, 10, 15)) * SECOND
    times = [_START]
    while len(times) < steps:
        missed = usual if chance.random() < 0.1 else 0
        times.append(times[-1] + missed + chance.randrange(usual // 2, usual * 3 // 2))
    return times


def _step(chance: random.Random, at: int) -> Step:
    troubles = {gpu: chance.choice(list(Trouble)) for gpu in GPUS if chance.random() < 0.1}
    if sum(trouble is Trouble.HANG for trouble in troubles.values()) and chance.random() < 0.5:
        troubles = {}  # a hang takes a while
    return Step(
        at,
        is_silent=chance.random() < 0.06,
        troubles=troubles,
        gone=frozenset(pid for pid in _PIDS if chance.random() < 0.03),
        rest={gpu: chance.choice((0, chance.randrange(1 << 30), -chance.randrange(1, 64))) for gpu in GPUS},
    )


def _lives(chance: random.Random, end: int) -> tuple[Life, ...]:
    lives: list[Life] = []
    for number in range(chance.randint(1, 7)):
        begin = chance.choice((_START - 60 * SECOND, chance.randrange(_START, end)))
        while begin < end:  # the same name may be given again
            until = chance.choice((end + SECOND, begin + chance.randrange(SECOND, end - _START + SECOND)))
            lives.append(_life(chance, f"c{number}", 100 * number + len(lives), begin, until))
            if chance.random() < 0.5:
                break
            begin = until + chance.randrange(5 * SECOND)
    return tuple(lives)


def _life(chance: random.Random, key: str, inode: int, begin: int, end: int) -> Life:
    gpus = tuple(gpu for gpu in GPUS if chance.random() < 0.6)
    gaps = []
    for gpu in gpus:
        if chance.random() < 0.3:
            first = chance.randrange(begin, end)
            gaps.append((gpu, first, first + chance.randrange(1, 60 * SECOND), chance.choice(list(Gap))))
    named_from = begin + chance.choice((0, 0, chance.randrange(40 * SECOND)))
    return Life(key, inode, begin, end, gpus, chance.choice((None, "web", "research")), named_from, tuple(gaps))


@dataclass(slots=True)
class _Works:
    """Gives out pids and the GPUs' time, each to one at a time."""

    chance: random.Random
    end: int
    works: list[Work] = field(default_factory=list)

    def make(self, lives: Sequence[Life]) -> tuple[Work, ...]:
        for life in lives:
            for _ in range(self.chance.randint(0, 12) if life.gpus else 0):
                self._start(life, life.gpus, life.begin, min(life.end, self.end))
        for _ in range(self.chance.randint(0, 5)):
            self._start(None, GPUS, _START - 20 * SECOND, self.end)
        return tuple(self.works)

    def _start(self, life: Life | None, gpus: Sequence[str], first: int, last: int) -> None:
        begin = self.chance.randrange(first, last)
        longest = self.chance.choice((SECOND, 10 * SECOND, last - first, 4 * (last - first)))
        end = min(last, begin + self.chance.randint(1, longest))
        free = set(_PIDS) - {work.pid for work in self.works if work.begin <= end and begin <= work.end}
        if not free:
            return
        pid, is_hidden = self.chance.choice(sorted(free)), life is None and self.chance.random() < 0.3
        for gpu in self.chance.sample(list(gpus), self.chance.randint(1, len(gpus))):
            self.works.append(
                Work(
                    pid,
                    begin,
                    end,
                    life,
                    is_hidden,
                    gpu,
                    memory=None if self.chance.random() < 0.06 else self.chance.randrange(1 << 33),
                    kinds=self.chance.choice(
                        (("compute",), ("compute",), ("graphics",), ("compute", "graphics"), ("compute", "mps"))
                    ),
                    grants=self._grants(pid, gpu, begin, end),
                )
            )

    def _grants(self, pid: int, gpu: str, begin: int, end: int) -> tuple[FakeGrant, ...]:
        """Up to four stretches; never more of the GPU than is left."""
        grants: list[FakeGrant] = []
        for _ in range(self.chance.randint(0, 4)):
            start = self.chance.randrange(begin, end)
            until = min(end, start + self.chance.choice((self.chance.randrange(1, 20 * SECOND), end)))
            others = (grant for work in self.works if work.gpu == gpu for grant in work.grants)
            taken = sum(it.sm for it in (*others, *grants) if it.start < until and start < it.end)
            if taken < 100:
                grants.append(FakeGrant(pid=pid, sm=self.chance.randint(1, 100 - taken), start=start, end=until))
        return tuple(grants)
