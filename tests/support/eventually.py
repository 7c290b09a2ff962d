# SPDX-License-Identifier: Apache-2.0
"""Waits for what will be true, by asking again and again until a deadline; never by sleeping for luck."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PATIENCE_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.02


def eventually(ask: Callable[[], T | None], what: Callable[[], object] | str = "") -> T:
    """The first answer that is true; fails after a deadline, with `what` (asked only then) in the message."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        if answer := ask():
            return answer
        if time.monotonic() > deadline:
            said = what() if callable(what) else what
            raise AssertionError(f"not true within {PATIENCE_SECONDS:g} s: {said}")
        time.sleep(_PAUSE_SECONDS)
