# SPDX-License-Identifier: Apache-2.0
"""Pure: exported metrics as lines for a person, one a point."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.metrics.export import Metric, MetricsData


def render_metrics(metrics_data: MetricsData) -> str:
    """A heading per metric with its unit, below it each point's value and attributes; ends with an empty line."""
    metrics = (
        metric
        for resource in metrics_data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )
    return "".join(f"{line}\n" for metric in metrics for line in _metric_lines(metric)) + "\n"


def _metric_lines(metric: Metric) -> Iterator[str]:
    yield f"{metric.name} [{metric.unit}]"
    for point in metric.data.data_points:
        attributes = " ".join(f"{key}={value!s}" for key, value in (point.attributes or {}).items())
        value = getattr(point, "value", None)
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        yield f"  {shown:>14}  {attributes}".rstrip()
