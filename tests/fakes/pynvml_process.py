# SPDX-License-Identifier: Apache-2.0
"""The fake driver below a process with the real pynvml, to which a test sends one expression at a time."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self

from tests.fakes.fake_nvml import FakeGpu, World, environment, read_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

PATIENCE_SECONDS = 30.0

_PROGRAM = """
import json, os, sys, threading, time
import pynvml

names = {**vars(pynvml), "os": os, "threading": threading, "time": time}

def plain(value):
    if hasattr(value, "_fields_"):
        return {name: getattr(value, name) for name, *_ in value._fields_}
    return vars(value) if hasattr(value, "__dict__") else repr(value)

for line in sys.stdin:
    try:
        answer = {"value": eval(line, names)}
    except Exception as error:
        answer = {"error": type(error).__name__, "code": getattr(error, "value", None), "text": str(error)}
    print(json.dumps(answer, default=plain), flush=True)
"""


class NvmlAnswerError(Exception):
    """What pynvml raised: the name of its exception, NVML's code (None if it is none of NVML's) and its text."""

    def __init__(self, error: str, code: int | None, text: str) -> None:
        super().__init__(f"{error} ({code}): {text}")
        self.error, self.code, self.text = error, code, text


class PynvmlProcess:
    """Evaluates expressions among pynvml's names; structures come back as dicts, an exception as NvmlAnswerError."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(environment),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def __call__(self, expression: str) -> Any:
        self.ask(expression)
        return self.answer()

    def ask(self, expression: str) -> None:
        """Send an expression without waiting for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(expression.replace("\n", " ") + "\n")
        self._process.stdin.flush()

    def is_answered(self, patience_seconds: float = 0) -> bool:
        """Whether the answer to what was asked has arrived, or arrives in time."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], patience_seconds)[0])

    def answer(self) -> Any:
        """Wait for the answer to what was asked."""
        assert self._process.stdout is not None
        assert self.is_answered(PATIENCE_SECONDS), f"no answer within {PATIENCE_SECONDS} s"
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise NvmlAnswerError(**answer)
        return answer["value"]

    def error(self, expression: str) -> NvmlAnswerError:
        """Expect an exception."""
        try:
            value = self(expression)
        except NvmlAnswerError as error:
            return error
        raise AssertionError(f"{expression} answered {value!r} instead of an error")

    def finish(self) -> str:
        """Let the process end; returns what it wrote on stderr."""
        return self._process.communicate(timeout=PATIENCE_SECONDS)[1]


class FakeDriver:
    """The fake in one process (`ask`), its world and its counts."""

    def __init__(self, library_dir: Path, folder: Path) -> None:
        self.world_file, self.counts_file = folder / "world", folder / "counts"
        self.ask = PynvmlProcess(environment(library_dir, self.world_file, self.counts_file))

    def show(self, *gpus: FakeGpu, **rules: Any) -> PynvmlProcess:
        """Make this the world; returns the process, to be asked."""
        World(gpus=gpus, **rules).write(self.world_file)
        return self.ask

    def start(self, *gpus: FakeGpu, **rules: Any) -> PynvmlProcess:
        """Make this the world, initialise, and name the first GPU's handle h."""
        self.show(*gpus, **rules)("nvmlInit()")
        self.ask("(h := nvmlDeviceGetHandleByIndex(0)) and None")
        return self.ask

    def counts(self) -> dict[str, int]:
        """The calls so far."""
        return read_counts(self.counts_file)


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until it holds; fails after a deadline."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not true within {PATIENCE_SECONDS} s"
        time.sleep(0.005)
