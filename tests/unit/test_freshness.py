# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time

from otel_gpu_cgroup.freshness import Freshness
from otel_gpu_cgroup.model import DeviceInventory, NodeStats


def a_cycle() -> NodeStats:
    return NodeStats(
        taken_at=time.time(),
        duration=0.0,
        sealed_at=time.monotonic(),
        cgroup_mode=None,
        inventory=DeviceInventory(),
    )


def test_one_cycle_serves_everybody_within_its_age() -> None:
    freshness = Freshness(a_cycle, max_age=3600)
    first = freshness.latest(10)
    assert first is not None
    assert freshness.latest(10) is first
    assert freshness.last is first


def test_an_old_cycle_is_followed_by_another() -> None:
    freshness = Freshness(a_cycle, max_age=-1)
    first = freshness.latest(10)
    assert first is not None
    assert freshness.latest(10) is not first


def test_a_cycle_that_was_declared_expired_serves_nobody_however_young() -> None:
    freshness = Freshness(a_cycle, max_age=3600)
    first = freshness.latest(10)
    freshness.expire()
    second = freshness.latest(10)
    assert second is not None
    assert second is not first
    assert freshness.latest(10) is second


def test_a_cycle_that_does_not_end_in_time_gives_nothing_rather_than_the_old_one() -> None:
    release = threading.Event()
    slow = iter((False, True))

    def cycle() -> NodeStats:
        if next(slow):
            release.wait(10)
        return a_cycle()

    freshness = Freshness(cycle, max_age=-1)
    first = freshness.latest(10)
    assert first is not None
    assert freshness.latest(0.01) is None
    assert freshness.last is first
    release.set()
