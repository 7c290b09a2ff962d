# SPDX-License-Identifier: Apache-2.0
"""The ledger adds up: to the byte, to the second, and to what the driver granted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.model import GpuUuid
from tests.property.ledger.account import (
    Played,
    Row,
    covered_seconds,
    difference,
    is_listed,
    is_use_told,
    own_of,
    really_free,
    total,
)
from tests.property.ledger.schedule import GPUS, SECOND

if TYPE_CHECKING:
    from otel_gpu_cgroup.model import Account, HeldTime
    from tests.property.ledger.host import Seen
    from tests.property.ledger.tally import Tally


def test_own_shares_are_what_the_processes_hold(played: Played, tally: Tally) -> None:
    for seen in played.seen:
        for row in played.rows:
            if not row.is_held(seen.step):
                continue
            own, works = own_of(seen, row), played.works(row, seen.step)
            assert (own is not None) == is_listed(row.gpu, seen.step)
            if own is not None:
                memories = [work.memory for work in works]
                assert own.memory == (None if None in memories else sum(filter(None, memories)))
                assert own.processes == len(works)
                tally.bytes_compared += 1


def test_own_shares_and_what_nobody_holds_are_the_devices_use_to_the_byte(played: Played, tally: Tally) -> None:
    for seen in played.seen:
        for gpu in GPUS:
            used = played.host.used(gpu, seen.step, seen.step.at)
            rows = [stats for report in seen.reports for stats in report.accelerators if stats.id == gpu]
            memories = [None if row.own is None else row.own.memory for row in rows]
            memories += [work.memory for work in played.works_without_a_row(gpu, seen.step)]
            known = [memory for memory in memories if memory is not None]
            is_told = is_use_told(gpu, seen.step) and len(known) == len(memories)
            rest = seen.rest.get(gpu)
            assert (gpu in seen.excesses) == (is_use_told(gpu, seen.step) and sum(known) > used)
            if is_told and sum(known) <= used:
                assert rest is not None
                assert sum(known) + rest == used
                tally.bytes_compared += 1
            else:
                assert rest is None
                tally.contradictions += is_told


def test_active_idle_and_unknown_are_the_time_held(played: Played, tally: Tally) -> None:
    tally.rows += len(played.rows)
    before: Seen | None = None
    for seen in played.seen:
        expected = {}
        for row in played.rows:
            ended = before is not None and row.is_held(before.step) and not row.is_held(seen.step)
            if row.is_held(seen.step) or (ended and row.key not in expected):
                expected[row.key] = float(played.held_seconds(row, seen.step.at))
        assert {key: total(time) for key, time in seen.held.items()} == pytest.approx(expected, rel=1e-12, abs=1e-9)
        assert all(min(time.active, time.idle, time.unknown) >= 0 for time in seen.held.values())
        tally.values += len(expected)
        before = seen


def test_accounts_have_what_their_rows_held_and_never_less_than_before(played: Played, tally: Tally) -> None:
    before: dict[Account, HeldTime] = {}
    for seen in played.seen:
        expected: dict[Account, float] = {}
        for row in played.rows:
            account = played.account(row, seen.step.at)
            held = float(played.held_seconds(row, seen.step.at))
            if account is not None and (held or row.is_held(seen.step)):
                expected[account] = expected.get(account, 0.0) + held
        found = {account: total(time) for account, time in seen.usage.items()}
        assert {account: time for account, time in found.items() if time or account in expected} == pytest.approx(
            expected, rel=1e-12, abs=1e-9
        )
        for account, time in before.items():
            now = seen.usage[account]
            assert (now.active, now.idle, now.unknown) >= (time.active, time.idle, time.unknown)
            assert min(now.active - time.active, now.idle - time.idle, now.unknown - time.unknown) >= 0
        before = dict(seen.usage)
        tally.values += len(found)


def test_time_held_by_somebody_and_by_nobody_is_all_time(played: Played, tally: Tally) -> None:
    for gpu in GPUS:
        rows = [row for row in played.rows if row.gpu == gpu]
        for before, now in played.steps():
            passed = (now.step.at - before.step.at) / SECOND
            credited = [_credited(row, before, now, rows) for row in rows if row.is_held(before.step)]
            assert all(0 <= seconds <= passed + 1e-9 for seconds in credited)
            free = passed * _free(rows, before, now)
            assert free + max(credited, default=0.0) == pytest.approx(passed, abs=1e-9)
            really = really_free(rows, before.step.at, now.step.at)
            if really is not None:
                assert free == pytest.approx(really, abs=1e-9)
                tally.steady += 1
            tally.intervals += 1


def _free(rows: list[Row], before: Seen, now: Seen) -> float:
    """Which part of the time nobody had the device: all, none, or half where the last who had it ended meanwhile."""
    holders = [row for row in rows if row.is_held(before.step)]
    if not holders:
        return 1.0
    return 0.0 if any(row.is_held(now.step) for row in holders) else 0.5


def _credited(row: Row, before: Seen, now: Seen, rows: list[Row]) -> float:
    """Seconds that the ledger gave to a row that was held; where a new life has its name, its account has its end."""
    is_anew = any(other.key == row.key and other != row and other.is_held(now.step) for other in rows)
    if is_anew:
        return (now.step.at - before.step.at) / SECOND / 2
    return total(now.held[row.key]) - total(before.held[row.key])


def test_active_time_is_what_the_driver_granted_within_its_samples(played: Played, tally: Tally) -> None:
    for row in played.rows:
        active = error = 0.0
        for before, now in played.steps():
            if not (row.is_held(before.step) and row.is_held(now.step)):
                continue
            gained, covered = difference(now.held[row.key], before.held[row.key]), covered_seconds(row, before, now)
            assert gained.active <= covered + 1e-9
            assert gained.active + gained.idle == pytest.approx(covered, abs=1e-9)
            tally.add_time(gained)
            if covered:
                error += _compare(played, row, now, gained.active, covered, tally)
                active += gained.active
        granted = sum(played.granted(work, 0, played.seen[-1].step.at) for work in played.all_works(row))
        assert active <= granted + error + 1e-9


def _compare(played: Played, row: Row, now: Seen, active: float, covered: float, tally: Tally) -> float:
    """Hold the active time of one cycle against the log; the seconds by which it may be more than was granted."""
    span = now.readings[GpuUuid(row.gpu)].covered or 0.0
    part, error = covered / span, played.sampling_error(row, now.step, covered, active)
    least, most = (
        part * played.read(row, now.step, round(span * SECOND), strictly=strictly) for strictly in (True, False)
    )
    reused = played.reused(row, now.step)
    assert least - error <= active + 1e-9
    assert active <= most + reused + error + 1e-9
    tally.compared += 1
    tally.readable += least
    return reused + error
