# SPDX-License-Identifier: Apache-2.0
"""The table's rows as observable instruments of the OpenTelemetry API, on any MeterProvider.

Neither the API nor the SDK can unregister a callback, so each instrument gets one, for good, which fans out over
the callbacks of the containers that are there. No callback calls NVML; the first one of a collection may wait for
the cycle that all of them report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.metrics import CallbackOptions, Observation

from otel_gpu_cgroup.otel.instruments import SCHEMA_URL, SCOPE
from otel_gpu_cgroup.otel.rows import AgentInstrument, Instrument, Kind
from otel_gpu_cgroup.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import Meter, MeterProvider

    from otel_gpu_cgroup.otel.collection import Collection

    Observations = Callable[[], Iterable[Observation]]


def register(provider: MeterProvider, collection: Collection, instruments: Iterable[Instrument]) -> None:
    """Create one observable instrument for each row, in the order of the rows."""
    meter = provider.get_meter(SCOPE, __version__, SCHEMA_URL)
    for position, instrument in enumerate(instruments):
        begin = collection.begin if position == 0 else None
        _create(meter, instrument, _callback(_observations(collection, instrument), begin))


def _create(meter: Meter, row: Instrument, callback: Callable[[CallbackOptions], Iterable[Observation]]) -> None:
    create = {
        Kind.COUNTER: meter.create_observable_counter,
        Kind.GAUGE: meter.create_observable_gauge,
        Kind.UP_DOWN_COUNTER: meter.create_observable_up_down_counter,
    }[row.kind]
    create(row.name, callbacks=[callback], unit=row.unit, description=row.description)


def _callback(
    observations: Observations, begin: Callable[[float], None] | None
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def callback(options: CallbackOptions) -> Iterable[Observation]:
        if begin is not None:
            begin(options.timeout_millis / 1000)
        return list(observations())

    return callback


def _observations(collection: Collection, row: Instrument) -> Observations:
    """How a row's observations are made."""
    if isinstance(row, AgentInstrument):
        return lambda: (Observation(value, dict(key)) for key, value in row.values(collection.health()).items())
    return lambda: (Observation(value, series.attributes) for series, value in collection.points(row))
