# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from otel_gpu_cgroup.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain €", "plain €"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\udcff", r"\udcff"),
        ("\u202e", r"\u202e"),
        ("x" * 12, "x" * 7 + "..."),
    ],
    ids=["text", "lines", "cursor", "no UTF-8", "right to left", "long"],
)
def test_what_could_break_a_line_is_escaped_and_what_is_long_is_cut(text: str, shown: str) -> None:
    assert printable(text, limit=10) == shown
