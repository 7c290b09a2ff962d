# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import pytest

from otel_gpu_cgroup.worker import Worker


def test_a_job_in_flight_is_returned_instead_of_beginning_another() -> None:
    worker: Worker[int] = Worker("test")
    release = threading.Event()
    first = worker.submit(lambda: 1 if release.wait(10) else 0)
    second = worker.submit(lambda: 2)
    assert second is first
    assert worker.busy
    release.set()
    assert first.wait(10)
    assert first.result() == 1
    assert not worker.busy


def test_nobody_waits_twice_for_a_late_job_nor_takes_what_it_brings() -> None:
    worker: Worker[str] = Worker("test")
    release = threading.Event()
    assert worker.ask(lambda: "stale" if release.wait(10) else "", timeout=0.01) is None
    late = worker.submit(lambda: "never begun")
    # were it waited for, this would last the hour
    assert worker.ask(lambda: "never begun", timeout=3600) is None
    release.set()
    assert late.wait(10)
    assert worker.ask(lambda: "fresh", timeout=10) == "fresh"


def test_who_waits_goes_on_without_a_job_that_is_abandoned() -> None:
    worker: Worker[str] = Worker("test")
    release = threading.Event()
    worker.submit(lambda: "late" if release.wait(10) else "")
    threading.Timer(0.05, worker.abandon).start()
    assert worker.ask(lambda: "never begun", timeout=3600) is None
    release.set()


def test_an_exception_is_raised_where_the_result_is_taken() -> None:
    worker: Worker[int] = Worker("test")
    with pytest.raises(ZeroDivisionError):
        worker.ask(lambda: 1 // 0, timeout=10)
    assert worker.ask(lambda: 7, timeout=10) == 7


def test_no_thread_starts_before_the_first_job() -> None:
    before = threading.active_count()
    Worker("test")
    assert threading.active_count() == before
