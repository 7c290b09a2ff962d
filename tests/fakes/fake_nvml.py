# SPDX-License-Identifier: Apache-2.0
"""A driver's library without a driver: builds the C fake in nvml/, points processes to it, reads its counts.

    library_dir = build(tmp_path)
    World(gpus=uniform_gpus(2)).write(world_file)
    subprocess.Popen(command, env=environment(library_dir, world_file, counts_file))
    World(gpus=uniform_gpus(2), hangs=("nvmlDeviceGetMemoryInfo*",)).write(world_file)  # the next call
    read_counts(counts_file)["nvmlDeviceGetCount_v2"]

The dynamic loader reads LD_LIBRARY_PATH when a process starts, so the library is for subprocesses.
"""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Literal

from tests.fakes.nvml_world import (
    GIB,
    FakeError,
    FakeGpu,
    FakeInstance,
    FakeMemory,
    FakeProcess,
    FakeShare,
    Recorded,
    Steady,
    World,
    uniform_gpus,
)

__all__ = [
    "GIB",
    "LIBRARY_NAME",
    "SOURCES",
    "FakeError",
    "FakeGpu",
    "FakeInstance",
    "FakeMemory",
    "FakeProcess",
    "FakeShare",
    "Recorded",
    "Steady",
    "World",
    "build",
    "environment",
    "read_counts",
    "uniform_gpus",
]

LIBRARY_NAME = "libnvidia-ml.so.1"
SOURCES = Path(__file__).parent / "nvml"

_COUNT = struct.Struct("56sQ")
_COMPILE = (
    "gcc",
    "-std=gnu11",
    "-O1",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
)


def build(directory: Path, variant: Literal["full", "stub"] = "full", *, without: tuple[str, ...] = ()) -> Path:
    """Compile the library unless that was done, and return its folder, for `environment`.

    The stub is what a CUDA toolkit links against; `without` names functions that the library does not export.
    Errors: CalledProcessError after the compiler's own message.
    """
    folder = directory / "-".join((variant, *without))
    library = folder / LIBRARY_NAME
    if library.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    sources = [path for path in sorted(SOURCES.glob("*.c")) if (path.name == "stub.c") == (variant == "stub")]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made, hidden = Path(scratch, LIBRARY_NAME), Path(scratch, "hidden.map")
        hidden.write_text("{ global: *; local: nothing; " + "".join(f"{name}; " for name in without) + "};")
        link = [f"-Wl,-soname,{LIBRARY_NAME}", f"-Wl,--version-script,{hidden}", "-lpthread"]
        subprocess.run([*_COMPILE, "-o", made, *sources, *link], check=True)
        made.replace(library)
    return folder


def environment(library_dir: Path, world_file: Path, counts_file: Path | None = None) -> dict[str, str]:
    """This process's environment, changed so that a subprocess finds the fake."""
    paths = [str(library_dir), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    variables = {**os.environ, "LD_LIBRARY_PATH": ":".join(paths), "FAKE_NVML_FILE": str(world_file)}
    variables.pop("FAKE_NVML_COUNTS", None)
    return variables | ({"FAKE_NVML_COUNTS": str(counts_file)} if counts_file else {})


def read_counts(path: Path) -> dict[str, int]:
    """Calls by function so far, also of a running process; a name never counted is 0.

    Besides the functions: `in_flight` (calls inside now), `references` (initialisations not taken back),
    `shutdown_while_in_flight` and `gpm_samples` (buffers not freed). Empty before the first call.
    """
    if not path.exists():
        return Counter()
    records = _COUNT.iter_unpack(path.read_bytes())
    return Counter({name.rstrip(b"\0").decode(): number for name, number in records if number})
