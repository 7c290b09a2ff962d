# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from otel_gpu_cgroup.errors import SettingsError
from otel_gpu_cgroup.settings import OPTIONS, OutputFormat, Scope, Settings, Unrestricted, read_settings


def test_defaults() -> None:
    assert read_settings({}, {}) == Settings()


@pytest.mark.parametrize(
    ("chosen", "environment", "expected"),
    [
        ({"interval": "3"}, {"OTEL_PYTHON_GPU_CGROUP_INTERVAL": "4", "OTEL_METRIC_EXPORT_INTERVAL": "5000"}, 3.0),
        ({}, {"OTEL_PYTHON_GPU_CGROUP_INTERVAL": "4", "OTEL_METRIC_EXPORT_INTERVAL": "5000"}, 4.0),
        ({}, {"OTEL_METRIC_EXPORT_INTERVAL": "5000"}, 5.0),
        ({}, {"OTEL_METRIC_EXPORT_INTERVAL": ""}, 15.0),
        ({}, {}, 15.0),
    ],
)
def test_a_flag_beats_our_variable_beats_opentelemetrys_beats_the_default(
    chosen: dict[str, str], environment: dict[str, str], expected: float
) -> None:
    assert read_settings(chosen, environment).interval == expected


def test_every_option_can_be_given_by_its_variable() -> None:
    environment = {
        "OTEL_PYTHON_GPU_CGROUP_SIMULATE": "true",
        "OTEL_PYTHON_GPU_CGROUP_SCOPE": "self",
        "OTEL_PYTHON_GPU_CGROUP_HOST_ROOT": "/host",
        "OTEL_PYTHON_GPU_CGROUP_NVML_LIBRARY": "/lib/libnvidia-ml.so.1",
        "OTEL_PYTHON_GPU_CGROUP_UNRESTRICTED": "all",
        "OTEL_PYTHON_GPU_CGROUP_EXCLUDE_CONTAINERS": "gpu-operator/*, web",
        "OTEL_PYTHON_GPU_CGROUP_EXCLUDE_METRICS": "hw.*",
        "OTEL_PYTHON_GPU_CGROUP_LOG_LEVEL": "debug",
        "OTEL_PYTHON_GPU_CGROUP_INTERVAL": "2.5",
        "OTEL_PYTHON_GPU_CGROUP_EXPORTER": "otlp,console",
        "OTEL_PYTHON_GPU_CGROUP_FLUSH_TIMEOUT": "1",
        "OTEL_PYTHON_GPU_CGROUP_FORMAT": "json",
    }
    assert {option.variable for option in OPTIONS} == environment.keys()
    assert read_settings({}, environment) == Settings(
        simulate="v2",
        scope=Scope.SELF,
        host_root=Path("/host"),
        nvml_library=Path("/lib/libnvidia-ml.so.1"),
        unrestricted=Unrestricted.ALL,
        exclude_containers=("gpu-operator/*", "web"),
        exclude_metrics=("hw.*",),
        log_level="debug",
        interval=2.5,
        exporter=("otlp", "console"),
        flush_timeout=1.0,
        format=OutputFormat.JSON,
    )


def test_a_variable_of_an_option_that_the_command_lacks_is_not_looked_at() -> None:
    environment = {"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_METRIC_EXPORT_INTERVAL": "500"}
    assert read_settings({}, environment, "once") == Settings()
    with pytest.raises(SettingsError):
        read_settings({}, environment, "run")


@pytest.mark.parametrize(("text", "simulated"), [("TRUE", "v2"), ("False", None), ("v1", "v1"), (" ", None)])
def test_booleans_are_true_or_false_in_any_case(text: str, simulated: str | None) -> None:
    assert read_settings({}, {"OTEL_PYTHON_GPU_CGROUP_SIMULATE": text}).simulate == simulated


def test_an_exporter_that_is_named_twice_is_one() -> None:
    assert read_settings({"exporter": "otlp,otlp,console"}, {}).exporter == ("otlp", "console")


def test_a_repeated_flag_adds_up() -> None:
    assert read_settings({"exclude_containers": ["a,b", "c"]}, {}).exclude_containers == ("a", "b", "c")


@pytest.mark.parametrize(
    ("chosen", "environment", "message"),
    [
        ({"interval": "0.5"}, {}, "--interval: '0.5' is not allowed; use seconds, from 1 to 86400"),
        ({"interval": "nan"}, {}, "--interval: 'nan' is not allowed; use seconds, from 1 to 86400"),
        ({}, {"OTEL_METRIC_EXPORT_INTERVAL": "15s"}, "OTEL_METRIC_EXPORT_INTERVAL: '15s' is not allowed"),
        ({}, {"OTEL_METRICS_EXPORTER": "jaeger"}, "use a list by comma of otlp, console, none"),
        ({"unrestricted": "some"}, {}, "--unrestricted: 'some' is not allowed; use using, all or none"),
        ({"simulate": "v7"}, {}, "--simulate: 'v7' is not allowed; use v1 or v2"),
        ({}, {"OTEL_PYTHON_GPU_CGROUP_LOG_LEVEL": "loud"}, "OTEL_PYTHON_GPU_CGROUP_LOG_LEVEL: 'loud'"),
        ({"exporter": ","}, {}, "--exporter: ','"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(
    chosen: dict[str, str], environment: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError) as error:
        read_settings(chosen, environment)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
