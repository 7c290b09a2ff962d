# SPDX-License-Identifier: Apache-2.0
"""The agent's OpenTelemetry side: a MeterProvider whose readers push what the node's cycles find."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.metrics import MeterProvider

from otel_gpu_cgroup.containers.own.discovery import read_own_id
from otel_gpu_cgroup.errors import GpuCgroupError
from otel_gpu_cgroup.otel.collection import Collection
from otel_gpu_cgroup.otel.export import create_exporter
from otel_gpu_cgroup.otel.instruments import AGENT_INSTRUMENTS
from otel_gpu_cgroup.otel.producer import Producer, ProducingReader
from otel_gpu_cgroup.otel.register import register
from otel_gpu_cgroup.otel.resource import agent_resource, own_resource
from otel_gpu_cgroup.settings import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.resources import Resource

    from otel_gpu_cgroup.freshness import StatsSource
    from otel_gpu_cgroup.host import HostPaths
    from otel_gpu_cgroup.settings import Settings

_log: Final = logging.getLogger(__name__)
_PATIENCE: Final = 5.0
"""Seconds that a collection waits for its cycle."""
_OF_NODES: Final = ("hw.*", "gpu_cgroup.device.*")
"""Metrics that tell of the whole node, which one container does not."""


class Agent:
    """Pushes by every chosen exporter, at once and in each interval until its shutdown; they share each cycle."""

    def __init__(self, settings: Settings, host: HostPaths, source: StatsSource) -> None:
        """Raises SettingsError or MissingExtra for an exporter that cannot be made."""
        self._source = source
        collection = Collection(source, _PATIENCE)
        own = settings.scope is Scope.SELF
        excluded = (*settings.exclude_metrics, *(_OF_NODES if own else ()))
        self._exporters = [create_exporter(name) for name in settings.exporter if name != "none"]
        self._readers = [
            ProducingReader(exporter, Producer(collection, excluded), settings.interval * 1000)
            for exporter in self._exporters
        ]
        resource = own_resource(read_own_id()) if own else agent_resource(host)
        register(_provider(self._readers, resource), collection, AGENT_INSTRUMENTS)
        # the SDK's readers wait for an interval before their first push; threads, as a dead collector takes seconds
        self._begin([reader.force_flush for reader in self._readers])

    def shutdown(self, timeout: float) -> None:
        """Push what is true now and end, within `timeout` seconds; what cannot be pushed by then is lost.

        The readers end side by side: one whose collector is dead costs no other its last push.
        """
        self._source.expire()
        deadline = time.monotonic() + timeout
        for thread in self._begin([partial(reader.shutdown, timeout * 1000) for reader in self._readers]):
            thread.join(max(0.0, deadline - time.monotonic()))
        for exporter in self._exporters:
            if exporter.busy:
                _log.warning("the last export was not completed exporter=%s", exporter.name)

    def _begin(self, calls: Sequence[Callable[[], object]]) -> list[threading.Thread]:
        threads = [threading.Thread(target=_quietly, args=(call,), daemon=True) for call in calls]
        for thread in threads:
            thread.start()
        return threads


def _quietly(call: Callable[[], object]) -> None:
    """The SDK raises what a collection or an export met; the next interval comes, or the end."""
    try:
        call()
    except Exception as error:
        _log.warning("an export was not completed reason=%a", str(error))


def _provider(readers: Sequence[ProducingReader], resource: Resource) -> MeterProvider:
    """Raises GpuCgroupError for what the SDK does not take of the environment."""
    try:
        return MeterProvider(readers, resource, shutdown_on_exit=False)
    except Exception as error:
        raise GpuCgroupError(
            f"OpenTelemetry does not take its settings: {error}; look at the OTEL_* variables"
        ) from error
