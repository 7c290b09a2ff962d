# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.fakes.fake_nvml import build
from tests.fakes.pynvml_process import FakeDriver
from tests.support.need import need

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def library_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need(shutil.which("gcc"), "gcc is not installed")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(library_dir: Path, tmp_path: Path) -> Iterator[FakeDriver]:
    driver = FakeDriver(library_dir, tmp_path)
    with driver.ask:
        yield driver
