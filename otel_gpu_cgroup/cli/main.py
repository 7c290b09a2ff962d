# SPDX-License-Identifier: Apache-2.0
"""The command line's entry: options from the settings' table, commands, and the exit status."""

from __future__ import annotations

import argparse
import io
import os
import sys
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cli.logs import configure_logging
from otel_gpu_cgroup.errors import GpuCgroupError, SettingsError
from otel_gpu_cgroup.settings import OPTIONS, Option, Settings, read_settings
from otel_gpu_cgroup.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: Final = {
    "run": "collect and push metrics until SIGTERM or SIGINT",
    "once": "collect and print; looks again after a second, at most twice, where one look cannot tell all",
    "explain": "tell why one container has, or has not, each GPU",
    "doctor": "check what this program needs, and say what to do",
}
_CONTAINER: Final = (
    "its id or 4 or more digits that it begins with; its name, a unit's, or slurm-JOB.STEP; namespace/pod[/container]; "
    "or its cgroup path"
)
_FATAL: Final = 1
_USAGE: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 fine, 1 failed check or fatal, 2 usage."""
    try:
        _write_what_the_encoding_lacks_escaped()
        status = _main(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()  # what is written at the interpreter's end can fail with a traceback alone
    except SettingsError as error:
        return _fail(error, _USAGE)
    except GpuCgroupError as error:
        return _fail(error, _FATAL)
    except KeyboardInterrupt:
        return _fail("interrupted", _FATAL)
    except BrokenPipeError:
        _discard_output()
        return _FATAL
    except OSError as error:
        _discard_output()
        return _fail(error, _FATAL)
    return status


def _main(words: Sequence[str]) -> int:
    try:
        chosen = vars(_parser().parse_args([_with_value(word) for word in words]))
    except SystemExit as end:  # after --help and --version, or a usage error that argparse has told
        return end.code if isinstance(end.code, int) else _USAGE
    command, container = chosen.pop("command"), chosen.pop("container", "")
    given = {name: value for name, value in chosen.items() if value is not None}
    settings = read_settings(given, os.environ, command)
    configure_logging(settings.log_level, prints_findings=command != "run")
    return _run_command(command, settings, container)


def _write_what_the_encoding_lacks_escaped() -> None:
    if sys.stdout is None:
        raise OSError("there is no standard output to write to")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Nobody takes the output; let the interpreter's own flush at its end not fail on it again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run_command(command: str, settings: Settings, container: str) -> int:
    if command == "once":
        from otel_gpu_cgroup.cli.once import run_once

        return run_once(settings)
    if command == "explain":
        from otel_gpu_cgroup.cli.explain import run_explain

        return run_explain(settings, container)
    if command == "doctor":
        from otel_gpu_cgroup.cli.doctor import run_doctor

        return run_doctor(settings)
    from otel_gpu_cgroup.cli.run import run_agent

    return run_agent(settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="otel-gpu-cgroup",
        description="Which NVIDIA GPUs each container may open, and what they do, as OpenTelemetry metrics.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        if name == "explain":
            command.add_argument("container", metavar="CONTAINER", help=_CONTAINER)
        for option in OPTIONS:
            if not option.commands or name in option.commands:
                _add(command, option)
    return parser


def _add(command: argparse.ArgumentParser, option: Option) -> None:
    action = "append" if option.several else "store"
    text = f"{option.help} [{option.variable}]".replace("%", "%%")
    command.add_argument(option.flag, dest=option.name, action=action, metavar=option.metavar, help=text)


def _with_value(word: str) -> str:
    """A flag that may stand bare, with the value that it then stands for: its value comes only after `=`."""
    bare = {option.flag: option.bare for option in OPTIONS if option.bare is not None}
    return f"{word}={bare[word]}" if word in bare else word


def _fail(error: Exception | str, status: int) -> int:
    print(f"otel-gpu-cgroup: {error}", file=sys.stderr)
    return status
