# SPDX-License-Identifier: Apache-2.0
"""Pure: what a device program can load and store: the request, and a stack of 512 bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

_STACK: Final = 512


@dataclass(frozen=True, slots=True)
class Pointer:
    """A place in one of the two; its number is not known, only how far from the region's base it is."""

    region: Literal["context", "stack"]
    offset: int


Value = int | Pointer | None
"""What a register or a byte holds; None is what nothing was written to."""


class Memory:
    """The memory of one run. An access out of bounds, or to what was never written, is a TypeError or IndexError."""

    def __init__(self, context: bytes) -> None:
        self._context = context
        self._stack: dict[int, Value] = {}
        """By distance from the stack's base, always negative: a byte each, and a pointer where its first byte is."""

    def load(self, base: Pointer, offset: int, width: int) -> Value:
        """The little-endian number of so many bytes, or the pointer that was stored there."""
        at = base.offset + offset
        if base.region == "context":
            if at < 0 or at + width > len(self._context):
                raise IndexError(at)
            return int.from_bytes(self._context[at : at + width], "little")
        first = self._stack.get(at)
        if isinstance(first, Pointer) and width == 8:
            return first
        # a pointer's bytes, or one that is missing, is no number that bytes() takes
        return int.from_bytes(bytes(self._stack.get(place) for place in range(at, at + width)), "little")  # type: ignore[misc]

    def store(self, base: Pointer, offset: int, width: int, value: Value) -> None:
        """Store the lowest bytes of a number, or a whole pointer."""
        at = base.offset + offset
        if base.region != "stack" or at < -_STACK or at + width > 0:
            raise IndexError(at)
        if value is None or (isinstance(value, Pointer) and width != 8):
            raise TypeError(value)
        self._forget_pointers(at, width)
        if isinstance(value, Pointer):
            self._stack.update(dict.fromkeys(range(at, at + width)))
            self._stack[at] = value
            return
        self._stack.update(enumerate((value & ((1 << width * 8) - 1)).to_bytes(width, "little"), at))

    def _forget_pointers(self, at: int, width: int) -> None:
        """A pointer of which a byte is overwritten is none any more."""
        for place in range(at - 7, at + width):
            if isinstance(self._stack.get(place), Pointer):
                self._stack[place] = None
