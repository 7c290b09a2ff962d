# SPDX-License-Identifier: Apache-2.0
"""The exporters of the agent: where collected metrics go, and one log line when that begins or ceases to work."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricExporter,
    MetricExportResult,
    MetricsData,
)

from otel_gpu_cgroup.errors import MissingExtra, SettingsError
from otel_gpu_cgroup.otel.lines import render_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

_log: Final = logging.getLogger(__name__)
_PROTOCOL: Final = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def create_exporter(name: str, environment: Mapping[str, str] = os.environ) -> MetricExporter:
    """The exporter of this name; raises MissingExtra, or SettingsError for what the environment says of it."""
    if name == "console":
        return WatchedExporter(ConsoleMetricExporter(out=sys.stdout, formatter=render_metrics), name)
    variable = next((variable for variable in _PROTOCOL if environment.get(variable)), _PROTOCOL[0])
    protocol = environment.get(variable) or "http/protobuf"
    try:
        return WatchedExporter(_create_otlp(variable, protocol), protocol)
    except ImportError as error:
        raise MissingExtra(f"exporting by {protocol}", "agent") from error


def _create_otlp(variable: str, protocol: str) -> MetricExporter:
    """Only the chosen exporter is imported: gRPC alone costs 15 MiB."""
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        return GrpcExporter()
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter

        return HttpExporter()
    raise SettingsError(variable, protocol, "http/protobuf or grpc")


class LastWords(logging.Handler):
    """Keeps the last message of the exporters' own loggers, which say why an export failed, on every retry."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line of it."""
        self.said = " ".join(record.getMessage().split())[:300]


class WatchedExporter(MetricExporter):
    """An exporter whose changes between working and failing are logged, once each."""

    def __init__(self, inner: MetricExporter, name: str) -> None:
        super().__init__(
            preferred_temporality=inner._preferred_temporality,  # noqa: SLF001  # the SDK's readers read it so, too
            preferred_aggregation=inner._preferred_aggregation,  # noqa: SLF001
        )
        self._inner = inner
        self._name = name
        self._works: bool | None = None
        self._last_words = LastWords()
        logger = logging.getLogger("opentelemetry.exporter")
        logger.addHandler(self._last_words)
        logger.propagate = False

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Export by the inner exporter; a failure costs this interval's metrics, as OTLP has it."""
        self._last_words.said = ""
        try:
            result = self._inner.export(metrics_data, timeout_millis=timeout_millis, **kwargs)
        except Exception as error:  # the SDK would log a traceback in each interval
            self._last_words.said = f"{type(error).__name__}: {error}"
            result = MetricExportResult.FAILURE
        self._note(works=result is MetricExportResult.SUCCESS)
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """By the inner exporter."""
        return self._inner.force_flush(timeout_millis=timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """By the inner exporter."""
        self._inner.shutdown(timeout_millis=timeout_millis, **kwargs)

    def _note(self, *, works: bool) -> None:
        if works is self._works:
            return
        self._works = works
        if works:
            _log.info("exporting protocol=%s", self._name)
        else:
            reason = self._last_words.said or "no reason given"
            _log.warning("export failed, metrics are dropped until it works protocol=%s reason=%a", self._name, reason)
