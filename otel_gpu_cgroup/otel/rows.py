# SPDX-License-Identifier: Apache-2.0
"""Pure: what a row of the table of instruments can say, by what its points are about."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_gpu_cgroup.model import AcceleratorStats, Gpu, GpuReport
    from otel_gpu_cgroup.otel.attributes import Attributes
    from otel_gpu_cgroup.otel.health import Health

Number = int | float
ByAttributes = dict[tuple[tuple[str, str], ...], Number]
"""Values by attribute set."""


class Kind(enum.Enum):
    """The OpenTelemetry instrument."""

    COUNTER = "observable counter"
    GAUGE = "observable gauge"
    UP_DOWN_COUNTER = "observable up-down counter"


@dataclass(frozen=True, slots=True)
class Instrument:
    """What every row says."""

    name: str
    kind: Kind
    unit: str
    description: str


@dataclass(frozen=True, slots=True)
class ContainerInstrument(Instrument):
    """A metric with a point for each container and device that it may open, or has lost."""

    value: Callable[[AcceleratorStats], Number | None]
    """None: no point."""


@dataclass(frozen=True, slots=True)
class HeldInstrument(Instrument):
    """The time for which a container has held a device, a point for each state."""


def nothing_more(_: Gpu) -> Attributes:
    """No attributes."""
    return {}


@dataclass(frozen=True, slots=True)
class DeviceInstrument(Instrument):
    """A metric with a point for each device."""

    value: Callable[[GpuReport], Number | None]
    """None: no point."""
    more: Callable[[Gpu], Attributes] = nothing_more
    """What its points bear beside the device's own attributes."""


@dataclass(frozen=True, slots=True)
class UsageInstrument(Instrument):
    """The time of all devices by account, a point for each state."""


@dataclass(frozen=True, slots=True)
class AgentInstrument(Instrument):
    """A metric of this software itself."""

    values: Callable[[Health], ByAttributes]
