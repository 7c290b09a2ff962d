# SPDX-License-Identifier: Apache-2.0
"""Pure: all checks of `doctor`, and how they are printed."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cli.driver_checks import DRIVER_CHECKS
from otel_gpu_cgroup.cli.facts import Check, Facts, Result
from otel_gpu_cgroup.cli.kernel_checks import KERNEL_CHECKS
from otel_gpu_cgroup.cli.table import aligned
from otel_gpu_cgroup.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def run_checks(facts: Facts) -> list[Check]:
    """All of them, in the order in which a datum travels."""
    return [check for make in _CHECKS for check in make(facts)]


def render_json(checks: Sequence[Check]) -> str:
    """A list of objects with check, result, message and cure, which is null where nothing is to do."""
    return json.dumps([asdict(check) for check in checks], indent=2)


def render_table(checks: Sequence[Check]) -> str:
    """One line for each."""
    rows = [(check.result, check.check, _meaning(check)) for check in checks]
    return "\n".join(aligned([("RESULT", "CHECK", "MEANING"), *rows]))


def _meaning(check: Check) -> str:
    return printable(check.message if check.cure is None else f"{check.message}; to do: {check.cure}")


def _packages(facts: Facts) -> Iterator[Check]:
    missing = sorted(name for name, version in facts.packages.items() if version is None)
    if missing:
        lost = f"`run` needs what is not installed: {', '.join(missing)}"
        yield Check("packages", Result.WARN, lost, "pip install 'otel-gpu-cgroup[agent]'")
    else:
        found = ", ".join(f"{name} {version}" for name, version in sorted(facts.packages.items()))
        yield Check("packages", Result.OK, found)


_CHECKS: Final = (*KERNEL_CHECKS, *DRIVER_CHECKS, _packages)
