# SPDX-License-Identifier: Apache-2.0
"""Initialisation, and the variants of the library."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.fakes.fake_nvml import LIBRARY_NAME, FakeGpu, FakeMemory, World, build, environment
from tests.fakes.pynvml_process import FakeDriver

if TYPE_CHECKING:
    from pathlib import Path


GPU = FakeGpu(uuid="GPU-a", minor=0)


def test_before_the_first_initialisation_every_call_is_refused(driver: FakeDriver) -> None:
    ask = driver.show(GPU)
    # pynvml loads the library only in nvmlInit
    ask("nvmlInit()"), ask("nvmlShutdown()")
    assert ask.error("nvmlDeviceGetCount()").code == 1
    assert ask.error("nvmlSystemGetDriverVersion()").code == 1


def test_initialisations_are_counted_and_one_shutdown_too_many_is_refused(driver: FakeDriver) -> None:
    ask = driver.start(GPU)
    ask("nvmlInit()")
    assert driver.counts()["references"] == 2
    ask("nvmlShutdown()")
    assert ask("nvmlDeviceGetCount()") == 1
    ask("nvmlShutdown()")
    assert ask.error("nvmlShutdown()").code == 1


def test_handles_die_with_the_initialisation_that_gave_them(driver: FakeDriver) -> None:
    ask = driver.start(GPU)
    ask("nvmlShutdown()"), ask("nvmlInit()")
    assert ask.error("nvmlDeviceGetName(h)").code == 2
    ask("(h := nvmlDeviceGetHandleByIndex(0)) and None")
    assert ask("nvmlDeviceGetName(h)") == GPU.name


@pytest.mark.parametrize("code", [9, 18, 999, 12])
def test_initialisation_fails_as_told(driver: FakeDriver, code: int) -> None:
    assert driver.show(GPU, errors={"nvmlInitWithFlags": code}).error("nvmlInit()").code == code


def test_without_a_world_there_is_no_driver_until_one_appears(driver: FakeDriver) -> None:
    assert driver.ask.error("nvmlInit()").error == "NVMLError_DriverNotLoaded"
    driver.show(GPU)("nvmlInit()")
    assert driver.ask("nvmlDeviceGetCount()") == 1


def test_a_world_that_cannot_be_read_is_told_with_its_line(driver: FakeDriver) -> None:
    driver.world_file.write_text("driver 1\ngpu GPU-a\nminor zero\n")
    assert driver.ask.error("nvmlInit()").code == 999
    assert f"{driver.world_file}:3: cannot read 'minor zero'" in driver.ask.finish()


def test_a_forked_child_has_to_initialise_anew(library_dir: Path, tmp_path: Path) -> None:
    World(gpus=(GPU,)).write(tmp_path / "world")
    program = """if True:
        import os, pynvml
        pynvml.nvmlInit()
        if child := os.fork():
            raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) + pynvml.nvmlDeviceGetCount())
        try:
            pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError_Uninitialized:
            pynvml.nvmlInit()
            os._exit(pynvml.nvmlDeviceGetCount())
    """
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(library_dir, tmp_path / "world"), check=False
    )
    assert done.returncode == 2


def test_a_library_without_a_function(library_dir: Path, tmp_path: Path) -> None:
    old = FakeDriver(build(library_dir.parent, without=("nvmlDeviceGetMemoryInfo_v2",)), tmp_path)
    with old.start(replace(GPU, memory=FakeMemory(total=10, used=3, reserved=1))) as ask:
        missing = ask.error("nvmlDeviceGetMemoryInfo(h, version=nvmlMemory_v2)")
        assert missing.error == "NVMLError_FunctionNotFound"
        assert ask("nvmlDeviceGetMemoryInfo(h)") == {"total": 10, "free": 6, "used": 4}


def test_the_toolkits_stub_fails_with_a_banner(library_dir: Path, tmp_path: Path) -> None:
    stub = FakeDriver(build(library_dir.parent, "stub"), tmp_path)
    with stub.show(GPU) as ask:
        failure = ask.error("nvmlInit()")
        assert failure.error == "NVMLError"
        assert "stub library" in failure.text
        assert len(failure.text.splitlines()) > 3


def test_the_library_is_taken_by_its_soname_when_loaded_by_path(library_dir: Path, tmp_path: Path) -> None:
    World(gpus=(GPU,)).write(tmp_path / "world")
    program = f"""if True:
        import ctypes
        ctypes.CDLL({str(library_dir / LIBRARY_NAME)!r})
        import pynvml
        pynvml.nvmlInit()
        print(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)))
    """
    variables = environment(library_dir, tmp_path / "world")
    del variables["LD_LIBRARY_PATH"]
    assert subprocess.check_output([sys.executable, "-c", program], env=variables, text=True) == "GPU-a\n"
