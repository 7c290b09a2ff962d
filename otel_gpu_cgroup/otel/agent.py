# SPDX-License-Identifier: Apache-2.0
"""The agent's OpenTelemetry side: a MeterProvider whose readers push what the node's cycles find."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.metrics import MeterProvider

from otel_gpu_cgroup.containers.own import read_own_id
from otel_gpu_cgroup.otel.collection import Collection
from otel_gpu_cgroup.otel.export import create_exporter
from otel_gpu_cgroup.otel.instruments import AGENT_INSTRUMENTS
from otel_gpu_cgroup.otel.producer import Producer, ProducingReader
from otel_gpu_cgroup.otel.register import register
from otel_gpu_cgroup.otel.resource import agent_resource, own_resource
from otel_gpu_cgroup.settings import Scope

if TYPE_CHECKING:
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
        producer = Producer(collection, (*settings.exclude_metrics, *(_OF_NODES if own else ())))
        exporters = [create_exporter(name) for name in settings.exporter if name != "none"]
        readers = [ProducingReader(exporter, producer, settings.interval * 1000) for exporter in exporters]
        resource = own_resource(read_own_id()) if own else agent_resource(host)
        self._provider = MeterProvider(readers, resource, shutdown_on_exit=False)
        register(self._provider, collection, AGENT_INSTRUMENTS)
        # the SDK's readers wait for an interval before their first push; a thread, as a dead collector takes seconds
        threading.Thread(target=self._push, name="gpu-cgroup-first-push", daemon=True).start()

    def shutdown(self, timeout: float) -> None:
        """Push what is true now and end, within `timeout` seconds; what cannot be pushed by then is lost."""
        self._source.expire()
        try:
            self._provider.shutdown(timeout_millis=timeout * 1000)
        except Exception as error:  # the SDK raises what its readers raised; the process ends anyway
            _log.warning("the last export was not completed reason=%a", str(error))

    def _push(self) -> None:
        try:
            self._provider.force_flush()
        except Exception as error:  # likewise; the next interval comes
            _log.warning("the first export was not completed reason=%a", str(error))
