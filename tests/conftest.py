# SPDX-License-Identifier: Apache-2.0
"""Fixtures that every level of tests shares."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.nvidia.nvml import PyNvml
from tests.fakes.fake_nvml import LIBRARY_NAME, World, build, read_counts
from tests.support.need import need

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class LoadedDriver:
    """The C fake, under the real pynvml of this process."""

    library: Path
    world_file: Path
    counts_file: Path

    def set(self, world: World) -> None:
        """What the driver answers from the next call on."""
        world.write(self.world_file)

    def counts(self) -> dict[str, int]:
        """Calls so far, by function."""
        return read_counts(self.counts_file)


@pytest.fixture(scope="session")
def fake_library_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the fake libnvidia-ml.so.1, compiled once."""
    need(shutil.which("gcc"), "the fake NVML is compiled by gcc, which is not here")
    return build(tmp_path_factory.mktemp("fake-nvml"))


@pytest.fixture(scope="session")
def counts_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the fake counts; it maps the file once in a process."""
    return tmp_path_factory.mktemp("fake-nvml-counts") / "counts"


@pytest.fixture
def driver(
    fake_library_dir: Path, counts_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LoadedDriver]:
    """A driver that answers what the test sets, and is let go of in the end."""
    fake = LoadedDriver(fake_library_dir / LIBRARY_NAME, tmp_path / "world", counts_file)
    monkeypatch.setenv("FAKE_NVML_FILE", str(fake.world_file))
    monkeypatch.setenv("FAKE_NVML_COUNTS", str(fake.counts_file))
    fake.set(World())
    yield fake
    fake.set(World())
    for _ in range(fake.counts().get("references", 0)):
        PyNvml(fake.library).stop()
