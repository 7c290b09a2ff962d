# SPDX-License-Identifier: Apache-2.0
"""A daemon thread that does one job at a time, for calls that may never return.

A thread inside a hanging system call cannot be stopped; all that can be done is not to wait for it and not to
start another beside it. A daemon thread also lets the process end while the call still hangs, which a thread of
an executor does not.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Job(Generic[T]):
    """One call, begun or about to begin on a worker's thread."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._done = threading.Event()
        self._awaited = threading.Event()
        """Set when nobody has to wait for it any more."""
        self._outcome: T | None = None
        self._error: BaseException | None = None

    def wait(self, timeout: float) -> bool:
        """Whether it has ended, after at most `timeout` seconds, or sooner if it is abandoned."""
        self._awaited.wait(timeout)
        return self._done.is_set()

    def abandon(self) -> None:
        """Let those who wait for it go on without."""
        self._awaited.set()

    def result(self) -> T:
        """What the call returned, or raised; only of a job that has ended."""
        if self._error is not None:
            raise self._error
        return self._outcome  # type: ignore[return-value]  # None only where T allows it

    def run(self) -> None:
        """Make the call; for the worker alone."""
        try:
            self._outcome = self._call()
        except BaseException as error:  # noqa: BLE001  # it is raised again by result(), in the caller's thread
            self._error = error
        finally:
            self._done.set()
            self._awaited.set()


class Worker(Generic[T]):
    """Does jobs of one kind, never two at once; its thread starts with the first of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Job[T]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._last: Job[T] | None = None
        self._late: Job[T] | None = None

    @property
    def busy(self) -> bool:
        """Whether a job has begun and not ended."""
        return self._last is not None and not self._last.wait(0)

    def submit(self, call: Callable[[], T]) -> Job[T]:
        """Begin this call, unless a job is in flight: then that one is returned and the call is not made."""
        with self._lock:
            if self._last is not None and not self._last.wait(0):
                return self._last
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._last = Job(call)
            self._jobs.put(self._last)
            return self._last

    def ask(self, call: Callable[[], T], timeout: float) -> T | None:
        """What the call begun now, or the one in flight, returns within `timeout` seconds; else None.

        A call that was late once is not waited for again, and what it brings in the end is dropped as stale.
        """
        job = self.submit(call)
        if job is self._late:
            return None
        if job.wait(timeout):
            return job.result()
        self._late = job
        return None

    def abandon(self) -> None:
        """Let whoever waits for the job in flight go on without it, as if it were late."""
        if self._last is not None:
            self._last.abandon()

    def _work(self) -> None:
        while True:
            self._jobs.get().run()
