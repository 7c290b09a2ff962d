# SPDX-License-Identifier: Apache-2.0
"""The real agent as a process, above the C fake of the driver's library.

    driver.set(World(gpus=(FakeGpu(uuid="GPU-a", minor=3),)))
    agent = Agent(tmp_path, ["--interval", "1"], driver.variables() | {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.http_url})
    agent.end(signal.SIGTERM)

It runs in a folder of its own: an installed package and one in a checkout are found alike.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import otel_gpu_cgroup
from tests.fakes.fake_nvml import World, environment, read_counts
from tests.support.collector import AGENT_KEY
from tests.support.eventually import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PACKAGE_PARENT: Final = Path(otel_gpu_cgroup.__file__).parents[1]
_FOREIGN: Final = ("OTEL_", "K8S_", "FAKE_NVML_")
_RESOURCE: Final = "OTEL_RESOURCE_ATTRIBUTES"


@dataclass(frozen=True, slots=True)
class Driver:
    """Where a process finds a C fake, and what that answers."""

    library_dir: Path
    world_file: Path
    counts_file: Path

    def set(self, world: World) -> None:
        """What it answers from the next call on; before the first time there is no driver."""
        world.write(self.world_file)

    def counts(self) -> dict[str, int]:
        """Calls so far, by function."""
        return read_counts(self.counts_file)

    def passes(self) -> int:
        """NVML passes so far: each asks once how many GPUs there are."""
        return self.counts().get("nvmlDeviceGetCount_v2", 0)

    def variables(self) -> dict[str, str]:
        """What a process that is to find it needs."""
        every = environment(self.library_dir, self.world_file, self.counts_file)
        return {name: every[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML_FILE", "FAKE_NVML_COUNTS")}


def run_command(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command of the product that ends by itself."""
    return subprocess.run(
        _command(arguments),
        cwd=folder,
        env=_environment(variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


class Agent:
    """A running `run`."""

    def __init__(self, folder: Path, options: Sequence[str], variables: Mapping[str, str]) -> None:
        """Start it; a resource attribute tells its exports from those of other agents."""
        self.id = secrets.token_hex(8)
        self._log = folder / f"agent-{self.id}.log"
        resource = ",".join(filter(None, (f"{AGENT_KEY}={self.id}", variables.get(_RESOURCE))))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                _command(["run", *options]),
                cwd=folder,
                env=_environment({"TMPDIR": os.fspath(folder), **variables, _RESOURCE: resource}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll()

    def log(self) -> str:
        """What it has said."""
        return self._log.read_text()

    def lines(self, *words: str) -> list[str]:
        """The lines of its log that hold all these words."""
        return [line for line in self.log().splitlines() if all(word in line for word in words)]

    def wait_until_started(self) -> None:
        """Until it listens to signals and has made its exporters."""
        eventually(self._has_started, self.log)

    def end(self, number: int = signal.SIGTERM) -> float:
        """Send it the signal, expect that it ends with 0; returns how many seconds that took."""
        began = time.monotonic()
        self._process.send_signal(number)
        assert self._process.wait(PATIENCE_SECONDS) == 0, self.log()
        return time.monotonic() - began

    def kill(self) -> None:
        """End it, if it still runs, in a way that cannot fail."""
        self._process.kill()
        self._process.wait()

    def _has_started(self) -> bool:
        assert self.status is None, self.log()
        return bool(self.lines("info started"))


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "otel_gpu_cgroup", *arguments]


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's environment, without what would choose anything for the agent, and with these variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return kept | {"PYTHONPATH": os.fspath(_PACKAGE_PARENT), "NO_PROXY": "127.0.0.1"} | dict(variables)
