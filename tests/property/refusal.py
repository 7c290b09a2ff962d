# SPDX-License-Identifier: Apache-2.0
"""A parser's answer to any text: its value, or its refusal in one line that a log and a terminal survive."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from otel_gpu_cgroup.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def parsed_or_refused(parse: Callable[[str], T], text: str) -> T | None:
    """What was parsed; None when it was refused as it should be. Any other error is a defect and raised."""
    try:
        return parse(text)
    except ParseError as refusal:
        message = str(refusal)
    assert message.isprintable()
    assert message.encode()
    assert len(message) < 1000
    return None
