# SPDX-License-Identifier: Apache-2.0
"""Pure: the driver's lists of processes and samples of their use become one entry a process.

What nobody said is None: a process without a sample was idle only where the driver tells of those that were not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import GpuProcess
from otel_gpu_cgroup.nvidia.nvml.interface import ListedProcess
from otel_gpu_cgroup.nvidia.readings.duty_cycle import LONGEST_SAMPLE, MAX_PERCENT, SLACK, WINDOW, Instant, age_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_gpu_cgroup.nvidia.nvml import ProcessSample

    Use = Mapping[int, Sequence[tuple[float, float]]]
    """By pid, age in seconds and percent of every credible sample."""

_MOST_PID: Final = 2**31 - 1


class ProcessUse:
    """What is remembered of the processes of one device from pass to pass."""

    def __init__(self) -> None:
        self._read_at: float | None = None
        self._seen = 0
        """The newest stamp of a process so far."""
        self._newest = 0
        """The newest stamp of the device's own samples, which to the driver are the same ones; 0: there was none."""
        self._since = 0
        self._before = 0.0
        """Seconds of what is asked for that lie before the previous pass."""

    def ask_from(self, newest: int, now: Instant) -> int:
        """The driver's stamp to ask from, given the newest one of the device's own samples (0: there is none).

        The driver answers with the mean of all that it keeps from there on. In the first pass these are 10 s, then
        what no pass has seen: samples may come late by the length of one, and without any the device was idle.
        """
        base, back = (newest, WINDOW) if self._read_at is None else (self._newest, LONGEST_SAMPLE)
        earliest = max(base - round(back * 1e6), 0)
        self._before = back if earliest > self._seen else 0.0
        since = max(earliest, self._seen)
        is_past = age_of(since, now) >= -SLACK  # else the clock was set back
        self._since, self._newest = since if is_past else 0, newest
        return self._since

    def join(
        self,
        listed: Iterable[ListedProcess] | None,
        samples: Sequence[ProcessSample] | None,
        ages: Sequence[tuple[float, float]],
        now: Instant,
        memory_total: int | None,
    ) -> tuple[tuple[GpuProcess, ...] | None, float | None]:
        """Every process, and the seconds up to now that their utilization is the mean of; None for what is not told.

        `ages` are those of the device's own samples. Call it in every pass, after `ask_from`.
        """
        elapsed = None if self._read_at is None else now.boot - self._read_at
        self._read_at = now.boot
        use = None if samples is None else self._use(samples, ages, elapsed, now)
        is_told = use is not None and not _is_awaited(ages, elapsed)
        if listed is None:
            return None, None
        merged = merge(listed, memory_total)
        processes = tuple(_process(merged[pid], use, is_told=is_told, now=now) for pid in sorted(merged))
        return processes, kept_seconds(ages, elapsed) if is_told and elapsed is not None else None

    def _use(
        self,
        samples: Sequence[ProcessSample],
        ages: Sequence[tuple[float, float]],
        elapsed: float | None,
        now: Instant,
    ) -> Use:
        """What samples tell of the time since the previous pass."""
        past = (sample.stamp for sample in samples if age_of(sample.stamp, now) >= -SLACK)
        self._seen = max(past, default=self._seen)
        use = recent(samples, self._since, WINDOW if elapsed is None else elapsed + LONGEST_SAMPLE, now)
        stretch = 1.0 if elapsed is None else _stretch(ages, elapsed, self._before)
        return {
            pid: [(age, min(percent * stretch, MAX_PERCENT)) for age, percent in found] for pid, found in use.items()
        }


def merge(listed: Iterable[ListedProcess], memory_total: int | None) -> dict[int, ListedProcess]:
    """One entry a process of those that can be; a list repeats another's bytes, so the most of them is what it has."""
    merged: dict[int, ListedProcess] = {}
    for entry in listed:
        if not 0 < entry.pid <= _MOST_PID:
            continue
        known = merged.get(entry.pid, entry)
        memories = [it.memory for it in (known, entry) if it.memory is not None]
        possible = [memory for memory in memories if memory_total is None or memory <= memory_total]
        is_mps = known.is_mps or entry.is_mps
        merged[entry.pid] = ListedProcess(entry.pid, max(possible, default=None), is_mps)
    return merged


def recent(samples: Iterable[ProcessSample], since: int, window: float, now: Instant) -> Use:
    """The samples of the last `window` seconds with stamps after `since`; a process of which none can be has none."""
    use: dict[int, list[tuple[float, float]]] = {}
    for sample in samples:
        age = age_of(sample.stamp, now)
        if sample.stamp <= since or age > window:
            continue
        kept = use.setdefault(sample.pid, [])
        if age >= -SLACK and 0 <= sample.percent <= MAX_PERCENT:
            kept.append((age, sample.percent))
    return use


def kept_seconds(ages: Sequence[tuple[float, float]], span: float) -> float:
    """How much of the last `span` seconds the driver still has samples of; all of it when it keeps none.

    It keeps none of a GPU that is idle for long.
    """
    oldest = max((age for age, _ in ages), default=span)
    return min(max(oldest, 0.0), span)


def _stretch(ages: Sequence[tuple[float, float]], elapsed: float, before: float) -> float:
    """What makes a mean that has `before` idle seconds in it one of the time since the previous pass."""
    kept = kept_seconds(ages, elapsed)
    return kept_seconds(ages, elapsed + before) / kept if kept > 0 else 1.0


def _is_awaited(ages: Sequence[tuple[float, float]], elapsed: float | None) -> bool:
    """Whether the driver may not have sampled at all since the previous pass, as that was too short ago."""
    newest = min((age for age, _ in ages), default=None)
    return elapsed is not None and newest is not None and elapsed < newest <= LONGEST_SAMPLE


def _process(entry: ListedProcess, use: Use | None, *, is_told: bool, now: Instant) -> GpuProcess:
    """The time of an MPS client is often its server's for the driver: without a sample nobody can tell it."""
    found = None if use is None else use.get(entry.pid)
    if found:
        mean = sum(percent for _, percent in found) / len(found)
        oldest = max(age for age, _ in found)
        return GpuProcess(entry.pid, entry.memory, mean / 100, now.boot - oldest)
    is_idle = is_told and found is None and not entry.is_mps
    return GpuProcess(entry.pid, entry.memory, 0.0 if is_idle else None)
