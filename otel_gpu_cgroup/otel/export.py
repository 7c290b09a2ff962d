# SPDX-License-Identifier: Apache-2.0
"""The exporters of the agent: where collected metrics go, and one log line when that begins or ceases to work."""

from __future__ import annotations

import logging
import math
import os
import sys
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricExporter,
    MetricExportResult,
    MetricsData,
)

from otel_gpu_cgroup.errors import MissingExtra, SettingsError
from otel_gpu_cgroup.otel.lines import render_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_log: Final = logging.getLogger(__name__)
_VARIABLE: Final = "OTEL_EXPORTER_OTLP_{}"
_PROTOCOLS: Final = {"http/protobuf": ("gzip", "deflate", "none"), "grpc": ("gzip", "none")}
"""The compressions of each."""


def create_exporter(name: str, environment: Mapping[str, str] = os.environ) -> WatchedExporter:
    """The exporter of this name; raises MissingExtra, or SettingsError for what the environment says of it."""
    if name == "console":
        return WatchedExporter(ConsoleMetricExporter(out=sys.stdout, formatter=render_metrics), name)
    protocol = _chosen("PROTOCOL", environment, "http/protobuf", _PROTOCOLS)
    compression = _chosen("COMPRESSION", environment, "none", _PROTOCOLS[protocol])
    _check("TIMEOUT", environment, _parse_timeout, "10", "seconds above 0")
    _check(
        "ENDPOINT",
        environment,
        _PARSE_ENDPOINT[protocol],
        _ENDPOINTS[protocol],
        f"a URL such as {_ENDPOINTS[protocol]}",
    )
    try:
        endpoint = _setting("ENDPOINT", environment, _ENDPOINTS["grpc"])[1]
        return WatchedExporter(_create_otlp(protocol, compression, endpoint), protocol)
    except ImportError as error:
        raise MissingExtra(f"exporting by {protocol}", "agent") from error


def _create_otlp(protocol: str, compression: str, grpc_endpoint: str) -> MetricExporter:
    """Only the chosen exporter is imported: gRPC alone costs 15 MiB."""
    if protocol == "grpc":
        from grpc import Compression  # type: ignore[import-untyped]  # grpcio ships no type information
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        # by itself it does not know `none`, and takes an endpoint that is empty for an address
        return GrpcExporter(
            endpoint=grpc_endpoint,
            compression=Compression.Gzip if compression == "gzip" else Compression.NoCompression,
        )
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter

    return HttpExporter()


def _chosen(what: str, environment: Mapping[str, str], default: str, allowed: Iterable[str]) -> str:
    variable, value = _setting(what, environment, default)
    if value.strip().lower() not in allowed:
        raise SettingsError(variable, value, " or ".join(allowed))
    return value.strip().lower()


def _check(
    what: str, environment: Mapping[str, str], parse: Callable[[str], object], default: str, allowed: str
) -> None:
    """Here a wrong value is one line for a person; the exporters would raise, or take another one."""
    variable, value = _setting(what, environment, default)
    try:
        parse(value)
    except ValueError as error:
        raise SettingsError(variable, value, allowed) from error


def _setting(what: str, environment: Mapping[str, str], default: str) -> tuple[str, str]:
    """The variable that rules metrics and its value; an empty one counts as not set."""
    variables = (_VARIABLE.format(f"METRICS_{what}"), _VARIABLE.format(what))
    given = ((name, environment[name]) for name in variables if environment.get(name, "").strip())
    return next(given, (variables[0], default))


def _parse_timeout(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:  # NaN is not
        raise ValueError(text)
    return seconds


def _parse_url(text: str) -> str:
    """A URL of http with a port that there is; urlsplit raises ValueError for other ports."""
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname or url.port == 0:
        raise ValueError(text)
    return text


def _parse_grpc_address(text: str) -> str:
    """A URL, or what else gRPC takes: HOST:PORT, or unix:///PATH."""
    return text if text.startswith("unix:") else _parse_url(text if "://" in text else f"https://{text}")


_ENDPOINTS: Final = {"http/protobuf": "http://localhost:4318", "grpc": "http://localhost:4317"}
_PARSE_ENDPOINT: Final = {"http/protobuf": _parse_url, "grpc": _parse_grpc_address}


class FirstWords(logging.Handler):
    """Keeps the first message of the exporters' own loggers on an export: why it fails; later ones are of retries."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line of the first."""
        self.said = self.said or " ".join(record.getMessage().split())[:300]


class WatchedExporter(MetricExporter):
    """An exporter whose changes between working and failing are logged, once each."""

    def __init__(self, inner: MetricExporter, name: str) -> None:
        super().__init__(
            preferred_temporality=inner._preferred_temporality,  # noqa: SLF001  # the SDK's readers read it so, too
            preferred_aggregation=inner._preferred_aggregation,  # noqa: SLF001
        )
        self._inner = inner
        self.name: Final = name
        self.busy = False
        """Whether an export has begun and not ended."""
        self._works: bool | None = None
        self._first_words = FirstWords()
        logger = logging.getLogger("opentelemetry.exporter")
        logger.addHandler(self._first_words)
        logger.propagate = False

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Export by the inner exporter; a failure costs this interval's metrics, as OTLP has it."""
        self._first_words.said, self.busy = "", True
        try:
            result = self._inner.export(metrics_data, timeout_millis=timeout_millis, **kwargs)
        except Exception as error:  # the SDK would log a traceback in each interval
            self._first_words.said = f"{type(error).__name__}: {error}"
            result = MetricExportResult.FAILURE
        self.busy = False
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
            _log.info("exporting protocol=%s", self.name)
        else:
            reason = self._first_words.said or "no reason given"
            _log.warning("export failed, metrics are dropped until it works protocol=%s reason=%a", self.name, reason)
