# SPDX-License-Identifier: Apache-2.0
"""What pynvml's answers become, driven through the C fake."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from otel_gpu_cgroup.errors import NvmlDeviceLost, NvmlQueryFailed, NvmlRefused, NvmlUnavailable, NvmlUnsupported
from otel_gpu_cgroup.nvidia.nvml import ListedProcess, Memory, NvmlDevice, PyNvml
from tests.fakes.fake_nvml import (
    GIB,
    LIBRARY_NAME,
    SOURCES,
    FakeGpu,
    FakeMemory,
    FakeProcess,
    FakeShare,
    Recorded,
    World,
    build,
    environment,
)
from tests.fakes.pynvml_process import NvmlAnswerError, PynvmlProcess
from tests.support.need import need

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import LoadedDriver

USED = FakeMemory(total=80 * GIB, used=5 * GIB, reserved=GIB)


def device(driver: LoadedDriver, gpu: FakeGpu) -> NvmlDevice:
    driver.set(World(gpus=(gpu,)))
    nvml = PyNvml(driver.library)
    nvml.start()
    return nvml.device(0)


def test_used_memory_is_without_the_reserve(driver: LoadedDriver) -> None:
    assert device(driver, FakeGpu(uuid="GPU-a", minor=0, memory=USED)).memory() == Memory(80 * GIB, 5 * GIB)


@pytest.mark.parametrize("code", [3, 13, 25], ids=["not supported", "no such function", "version mismatch"])
def test_an_old_driver_is_asked_for_memory_version_1_from_then_on(driver: LoadedDriver, code: int) -> None:
    old = device(driver, FakeGpu(uuid="GPU-a", minor=0, memory=USED, errors={"nvmlDeviceGetMemoryInfo_v2": code}))
    before = driver.counts()["nvmlDeviceGetMemoryInfo_v2"]
    assert old.memory() == old.memory() == Memory(80 * GIB, 6 * GIB)
    assert driver.counts()["nvmlDeviceGetMemoryInfo_v2"] == before + 1


def test_memory_that_is_marked_as_not_available_is_unknown(driver: LoadedDriver) -> None:
    marked = FakeMemory(total=80 * GIB, used=2**64 - 1)
    assert device(driver, FakeGpu(uuid="GPU-a", minor=0, memory=marked)).memory() == Memory(80 * GIB, None)


def test_a_buffer_that_ran_dry_is_empty_and_no_failure(driver: LoadedDriver) -> None:
    assert device(driver, FakeGpu(uuid="GPU-a", minor=0, samples=Recorded())).utilization_samples() == ()


@pytest.mark.parametrize("value_type", [1, 2, 3, 0], ids=["uint", "ulong", "ulonglong", "double"])
def test_samples_of_every_value_type(driver: LoadedDriver, value_type: int) -> None:
    gpu = FakeGpu(uuid="GPU-a", minor=0, samples=Recorded(((1000, 42),)), value_type=value_type)
    assert [sample.percent for sample in device(driver, gpu).utilization_samples()] == [42]


def test_samples_of_an_unknown_value_type_are_unsupported(driver: LoadedDriver) -> None:
    gpu = FakeGpu(uuid="GPU-a", minor=0, samples=Recorded(((1000, 42),)), value_type=99)
    with pytest.raises(NvmlUnsupported):
        device(driver, gpu).utilization_samples()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (15, NvmlDeviceLost),
        (16, NvmlDeviceLost),
        (4, NvmlRefused),
        (999, NvmlQueryFailed),
        (3, NvmlUnsupported),
        (9, NvmlUnavailable),
        (18, NvmlUnavailable),
    ],
)
def test_error_codes(driver: LoadedDriver, code: int, error: type[Exception]) -> None:
    failing = device(driver, FakeGpu(uuid="GPU-a", minor=0, errors={"nvmlDeviceGetUtilizationRates": code}))
    with pytest.raises(error) as raised:
        failing.utilization_rate()
    assert type(raised.value) is error


@pytest.mark.parametrize("code", [9, 18, 999, 4])
def test_a_driver_that_cannot_be_initialised_can_be_later(driver: LoadedDriver, code: int) -> None:
    nvml = PyNvml(driver.library)
    driver.set(World(errors={"nvmlInitWithFlags": code}))
    with pytest.raises(NvmlUnavailable):
        nvml.start()
    driver.set(World())
    nvml.start()
    assert nvml.device_count() == 0


def test_a_file_that_is_no_library_is_named_with_the_reason(tmp_path: Path) -> None:
    bogus = tmp_path / "libnvidia-ml.so.1"
    bogus.write_text("not a library")
    with pytest.raises(NvmlUnavailable) as raised:
        PyNvml(bogus).start()
    assert str(bogus) in str(raised.value)
    assert "\n" not in str(raised.value)


LISTS = (
    FakeProcess(pid=11, memory=GIB),
    FakeProcess(pid=12, memory=None),
    FakeProcess(pid=12, memory=7, kind="graphics"),
    FakeProcess(pid=13, memory=5, kind="mps"),
    FakeProcess(pid=13, memory=5),
)
LISTED = (
    ListedProcess(11, GIB),
    ListedProcess(12, None),
    ListedProcess(13, 5),
    ListedProcess(12, 7),
    ListedProcess(13, 5, is_mps=True),
)
COMPUTE, GRAPHICS, MPS = (f"nvmlDeviceGet{kind}RunningProcesses" for kind in ("Compute", "Graphics", "MPSCompute"))
USE = "nvmlDeviceGetProcessUtilization"
HAS_V2 = hasattr(pynvml, f"{COMPUTE}_v2")
with_v2 = pytest.mark.skipif(not HAS_V2, reason="the binding is older than version 2 of the lists")


def gpu(**differences: Any) -> FakeGpu:
    return FakeGpu(uuid="GPU-a", minor=0, processes=LISTS, **differences)


def test_all_lists_are_read(driver: LoadedDriver) -> None:
    assert device(driver, gpu()).processes() == LISTED


def test_a_gpu_without_processes_has_none(driver: LoadedDriver) -> None:
    assert device(driver, FakeGpu(uuid="GPU-a", minor=0)).processes() == ()


@pytest.mark.parametrize(
    ("missing", "left"),
    [(GRAPHICS, (0, 1, 2, 4)), (MPS, (0, 1, 2, 3))],
    ids=["graphics", "MPS"],
)
@pytest.mark.parametrize("code", [3, 13, 25], ids=["not supported", "no such function", "version mismatch"])
def test_a_list_that_a_gpu_does_not_have_costs_no_other_list_and_is_asked_for_once(
    driver: LoadedDriver, missing: str, left: tuple[int, ...], code: int
) -> None:
    without = device(driver, gpu(errors={f"{missing}*": code}))
    before = driver.counts()
    assert without.processes() == without.processes() == tuple(LISTED[place] for place in left)
    asked = {name: driver.counts()[name] - before.get(name, 0) for name in (f"{missing}_v3", f"{missing}_v2")}
    assert asked == {f"{missing}_v3": 1, f"{missing}_v2": int(HAS_V2)}


def test_without_the_list_of_compute_processes_there_is_none(driver: LoadedDriver) -> None:
    without = device(driver, gpu(unsupported=(f"{COMPUTE}*",)))
    for _ in range(2):
        with pytest.raises(NvmlUnsupported):
            without.processes()


@pytest.mark.parametrize("failing", [COMPUTE, GRAPHICS, MPS])
@pytest.mark.parametrize(("code", "error"), [(999, NvmlQueryFailed), (15, NvmlDeviceLost)])
def test_a_list_that_fails_is_not_an_empty_one_and_is_asked_for_again(
    driver: LoadedDriver, failing: str, code: int, error: type[Exception]
) -> None:
    asked = device(driver, gpu(errors={f"{failing}*": code}))
    with pytest.raises(error) as raised:
        asked.processes()
    assert type(raised.value) is error
    driver.set(World(gpus=(gpu(),)))
    assert asked.processes() == LISTED


@pytest.mark.parametrize("version", [pytest.param("_v2", marks=with_v2), "_v3"])
def test_either_version_of_the_lists_will_do(driver: LoadedDriver, version: str) -> None:
    other = {"_v2": "_v3", "_v3": "_v2"}[version]
    asked = device(driver, gpu(errors={f"nvmlDeviceGet*RunningProcesses{other}": 13}))
    assert asked.processes() == LISTED


@pytest.mark.parametrize("function", [COMPUTE + "_v3", USE])
def test_what_outgrows_its_room_is_asked_three_times(driver: LoadedDriver, function: str) -> None:
    asked = device(driver, gpu(errors={function: 7}))
    before = driver.counts()[function]
    with pytest.raises(NvmlQueryFailed):
        _ = asked.processes() if function != USE else asked.process_samples(0)
    assert driver.counts()[function] - before == 3 * 2  # for the size, and for as many


def test_use_of_processes(driver: LoadedDriver) -> None:
    shares = (FakeShare(pid=11, sm=40, memory=9), FakeShare(pid=12, sm=250, age_us=5_000_000))
    fresh, old = device(driver, gpu(shares=shares)).process_samples(0)
    assert [(it.pid, it.percent) for it in (fresh, old)] == [(11, 40), (12, 250)]
    assert fresh.stamp - old.stamp == 5_000_000
    assert [it.pid for it in device(driver, gpu(shares=shares)).process_samples(old.stamp)] == [11]


def test_nobody_active_is_no_failure(driver: LoadedDriver) -> None:
    assert device(driver, gpu()).process_samples(0) == ()


def test_more_processes_than_the_driver_has_room_for(driver: LoadedDriver) -> None:
    shares = tuple(FakeShare(pid=pid, sm=1) for pid in range(1, 151))
    assert len(device(driver, gpu(shares=shares)).process_samples(0)) == 150


@pytest.mark.parametrize(
    ("code", "error"), [(3, NvmlUnsupported), (999, NvmlQueryFailed), (15, NvmlDeviceLost), (9, NvmlUnavailable)]
)
def test_use_that_is_not_told(driver: LoadedDriver, code: int, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        device(driver, gpu(errors={USE: code})).process_samples(0)
    assert type(raised.value) is error


Listed = Callable[..., list[list[Any]]]


@pytest.fixture
def listed(tmp_path: Path) -> Iterator[Listed]:
    """Pid and memory of what the driver in a folder lists, in a process of its own."""
    need(shutil.which("gcc"), "the fake NVML is compiled by gcc, which is not here")
    with ExitStack() as processes:

        def ask(library: Path, **errors: int) -> list[list[Any]]:
            World(gpus=(gpu(errors=errors),)).write(tmp_path / "world")
            process = processes.enter_context(PynvmlProcess(environment(library, tmp_path / "world")))
            process("(nvml := __import__('otel_gpu_cgroup.nvidia.nvml', fromlist=['PyNvml']).PyNvml()).start()")
            return list(process("[(it.pid, it.memory) for it in nvml.device(0).processes()]"))

        yield ask


ALL = [[it.pid, it.memory] for it in LISTED]


@pytest.mark.parametrize(
    ("without", "expected"),
    [
        pytest.param((f"{COMPUTE}_v3", f"{GRAPHICS}_v3", f"{MPS}_v3"), ALL, marks=with_v2),
        ((f"{MPS}_v3", f"{MPS}_v2"), ALL[:-1]),
        ((f"{GRAPHICS}_v3", f"{GRAPHICS}_v2", f"{MPS}_v3", f"{MPS}_v2"), ALL[:3]),
    ],
    ids=["version 2 alone", "no list of MPS clients", "compute processes alone"],
)
def test_drivers_that_lack_functions(
    listed: Listed, tmp_path: Path, without: tuple[str, ...], expected: list[list[Any]]
) -> None:
    assert listed(build(tmp_path, without=without)) == expected


@with_v2
def test_drivers_with_functions_of_535_54_are_not_asked_by_version_3(listed: Listed, tmp_path: Path) -> None:
    first, second = "nvmlDeviceGetConfComputeMemSizeInfo", "nvmlDeviceGetRunningProcessDetailList"
    failing = {f"{kind}_v3": 999 for kind in (COMPUTE, GRAPHICS, MPS)}
    assert listed(build_with(tmp_path, first), **failing) == ALL
    with pytest.raises(NvmlAnswerError):
        listed(build_with(tmp_path, first, second), **failing)


def build_with(folder: Path, *functions: str) -> Path:
    """The folder of a fake driver with further functions, which do nothing."""
    made = folder / "-".join(functions)
    made.mkdir()
    further = made / "further.c"
    further.write_text("".join(f"int {name}(void) {{ return 3; }}\n" for name in functions))
    sources = [path for path in SOURCES.glob("*.c") if path.name != "stub.c"]
    link: list[str | Path] = [f"-Wl,-soname,{LIBRARY_NAME}", "-lpthread", "-o", made / LIBRARY_NAME]
    subprocess.run(["gcc", "-std=gnu11", "-shared", "-fPIC", *sources, further, *link], check=True)
    return made
