# SPDX-License-Identifier: Apache-2.0
"""Whether a pid that the driver tells means anything to who hears it: in lists, and in samples."""

from __future__ import annotations

from typing import Final

import pytest

from otel_gpu_cgroup.containers.processes.pids import INITIAL_NAMESPACE, judge_pids, parse_driver_version

INNER: Final = "pid:[4026532201]"
OTHER: Final = "pid:[4026532999]"


@pytest.mark.parametrize(
    ("own", "hosts", "driver", "told"),
    [
        (INITIAL_NAMESPACE, None, None, (True, True)),
        (INITIAL_NAMESPACE, INITIAL_NAMESPACE, "470.82.01", (True, True)),
        (INITIAL_NAMESPACE, OTHER, "580.65.06", (False, False)),  # that /proc is of some container
        (INNER, None, "580.65.06", (False, False)),
        (INNER, INITIAL_NAMESPACE, "580.65.06", (False, False)),
        (None, None, "580.65.06", (False, False)),
        (None, INITIAL_NAMESPACE, "580.65.06", (False, False)),
        (INNER, INNER, "580.65.06", (True, True)),  # a node inside a container, whose pids the driver translates
        (INNER, INNER, "550.54.14", (True, False)),
        (INNER, INNER, "470.82.01", (False, False)),
    ],
)
def test_in_scope_node(own: str | None, hosts: str | None, driver: str | None, told: tuple[bool, bool]) -> None:
    meaning = judge_pids(own, hosts, driver, own_only=False)
    assert (meaning.of_lists, meaning.of_samples) == told
    assert (meaning.reason is None) is all(told)


@pytest.mark.parametrize(
    ("own", "driver", "told"),
    [
        (INITIAL_NAMESPACE, None, (True, True)),
        (INNER, None, (False, False)),
        (INNER, "", (False, False)),
        (INNER, "garbage", (False, False)),
        (INNER, "470.256.02", (False, False)),
        (INNER, "535.112.99", (False, False)),
        (INNER, "535.113.01", (True, False)),
        (INNER, "535.113", (True, False)),
        (INNER, "550.54.14", (True, False)),
        (INNER, "575.56.99", (True, False)),
        (INNER, "575.57.08", (True, True)),
        (INNER, "580.65.06", (True, True)),
        (INNER, "1000.1", (True, True)),
        (None, "580.65.06", (False, False)),
    ],
)
def test_in_scope_self(own: str | None, driver: str | None, told: tuple[bool, bool]) -> None:
    meaning = judge_pids(own, None, driver, own_only=True)
    assert (meaning.of_lists, meaning.of_samples) == told


def test_the_reason_says_what_to_do() -> None:
    hidden = judge_pids(INNER, None, None, own_only=False).reason or ""
    assert hidden.startswith("needs the host PID namespace")
    assert "hostPID" in hidden
    assert "535.113" in (judge_pids(INNER, None, "470.82.01", own_only=True).reason or "")
    assert "575.57" in (judge_pids(INNER, None, "550.54.14", own_only=True).reason or "")
    assert judge_pids(INNER, None, None, own_only=True).reason == judge_pids(INNER, None, "", own_only=True).reason


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("535.113.01", (535, 113, 1)),
        ("575.57.08", (575, 57, 8)),
        ("1.2.3.4", (1, 2, 3, 4)),
        ("535", None),
        ("535.113.01-open", None),
        ("v535.113", None),
        ("535.-1", None),
        ("535..1", None),
        ("\u0665\u0663\u0665.1", None),  # digits, but no driver's
        ("5" * 5000 + ".1", None),
        ("535.113\n", None),
        ("", None),
    ],
)
def test_versions(text: str, numbers: tuple[int, ...] | None) -> None:
    assert parse_driver_version(text) == numbers
