# SPDX-License-Identifier: Apache-2.0
"""What a user can choose: one table, from which come the command line's options, the environment and the docs.

An option given by flag or keyword beats the environment, which beats the default.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from otel_gpu_cgroup.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SimulatedVersion = Literal["v1", "v2"]
"""The cgroup version of the simulated host."""
ENVIRONMENT_PREFIX: Final = "OTEL_PYTHON_GPU_CGROUP_"


class Scope(enum.StrEnum):
    """Whose GPUs are looked at."""

    NODE = "node"
    """Every container's but the agent's own."""
    SELF = "self"
    """The own container's."""


class Unrestricted(enum.StrEnum):
    """Which rows containers that may open every device get: for what they use, for every device, or none."""

    USING = "using"
    ALL = "all"
    NONE = "none"


class OutputFormat(enum.StrEnum):
    """How `once` and `doctor` print."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Settings:
    """What was chosen."""

    simulate: SimulatedVersion | None = None
    """The cgroup version of the simulated host; None for the real one."""
    scope: Scope | None = None
    """None: the node, or the own container where only that is visible."""
    host_root: Path = Path("/")
    nvml_library: Path | None = None
    """None: the loader's, else the usual places."""
    unrestricted: Unrestricted = Unrestricted.USING
    exclude_containers: tuple[str, ...] = ()
    exclude_metrics: tuple[str, ...] = ()
    log_level: str = "info"
    interval: float = 15.0
    """Seconds between two exports."""
    exporter: tuple[str, ...] = ("otlp",)
    flush_timeout: float = 5.0
    """Seconds that the last export may take."""
    format: OutputFormat = OutputFormat.TABLE


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table."""

    name: str
    """As a field of Settings; the flag has dashes, the environment variable capitals."""
    parse: Callable[[str], Any]
    """From text to the field's value; raises ValueError."""
    allowed: str
    """What a wrong value is told to be instead."""
    help: str
    metavar: str | None = None
    commands: tuple[str, ...] = ()
    """The commands that have it; empty for all."""
    several: bool = False
    """Whether the flag may be repeated, and the environment variable is a list by comma."""
    bare: str | None = None
    """What the flag without a value stands for; then a value comes only after `=`."""
    standard: tuple[tuple[str, Callable[[str], Any], str], ...] = ()
    """Variables of OpenTelemetry that choose the same, weaker than our own: name, parse, allowed."""

    @property
    def flag(self) -> str:
        """Such as --host-root."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """Such as OTEL_PYTHON_GPU_CGROUP_HOST_ROOT."""
        return ENVIRONMENT_PREFIX + self.name.upper()


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _parse_seconds(least: float, most: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        seconds = float(text)
        if not least <= seconds <= most:  # NaN is not
            raise ValueError(text)
        return seconds

    return parse


def _parse_milliseconds(text: str) -> float:
    return _parse_seconds(1000, _DAY * 1000)(text) / 1000


def _parse_exporters(text: str) -> tuple[str, ...]:
    exporters = _parse_list(text)
    if not exporters or not set(exporters) <= set(_EXPORTERS):
        raise ValueError(text)
    return tuple(dict.fromkeys(exporters))


def _parse_path(text: str) -> Path:
    if not text:
        raise ValueError(text)
    return Path(text)


def _parse_simulate(text: str) -> SimulatedVersion | None:
    versions: dict[str, SimulatedVersion | None] = {"v1": "v1", "v2": "v2", "true": "v2", "false": None}
    return versions[text.lower()]


def _parse_log_level(text: str) -> str:
    if text not in _LOG_LEVELS:
        raise ValueError(text)
    return text


_DAY: Final = 86_400
_EXPORTERS: Final = ("otlp", "console", "none")
_LOG_LEVELS: Final = ("debug", "info", "warning", "error")

OPTIONS: Final = (
    Option(
        "simulate", _parse_simulate, "v1 or v2", "look at a built-in host with 8 GPUs instead", "{v1,v2}", bare="v2"
    ),
    Option(
        "scope",
        Scope,
        "node or self",
        "look at every container, or at the own one (default: node, self where only that is visible)",
        "{node,self}",
    ),
    Option("host_root", _parse_path, "a folder", "where the host's / is mounted (default: /)", "DIR"),
    Option("nvml_library", _parse_path, "a file", "the driver's libnvidia-ml.so.1 (default: the loader's)", "PATH"),
    Option(
        "unrestricted",
        Unrestricted,
        "using, all or none",
        "report containers that may open every device: for the devices that they use (default), for all, or not at all",
        "{using,all,none}",
    ),
    Option(
        "exclude_containers",
        _parse_list,
        "globs",
        "leave out containers whose namespace/pod/container, name or id matches; repeatable",
        "GLOB",
        several=True,
    ),
    Option(
        "exclude_metrics",
        _parse_list,
        "globs",
        "leave out metrics whose name matches; repeatable",
        "GLOB",
        several=True,
    ),
    Option(
        "log_level", _parse_log_level, ", ".join(_LOG_LEVELS), "what goes to stderr", "{" + ",".join(_LOG_LEVELS) + "}"
    ),
    Option(
        "interval",
        _parse_seconds(1, _DAY),
        "seconds, from 1 to 86400",
        "seconds between two exports (default: OTEL_METRIC_EXPORT_INTERVAL, else 15)",
        "SECONDS",
        ("run",),
        standard=(("OTEL_METRIC_EXPORT_INTERVAL", _parse_milliseconds, "milliseconds, from 1000 to 86400000"),),
    ),
    Option(
        "exporter",
        _parse_exporters,
        "a list by comma of " + ", ".join(_EXPORTERS),
        "where metrics go (default: OTEL_METRICS_EXPORTER, else otlp)",
        "LIST",
        ("run",),
        standard=(("OTEL_METRICS_EXPORTER", _parse_exporters, "a list by comma of " + ", ".join(_EXPORTERS)),),
    ),
    Option(
        "flush_timeout",
        _parse_seconds(0.1, 3600),
        "seconds, from 0.1 to 3600",
        "seconds that the last export may take (default: 5)",
        "SECONDS",
        ("run",),
    ),
    Option(
        "format", OutputFormat, "table or json", "how to print (default: table)", "{table,json}", ("once", "doctor")
    ),
)


def read_settings(
    chosen: Mapping[str, str | list[str]], environment: Mapping[str, str], command: str | None = None
) -> Settings:
    """Settings from what was chosen by flag or keyword (texts by option name) and from the environment.

    With a command, options that it does not have are not looked at. Raises SettingsError, which names the option or
    variable, its value and what is allowed.
    """
    values: dict[str, Any] = {}
    for option in OPTIONS:
        if command is not None and option.commands and command not in option.commands:
            continue
        if option.name in chosen:
            values[option.name] = _parse_chosen(option, chosen[option.name])
        elif (found := _from_environment(option, environment)) is not None:
            values[option.name] = _parse(*found)
    return Settings(**values)


def _from_environment(
    option: Option, environment: Mapping[str, str]
) -> tuple[str, Callable[[str], Any], str, str] | None:
    """The strongest variable that is set, how to parse it, its text and what is allowed; empty counts as not set."""
    for name, parse, allowed in ((option.variable, option.parse, option.allowed), *option.standard):
        if environment.get(name, "").strip():
            return name, parse, environment[name], allowed
    return None


def _parse_chosen(option: Option, given: str | list[str]) -> Any:
    if isinstance(given, str):
        return _parse(option.flag, option.parse, given, option.allowed)
    return tuple(part for text in given for part in _parse(option.flag, option.parse, text, option.allowed))


def _parse(name: str, parse: Callable[[str], Any], text: str, allowed: str) -> Any:
    try:
        return parse(text.strip())
    except (ValueError, KeyError) as error:
        raise SettingsError(name, text, allowed) from error
