# SPDX-License-Identifier: Apache-2.0
"""The device nodes of MIG instances, from files as the driver prints them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from otel_gpu_cgroup.errors import ParseError
from otel_gpu_cgroup.host import HostPaths
from otel_gpu_cgroup.model import DeviceNode, DeviceType, Gpu, GpuUuid, MigInstance, Stage
from otel_gpu_cgroup.nvidia.devices.capabilities import CapabilityFiles
from otel_gpu_cgroup.nvidia.devices.capability_texts import capability_path, parse_capability, parse_mig_minors

DATA: Final = Path(__file__).parents[2] / "data/nvidia-caps"
PARENT: Final = GpuUuid("GPU-cut")
CUT: Final = Gpu(3, PARENT, is_partitioned=True)
TABLE: Final = "proc/driver/nvidia-caps/mig-minors"
TREE: Final = "proc/driver/nvidia/capabilities"


def instance(gpu_instance: int, compute_instance: int = 0, minor: int = 3) -> Gpu:
    uuid = GpuUuid(f"MIG-{minor}-{gpu_instance}-{compute_instance}")
    return Gpu(minor, uuid, instance=MigInstance(PARENT, gpu_instance, compute_instance))


def caps(*minors: int, major: int = 236) -> tuple[DeviceNode, ...]:
    return tuple(DeviceNode(DeviceType.CHAR, major, minor) for minor in minors)


def formula(gpu: int, gpu_instance: int, compute_instance: int) -> tuple[int, int]:
    """The driver's static numbering, as its source has it."""
    first = 3 + 135 * gpu + 9 * gpu_instance
    return first, first + 1 + compute_instance


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA, tmp_path / "host"))


def nodes(gpus: tuple[Gpu, ...]) -> list[tuple[DeviceNode, ...] | None]:
    return [gpu.instance.nodes for gpu in gpus if gpu.instance is not None]


def test_an_instance_needs_the_nodes_of_its_gpu_instance_and_of_itself(root: Path) -> None:
    gpus, problems = CapabilityFiles(HostPaths(root)).read((CUT, instance(9), instance(2, 1)))
    assert nodes(gpus) == [caps(*formula(3, 9, 0)), caps(*formula(3, 2, 1))]
    assert gpus[0] == CUT
    assert gpus[1].nodes == (DeviceNode(DeviceType.CHAR, 195, 3), *caps(489, 490))
    assert not problems


def test_a_gpu_is_called_by_its_minor(root: Path) -> None:
    gpus, _ = CapabilityFiles(HostPaths(root)).read((instance(7, minor=0), instance(7, minor=2)))
    assert nodes(gpus) == [caps(*formula(0, 7, 0)), caps(*formula(2, 7, 0))]


def test_what_the_table_lacks_is_in_files_of_their_own(root: Path) -> None:
    (root / TABLE).unlink()
    gpus, problems = CapabilityFiles(HostPaths(root)).read((instance(9), instance(2)))
    assert nodes(gpus) == [caps(*formula(3, 9, 0)), caps(*formula(3, 2, 0))]
    assert not problems


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage\n\0\n",
        "gpu3/gi9/access many\n",
        "gpu3/gi9/access 489 0\n",
        "gpu3/gi9/access 99999999999\n",
        "gpu3/gi9/access ٤٨٩\n",
    ],
)
def test_an_instance_that_is_nowhere_is_a_problem_and_costs_no_other(root: Path, text: str) -> None:
    (root / TABLE).write_text(text)
    shutil.rmtree(root / TREE / "gpu3/mig/gi9")
    gpus, problems = CapabilityFiles(HostPaths(root)).read((instance(9), instance(2)))
    assert nodes(gpus) == [None, caps(*formula(3, 2, 0))]
    [problem] = problems
    assert (problem.stage, problem.subject) == (Stage.POLICY, "MIG-3-9-0")
    assert "which containers may open it" in problem.message
    assert gpus[0].nodes is None


def test_a_file_that_is_not_the_drivers_is_no_answer(root: Path) -> None:
    (root / TABLE).unlink()
    (root / TREE / "gpu3/mig/gi9/access").write_text("Minor: 489\n")
    gpus, problems = CapabilityFiles(HostPaths(root)).read((instance(9),))
    assert (nodes(gpus), len(problems)) == ([None], 1)


@pytest.mark.parametrize("text", [None, "Character devices:\n195 nvidia\n235 nvidia-caps-imex-channels\n"])
def test_without_the_drivers_major_no_node_is_known(root: Path, text: str | None) -> None:
    devices = root / "proc/devices"
    devices.unlink() if text is None else devices.write_text(text)
    given = (CUT, instance(9), instance(2))
    gpus, problems = CapabilityFiles(HostPaths(root)).read(given)
    assert gpus == given
    [problem] = problems
    assert str(devices) in problem.message
    assert "\n" not in problem.message


def test_without_instances_nothing_is_read(root: Path) -> None:
    shutil.rmtree(root)
    assert CapabilityFiles(HostPaths(root)).read((Gpu(0),)) == ((Gpu(0),), ())


def test_a_driver_that_was_loaded_again_has_another_major(root: Path) -> None:
    files = CapabilityFiles(HostPaths(root))
    files.read((instance(9),))
    devices = root / "proc/devices"
    devices.write_text(devices.read_text().replace("236", "239"))
    assert nodes(files.read((instance(9),))[0]) == [caps(*formula(3, 9, 0), major=239)]


def test_the_table_is_read_again_for_other_instances_or_another_table_alone(root: Path) -> None:
    files = CapabilityFiles(HostPaths(root))
    assert nodes(files.read((instance(9),))[0]) == [caps(489, 490)]
    table = root / TABLE
    inode = table.stat().st_ino
    table.write_text(table.read_text().replace("gpu3/gi9/access 489", "gpu3/gi9/access 4000"))
    assert table.stat().st_ino == inode
    assert nodes(files.read((instance(9),))[0]) == [caps(489, 490)]
    assert nodes(files.read((instance(9), instance(2)))[0])[0] == caps(4000, 490)
    shutil.copy(table, root / "next")
    (root / "next").write_text(table.read_text().replace("gpu3/gi9/access 4000", "gpu3/gi9/access 4001"))
    (root / "next").replace(table)  # another inode, as of a driver that was loaded again
    assert nodes(files.read((instance(9), instance(2)))[0])[0] == caps(4001, 490)


def test_what_was_not_told_is_asked_again(root: Path) -> None:
    hidden = root / "hidden"
    (root / TABLE).unlink()
    (root / TREE).rename(hidden)
    files = CapabilityFiles(HostPaths(root))
    assert nodes(files.read((instance(9),))[0]) == [None]
    hidden.rename(root / TREE)
    assert nodes(files.read((instance(9),))[0]) == [caps(489, 490)]


def test_a_table_without_end_is_not_read(root: Path) -> None:
    with (root / TABLE).open("w") as table:
        table.writelines(f"gpu3/gi9/ci{number}/access 1\n" for number in range(100_000))
    gpus, _ = CapabilityFiles(HostPaths(root)).read((instance(9),))
    assert nodes(gpus) == [caps(489, 490)]  # by the files of their own


def test_every_line_of_the_fixture_follows_the_formula() -> None:
    text = (DATA / TABLE).read_text()
    names = {line.split()[0] for line in text.splitlines() if line.startswith("gpu")}
    minors = parse_mig_minors(text, names)
    assert len(minors) == 4 * 15 * 9
    for gpu in range(4):
        for gpu_instance in range(15):
            first = minors[f"gpu{gpu}/gi{gpu_instance}/access"]
            for own in range(8):
                numbers = (first, minors[f"gpu{gpu}/gi{gpu_instance}/ci{own}/access"])
                assert numbers == formula(gpu, gpu_instance, own)
    assert minors["gpu3/gi3/ci3/access"] == 439  # published of a real machine


def test_both_trees_of_the_fixture_agree() -> None:
    table = parse_mig_minors((DATA / TABLE).read_text(), names := {"gpu3/gi2/access", "gpu3/gi9/ci0/access"})
    assert {name: parse_capability((DATA / TREE / capability_path(name)).read_text()) for name in names} == table


@pytest.mark.parametrize("text", ["", "DeviceFileMinor: -1\n", "DeviceFileMinor: \n", "x\nDeviceFileMinor: 1\n"])
def test_what_no_driver_prints_is_no_capability(text: str) -> None:
    with pytest.raises(ParseError):
        parse_capability(text)
