# SPDX-License-Identifier: Apache-2.0
"""MIG instances through passes in which they come, go and are made anew, on the C fake under real pynvml."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pynvml
import pytest

from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import DeviceKind, GpuReading, GpuSnapshot, GpuUuid
from otel_gpu_cgroup.nvidia.devices.files import PciBus
from otel_gpu_cgroup.nvidia.nvml import PyNvml
from otel_gpu_cgroup.nvidia.readings.nvml_pass import NvmlPass
from otel_gpu_cgroup.nvidia.readings.snapshot import SnapshotReader, SystemClock
from tests.fakes.fake_nvml import GIB, FakeError, FakeGpu, FakeInstance, FakeMemory, FakeProcess, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from otel_gpu_cgroup.nvidia.readings.duty_cycle import Instant
    from tests.conftest import LoadedDriver

WHOLE = FakeGpu(uuid="GPU-whole", minor=0, memory=FakeMemory(used=3 * GIB))
CUT = FakeGpu(uuid="GPU-cut", minor=4, name="NVIDIA H100 80GB HBM3", memory=FakeMemory(used=9 * GIB), instances=())
SMALL = FakeInstance(slot=0, uuid="MIG-small", gi=9, memory=FakeMemory(total=10 * GIB, used=GIB), busy=25)
HALF = FakeInstance(
    slot=3,
    uuid="MIG-half",
    gi=2,
    slices=3,
    compute_slices=3,
    profile="3g.40gb",
    memory=FakeMemory(total=40 * GIB, used=2 * GIB),
    busy=75.5,
)
SEVEN = tuple(FakeInstance(slot=slot, uuid=f"MIG-{slot}", gi=7 + slot, busy=slot) for slot in range(7))


@dataclass
class SetClock:
    """A clock that a test moves; the wall clock is the real one."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now

    def instant(self) -> Instant:
        return SystemClock().instant()


class Host:
    """A driver and who reads it."""

    def __init__(self, driver: LoadedDriver) -> None:
        self.driver = driver
        self._buffers = driver.counts()["gpm_samples"]
        self.clock = SetClock()
        self.nvml = PyNvml(driver.library)
        self.nvml.start()
        self.reader = SnapshotReader(self.nvml, self.clock)

    def read(self, *gpus: FakeGpu, after: float = 10.0) -> GpuSnapshot:
        self.driver.set(World(gpus=gpus))
        return self.again(after)

    def again(self, after: float = 10.0) -> GpuSnapshot:
        self.clock.now += after
        return self.reader.read()

    def buffers(self) -> int:
        """How many of the driver's are held by now."""
        return self.driver.counts()["gpm_samples"] - self._buffers

    def calls(self, *gpus: FakeGpu) -> dict[str, int]:
        """What one more pass over this world asks."""
        before = self.driver.counts()
        self.read(*gpus)
        after = self.driver.counts()
        return {name: after[name] - before[name] for name in after if after[name] != before[name]}


@pytest.fixture
def host(driver: LoadedDriver) -> Iterator[Host]:
    made = Host(driver)
    yield made
    driver.set(World())
    made.reader.release()


def cut(*instances: FakeInstance, **knobs: object) -> FakeGpu:
    return replace(CUT, instances=instances, **knobs)  # type: ignore[arg-type]


def names(snapshot: GpuSnapshot) -> list[str | None]:
    return [gpu.uuid for gpu in snapshot.gpus]


def reading(snapshot: GpuSnapshot, uuid: str) -> GpuReading:
    return snapshot.readings[GpuUuid(uuid)]


def test_instances_are_devices_after_their_gpu_in_slots_with_holes(host: Host) -> None:
    snapshot = host.read(WHOLE, cut(SMALL, HALF))
    assert names(snapshot) == ["GPU-whole", "GPU-cut", "MIG-small", "MIG-half"]
    assert [gpu.kind for gpu in snapshot.gpus] == [
        DeviceKind.GPU,
        DeviceKind.PARTITIONED,
        DeviceKind.MIG,
        DeviceKind.MIG,
    ]
    assert snapshot.count == 2
    small, half = snapshot.gpus[2:]
    assert {(gpu.minor, gpu.index, gpu.model) for gpu in (small, half)} == {(4, 1, "NVIDIA H100 80GB HBM3")}
    assert small.instance is not None
    assert half.instance is not None
    assert (small.instance.parent, small.instance.gpu_instance, small.instance.compute_instance) == ("GPU-cut", 9, 0)
    assert (small.instance.profile, small.instance.fraction) == ("1g.10gb", 1 / 7)
    assert (half.instance.profile, half.instance.fraction) == ("3g.40gb", 3 / 7)
    assert not snapshot.problems


def test_memory_is_of_the_instance_and_that_of_the_gpu_stays(host: Host) -> None:
    snapshot = host.read(WHOLE, cut(SMALL, HALF))
    used = {uuid: reading(snapshot, uuid).memory_used for uuid in ("GPU-whole", "GPU-cut", "MIG-small", "MIG-half")}
    assert used == {"GPU-whole": 3 * GIB, "GPU-cut": 9 * GIB, "MIG-small": GIB, "MIG-half": 2 * GIB}
    assert reading(snapshot, "MIG-half").memory_total == 40 * GIB


def test_the_old_spelling_of_a_uuid_is_kept(host: Host) -> None:
    old = "MIG-GPU-11111111-2222-3333-4444-555555555555/7/0"
    assert names(host.read(cut(replace(SMALL, uuid=old)))) == ["GPU-cut", old]


@pytest.mark.parametrize(
    ("instance", "profile"),
    [
        (replace(HALF, compute_slices=1, profile="1c.3g.40gb"), "1c.3g.40gb"),
        (replace(SMALL, profile="1g.10gb+me"), "1g.10gb+me"),
        (replace(HALF, compute_slices=2, profile="?"), "2c.3g.40gb"),
        (replace(SMALL, profile="?", memory=FakeMemory(total=9856 << 20)), "1g.10gb"),
        (replace(SMALL, profile="?", errors={"nvmlDeviceGetAttributes_v2": 3}), None),
        (replace(SMALL, profile="?", compute_slices=0), None),
        (replace(SMALL, errors={"nvmlDeviceGetName": 999, "nvmlDeviceGetAttributes_v2": 999}), None),
        (replace(SMALL, errors={"nvmlDeviceGetName": 999}), "1g.10gb"),
    ],
)
def test_profiles(host: Host, instance: FakeInstance, profile: str | None) -> None:
    _, gpu = host.read(cut(instance)).gpus
    assert gpu.instance is not None
    assert gpu.instance.profile == profile


def test_the_fraction_is_of_the_compute_slices_that_the_gpu_has(host: Host) -> None:
    *_, of_four = host.read(cut(replace(HALF, slices=2, compute_slices=2), mig_slots=4)).gpus
    assert of_four.instance is not None
    assert of_four.instance.fraction == 2 / 4
    *_, untold = host.read(cut(replace(SMALL, errors={"nvmlDeviceGetAttributes_v2": 3}))).gpus
    assert untold.instance is not None
    assert untold.instance.fraction is None


def test_instances_come_and_go(host: Host) -> None:
    assert names(host.read(cut(SMALL))) == ["GPU-cut", "MIG-small"]
    assert names(host.read(cut(SMALL, HALF))) == ["GPU-cut", "MIG-small", "MIG-half"]
    snapshot = host.read(cut(HALF))
    assert names(snapshot) == ["GPU-cut", "MIG-half"]
    assert set(snapshot.readings) == {"GPU-cut", "MIG-half"}
    assert names(host.read(cut())) == ["GPU-cut"]
    assert not host.again().problems


def test_mig_mode_is_turned_on_and_off_and_gives_the_gpu_another_minor(host: Host) -> None:
    before = host.read(WHOLE, replace(CUT, instances=None, mig_off=True))
    assert [gpu.kind for gpu in before.gpus] == [DeviceKind.GPU, DeviceKind.GPU]
    cut_now = host.read(WHOLE, cut(SMALL, minor=7))
    assert [(gpu.uuid, gpu.kind, gpu.minor) for gpu in cut_now.gpus[1:]] == [
        ("GPU-cut", DeviceKind.PARTITIONED, 7),
        ("MIG-small", DeviceKind.MIG, 7),
    ]
    assert reading(cut_now, "MIG-small").memory_used == GIB
    whole_again = host.read(WHOLE, replace(CUT, instances=None, mig_off=True, utilization=30))
    assert [(gpu.kind, gpu.minor) for gpu in whole_again.gpus] == [(DeviceKind.GPU, 0), (DeviceKind.GPU, 4)]
    assert reading(whole_again, "GPU-cut").duty_cycle == 0
    assert [snapshot.problems for snapshot in (before, cut_now, whole_again)] == [(), (), ()]


def test_a_mode_that_is_pending_is_none_yet(host: Host) -> None:
    whole, partitioned = replace(WHOLE, mig_off=True, mig_change=True), cut(SMALL, mig_change=True)
    assert [gpu.kind for gpu in host.read(whole, partitioned).gpus][:2] == [DeviceKind.GPU, DeviceKind.PARTITIONED]


def test_a_handle_that_came_to_mean_another_instance_is_not_trusted(host: Host) -> None:
    host.read(cut(SMALL))
    other = replace(SMALL, uuid="MIG-other", gi=8, memory=FakeMemory(total=10 * GIB, used=5))
    host.driver.set(World(gpus=(cut(other),)))
    pynvml.nvmlDeviceGetMigDeviceHandleByIndex(pynvml.nvmlDeviceGetHandleByIndex(0), 0)  # as the application may do
    snapshot = host.again()
    assert names(snapshot) == ["GPU-cut", "MIG-other"]
    assert reading(snapshot, "MIG-other").memory_used == 5


def test_instances_follow_a_gpu_that_is_listed_anew_under_another_minor(host: Host) -> None:
    host.read(cut(SMALL, own_errors={"nvmlDeviceGetMemoryInfo*": 999}))
    assert [gpu.minor for gpu in host.read(cut(SMALL, minor=9)).gpus] == [9, 9]


def test_an_instance_made_anew_under_the_same_uuid_is_another(host: Host) -> None:
    first = replace(HALF, gi=1)
    host.read(cut(first))
    assert reading(host.again(), "MIG-half").duty_cycle == 75.5
    larger = replace(first, slices=4, compute_slices=4, profile="4g.40gb", made=1, busy=50)
    snapshot = host.read(cut(larger))
    *_, gpu = snapshot.gpus
    assert gpu.instance is not None
    assert (gpu.instance.profile, gpu.instance.fraction) == ("4g.40gb", 4 / 7)
    assert reading(snapshot, "MIG-half").duty_cycle is None  # not what it differs by from another instance's counters
    assert reading(host.again(), "MIG-half").duty_cycle == 50
    assert not snapshot.problems


def test_all_made_anew_in_other_slots_are_never_mixed_up(host: Host) -> None:
    host.read(cut(*SEVEN))
    for shift in range(1, 7):
        moved = tuple(
            replace(it, slot=(it.slot + shift) % 7, memory=FakeMemory(total=10 * GIB, used=it.gi * shift))
            for it in SEVEN
            if it.slot != shift
        )
        snapshot = host.read(cut(*moved))
        assert sorted(filter(None, names(snapshot))) == sorted(["GPU-cut", *(it.uuid for it in moved)])
        assert {it.uuid: reading(snapshot, it.uuid).memory_used for it in moved} == {
            it.uuid: it.gi * shift for it in moved
        }
        assert not snapshot.problems


@pytest.mark.parametrize("code", [2, 6, 10, 15, 999], ids=["invalid", "not found", "irq", "lost", "unknown"])
@pytest.mark.parametrize("query", ["nvmlDeviceGetMemoryInfo*", "nvmlDeviceGetUUID", "nvmlDeviceGetMigDeviceHandle*"])
def test_what_fails_for_one_instance_costs_that_instance_alone(host: Host, query: str, code: int) -> None:
    host.read(WHOLE, cut(SMALL, HALF))
    failing = replace(SMALL, made=1, errors={query: code})
    for _ in range(2):
        asked = host.calls(WHOLE, cut(failing, HALF))
        assert asked.get("nvmlDeviceGetMinorNumber") is None  # nor are the GPUs listed anew
        snapshot = host.again()
        if not (query.endswith("Handle*") and code == 6):  # which is an empty slot
            assert {problem.subject for problem in snapshot.problems} == {"MIG-small"}
            assert reading(snapshot, "MIG-small").memory_used is None
        assert reading(snapshot, "MIG-half") == replace(
            GpuReading(40 * GIB, 2 * GIB, 75.5, 0.755), processes=(), covered=None
        )
        assert reading(snapshot, "GPU-cut").memory_used == 9 * GIB
    healed = host.read(WHOLE, cut(replace(SMALL, made=1), HALF))
    assert reading(healed, "MIG-small").memory_used == GIB
    assert not healed.problems


def test_a_gpu_that_is_lost_leaves_its_instances_who_they_were(host: Host) -> None:
    host.read(WHOLE, cut(SMALL))
    snapshot = host.read(WHOLE, cut(SMALL, errors={"*": 15}))
    for _ in range(2):
        assert names(snapshot) == ["GPU-whole", "GPU-cut", "MIG-small"]
        assert reading(snapshot, "MIG-small") == GpuReading()
        assert reading(snapshot, "GPU-whole").memory_used == 3 * GIB
        assert {problem.subject for problem in snapshot.problems} == {"GPU-cut"}
        snapshot = host.again()
    assert reading(host.read(WHOLE, cut(SMALL)), "MIG-small").memory_used == GIB


def test_after_a_restart_of_nvml_instances_are_found_by_new_handles(host: Host) -> None:
    host.read(cut(SMALL))
    host.reader.release()
    host.nvml.stop()
    host.nvml.start()
    host.reader.forget()
    before = host.driver.counts()["nvmlDeviceGetUUID"]
    snapshot = host.again()
    assert host.driver.counts()["nvmlDeviceGetUUID"] == before + 2  # by no old handle
    assert reading(snapshot, "MIG-small").memory_used == GIB
    assert not snapshot.problems


@pytest.mark.parametrize("mode", [3, 13], ids=["not supported", "no such function"])
def test_a_gpu_that_knows_no_mig_is_asked_once(host: Host, mode: int) -> None:
    gpu = replace(WHOLE, errors={"nvmlDeviceGetMigMode": mode})
    host.read(gpu)
    assert "nvmlDeviceGetMigMode" not in host.calls(gpu)
    assert host.calls(gpu, replace(gpu, uuid="GPU-b", minor=1))["nvmlDeviceGetMigMode"] == 2


def test_mig_supports_no_utilization_and_is_not_asked_for_it(host: Host) -> None:
    host.read(cut(SMALL, HALF))
    asked = host.calls(cut(SMALL, HALF))
    assert not {name for name in asked if "Utilization" in name or "Samples" in name}
    assert reading(host.again(), "GPU-cut").duty_cycle is None


def test_who_runs_on_an_instance_is_told_of_the_instance(host: Host) -> None:
    processes = (
        FakeProcess(pid=41, memory=5, gi=9, ci=0),
        FakeProcess(pid=42, memory=6, gi=2, ci=0),
        FakeProcess(pid=43, memory=7, gi=2, ci=0),
    )
    snapshot = host.read(cut(SMALL, HALF, processes=processes))
    pids = {uuid: [it.pid for it in reading(snapshot, uuid).processes or ()] for uuid in ("MIG-small", "MIG-half")}
    assert pids == {"MIG-small": [41], "MIG-half": [42, 43]}
    assert {it.utilization for it in reading(snapshot, "MIG-half").processes or ()} == {None}


def test_what_a_caller_may_not_ask_is_a_problem_and_lists_nothing_anew(host: Host) -> None:
    gpu = cut(SMALL, own_errors={"nvmlDeviceGetMemoryInfo*": 4})
    host.read(gpu)
    assert "nvmlDeviceGetUUID" not in {name for name, times in host.calls(gpu).items() if times > 1}
    snapshot = host.again()
    [problem] = snapshot.problems
    assert (problem.subject, reading(snapshot, "MIG-small").memory_used) == ("GPU-cut", GIB)
    assert "NVIDIA_MIG_MONITOR_DEVICES" in problem.message


# --- Hopper's counters


def test_duty_cycle_and_utilization_are_of_the_time_since_the_previous_pass(host: Host) -> None:
    first = host.read(cut(SMALL, HALF))
    assert reading(first, "MIG-half").duty_cycle is None
    second = host.again()
    assert (reading(second, "MIG-half").duty_cycle, reading(second, "MIG-half").utilization) == (75.5, 0.755)
    assert reading(second, "MIG-small").utilization == 0.25
    third = host.read(cut(SMALL, replace(HALF, busy=0)))
    assert reading(third, "MIG-half").duty_cycle == 0
    assert not first.problems + second.problems + third.problems


def test_samples_too_close_to_each_other_tell_nothing_and_the_older_is_kept(host: Host) -> None:
    host.read(cut(HALF))
    before = host.driver.counts()["nvmlGpmMigSampleGet"]
    for _ in range(3):
        assert reading(host.again(after=0.03), "MIG-half").duty_cycle is None
    assert host.driver.counts()["nvmlGpmMigSampleGet"] == before
    assert reading(host.again(after=0.03), "MIG-half").duty_cycle == 75.5  # 0.12 s after the first


def test_a_sample_of_long_ago_is_not_used(host: Host) -> None:
    host.read(cut(HALF))
    assert reading(host.again(after=601), "MIG-half").duty_cycle is None
    assert reading(host.again(after=599), "MIG-half").duty_cycle == 75.5


@pytest.mark.parametrize(
    "instances",
    [
        (replace(HALF, compute_slices=1, profile="1c.3g.40gb"),),
        (
            replace(HALF, compute_slices=1, profile="1c.3g.40gb"),
            replace(HALF, slot=4, uuid="MIG-rest", ci=1, compute_slices=2, profile="2c.3g.40gb"),
        ),
        (replace(HALF, profile="?", errors={"nvmlDeviceGetAttributes_v2": 3}),),
        (HALF, replace(HALF, slot=4, uuid="MIG-rest", ci=1)),
    ],
    ids=["a part alone", "parts", "nobody knows", "two that claim all"],
)
def test_counters_that_are_not_an_instances_own_are_not_asked(host: Host, instances: tuple[FakeInstance, ...]) -> None:
    host.read(cut(*instances))
    assert not {name for name in host.calls(cut(*instances)) if "Gpm" in name}
    assert {host.again().readings[GpuUuid(it.uuid)].duty_cycle for it in instances} == {None}


@pytest.mark.parametrize(
    "knobs",
    [{"capability": (8, 0)}, {"unsupported": ("nvmlGpm*",)}, {"errors": {"nvmlGpm*": 13}}],
    ids=["A100", "not supported", "an old driver"],
)
def test_without_counters_there_is_no_duty_cycle_and_they_are_asked_for_once(
    host: Host, knobs: dict[str, object]
) -> None:
    before = host.driver.counts()["nvmlGpmQueryDeviceSupport"]
    for _ in range(3):
        snapshot = host.read(cut(*SEVEN, **knobs))
        assert not snapshot.problems
        assert reading(snapshot, "MIG-3").duty_cycle is None
        assert reading(snapshot, "MIG-3").memory_used == 0
    assert host.driver.counts()["nvmlGpmQueryDeviceSupport"] == before + 1


@pytest.mark.parametrize(
    ("busy", "told"), [(100.4, 100.0), (150.0, None), (-3.0, None), (float("nan"), None), (1e300, None)]
)
def test_a_value_that_cannot_be_is_none(host: Host, busy: float, told: float | None) -> None:
    host.read(cut(replace(HALF, busy=busy)))
    assert reading(host.again(), "MIG-half").duty_cycle == told


@pytest.mark.parametrize("query", ["nvmlGpmMigSampleGet", "nvmlGpmMetricsGet", "nvmlGpmSampleAlloc"])
def test_counters_that_fail_cost_no_other_value(host: Host, query: str) -> None:
    host.read(cut(HALF))
    host.driver.set(World(gpus=(cut(HALF),), errors={query: 999}))
    snapshot = host.again()
    assert reading(snapshot, "MIG-half").memory_used == 2 * GIB
    assert reading(snapshot, "MIG-half").duty_cycle is None
    assert {problem.subject for problem in snapshot.problems} == {"MIG-half"}
    healed = host.read(cut(HALF))
    assert reading(healed, "MIG-half").duty_cycle == (None if query == "nvmlGpmMigSampleGet" else 75.5)
    assert reading(host.again(), "MIG-half").duty_cycle == 75.5


def test_a_metric_that_nvml_does_not_compute_is_none_and_no_problem(host: Host) -> None:
    host.read(cut(replace(HALF, busy=float("inf"))))
    snapshot = host.again()
    assert (reading(snapshot, "MIG-half").duty_cycle, snapshot.problems) == (None, ())


def test_buffers_go_with_their_instances(host: Host) -> None:
    held = []
    for instances in (SEVEN, SEVEN, SEVEN[:3], ()):
        host.read(cut(*instances))
        held.append(host.buffers())
    assert held == [7, 14, 6, 0]


def test_buffers_go_with_their_gpu(host: Host) -> None:
    host.read(WHOLE, cut(*SEVEN))
    assert host.buffers() == 7
    host.read(WHOLE)
    assert host.buffers() == 0


def test_buffers_go_before_nvml_is_let_go_of(driver: LoadedDriver, tmp_path: Path) -> None:
    driver.set(World(gpus=(cut(*SEVEN),)))
    before, clock = driver.counts()["gpm_samples"], SetClock()
    one_pass = NvmlPass(PyNvml(driver.library), PciBus(HostPaths(tmp_path)), clock)
    one_pass.read()
    clock.now += 1
    assert one_pass.read().readings[GpuUuid("MIG-5")].duty_cycle == 5
    assert driver.counts()["gpm_samples"] == before + 14
    one_pass.stop()
    assert (driver.counts()["gpm_samples"], driver.counts()["references"]) == (before, 0)


def test_a_hundred_reconfigurations_leave_nothing_behind(host: Host) -> None:
    for turn in range(100):
        host.read(cut(*(replace(it, made=turn) for it in SEVEN)))
        host.again()
    assert host.buffers() == 14


# --- what it costs


def test_what_a_pass_asks_of_a_gpu_in_seven_instances(host: Host) -> None:
    host.read(cut(*SEVEN))
    host.again()
    lists = ("Compute", "Graphics", "MPSCompute")
    assert host.calls(cut(*SEVEN)) == {
        "nvmlSystemGetDriverVersion": 1,
        "nvmlDeviceGetCount_v2": 1,
        "nvmlDeviceGetMigMode": 1,
        "nvmlDeviceGetUUID": 7,
        "nvmlDeviceGetMemoryInfo_v2": 8,
        "nvmlGpmMigSampleGet": 7,
        "nvmlGpmMetricsGet": 7,
        **{f"nvmlDeviceGet{kind}RunningProcesses_v3": 8 for kind in lists},
    }


def test_an_empty_slot_costs_one_call(host: Host) -> None:
    host.read(cut(SMALL))
    assert host.calls(cut(SMALL))["nvmlDeviceGetMigDeviceHandleByIndex"] == 6


def test_another_instance_costs_the_known_ones_a_handle_and_no_name(host: Host) -> None:
    host.read(cut(*SEVEN[:6]))
    asked = host.calls(cut(*SEVEN))
    once = ("Name", "Attributes_v2", "GpuInstanceId", "ComputeInstanceId")
    assert {asked[f"nvmlDeviceGet{what}"] for what in once} == {1}
    assert asked["nvmlDeviceGetMigDeviceHandleByIndex"] == 1 + 7


def test_an_error_that_passes_heals(host: Host) -> None:
    host.read(cut(SMALL, errors={"nvmlDeviceGetMaxMigDeviceCount": FakeError(999)}))
    assert names(host.again()) == ["GPU-cut"]
    assert names(host.read(cut(SMALL))) == ["GPU-cut", "MIG-small"]
