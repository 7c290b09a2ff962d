# SPDX-License-Identifier: Apache-2.0
"""Pure: text of unknown origin, made fit for a line of a log, a terminal or an attribute."""

from __future__ import annotations


def printable(text: str, limit: int = 1024) -> str:
    """The text with everything escaped that is no UTF-8, breaks a line or moves a cursor; cut at `limit` characters."""
    cut = text if len(text) <= limit else f"{text[: limit - 3]}..."
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in cut)
