# SPDX-License-Identifier: Apache-2.0
"""Pure: whether the pids that NVML tells this process are those of the /proc that it reads.

A driver knows every process of the host. Older ones tell all pids as the host numbers them; newer ones tell those that
the asking process can see, as it numbers them, and did so for lists before they did for utilization samples.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

INITIAL_NAMESPACE: Final = "pid:[4026531836]"
"""The host's own PID namespace on every kernel (PROC_PID_INIT_INO of linux/proc_ns.h)."""
_TRANSLATES_LISTS: Final = (535, 113)
_TRANSLATES_SAMPLES: Final = (575, 57)
"""The first open kernel modules with a translation of the one and the other."""
_VERSION: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){1,3}")


@dataclass(frozen=True, slots=True)
class PidMeaning:
    """Which of NVML's pids can be looked up."""

    of_lists: bool
    of_samples: bool
    reason: str | None = None
    """Why not all of them, and what to do, for a person."""


ALL_MEAN: Final = PidMeaning(of_lists=True, of_samples=True)


def judge_pids(own: str | None, hosts: str | None, driver_version: str | None, *, own_only: bool) -> PidMeaning:
    """By the PID namespaces of this process and of the host's first one, as their links show them.

    None is a link that cannot be read: then the host's is the kernel's initial one. `own_only` looks at no process
    but those of this process' own namespace, which is enough where the driver translates.
    """
    expected = own if own_only else hosts or INITIAL_NAMESPACE
    if own is None or own != expected:
        where = own or "one that /proc/self/ns/pid does not tell"
        return PidMeaning(
            of_lists=False,
            of_samples=False,
            reason=f"needs the host PID namespace: this process runs in {where}, where the host's pids mean nothing; "
            "start it with hostPID: true, or --pid=host",
        )
    return ALL_MEAN if own == INITIAL_NAMESPACE else _judge_driver(driver_version)


def _judge_driver(version: str | None) -> PidMeaning:
    """In a PID namespace of its own, a process depends on the driver's translation."""
    numbers = parse_driver_version(version or "")
    if numbers is not None and numbers >= _TRANSLATES_SAMPLES:
        return ALL_MEAN
    of_lists = numbers is not None and numbers >= _TRANSLATES_LISTS
    what, since = ("utilization samples", "575.57") if of_lists else ("processes", "535.113")
    return PidMeaning(
        of_lists=of_lists,
        of_samples=False,
        reason=f"the pids of the driver's {what} mean nothing in a PID namespace of its own: driver {since} or newer "
        f"translates them, this one is {version or 'not known'}; update it, or share the host's PID namespace",
    )


def parse_driver_version(version: str) -> tuple[int, ...] | None:
    """The numbers of a version such as 535.113.01, which compare as it does; None for what is no version."""
    return tuple(map(int, version.split("."))) if _VERSION.fullmatch(version) else None
