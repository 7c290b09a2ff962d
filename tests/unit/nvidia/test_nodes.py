# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from otel_gpu_cgroup.errors import ParseError
from otel_gpu_cgroup.model import Gpu, GpuUuid, MigInstance, PciAddress
from otel_gpu_cgroup.nvidia.devices.nodes import join_gpus, parse_gpu_information, parse_pci_address, remember_uuids

# The layout that nv-procfs.c of open-gpu-kernel-modules 595 prints; made by hand.
INFORMATION = (
    "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 225\nGPU UUID: \t {uuid}\nVideo BIOS: \t 92.00.45.00.03\n"
    "Bus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\nBus Location: \t 0000:0f:00.0\n"
    "Device Minor: \t 5\nGPU Firmware: \t 595.45.04\nGPU Excluded:\t No\n"
)
UUID = GpuUuid("GPU-11111111-2222-3333-4444-555555555555")
ADDRESS = PciAddress("0000:0f:00.0")


def test_information_names_the_gpu() -> None:
    expected = Gpu(5, UUID, "NVIDIA A100-SXM4-40GB", ADDRESS)
    assert parse_gpu_information(INFORMATION.format(uuid=UUID)) == expected


def test_question_marks_are_no_uuid() -> None:
    text = INFORMATION.format(uuid="GPU-????????-????-????-????-????????????")
    assert parse_gpu_information(text) == Gpu(5, None, "NVIDIA A100-SXM4-40GB", ADDRESS)


@pytest.mark.parametrize("text", ["", "Model: x\n", "Device Minor: many\n", "Device Minor: ٣\n", "\0"])
def test_a_file_without_a_minor_is_not_the_drivers(text: str) -> None:
    with pytest.raises(ParseError):
        parse_gpu_information(text)


def test_nvmls_address_and_the_kernels_are_one() -> None:
    assert parse_pci_address("00000000:0F:00.0") == ADDRESS
    with pytest.raises(ParseError):
        parse_pci_address("0f:00.0")


def test_gpus_are_joined_by_minor_and_not_by_index() -> None:
    files = (Gpu(0, GpuUuid("GPU-a"), "file's"), Gpu(1, None, "file's"))
    nvml = (Gpu(1, GpuUuid("GPU-b"), "NVML's", index=0), Gpu(0, GpuUuid("GPU-a"), "NVML's", index=1))
    assert join_gpus(files, nvml) == (
        Gpu(0, GpuUuid("GPU-a"), "NVML's", index=1),
        Gpu(1, GpuUuid("GPU-b"), "NVML's", index=0),
    )


def test_two_files_with_one_uuid_or_one_minor_are_one_gpu() -> None:
    first, twin, other = Gpu(0, GpuUuid("GPU-a")), Gpu(1, GpuUuid("GPU-a")), Gpu(0, GpuUuid("GPU-b"))
    assert join_gpus((first, twin), ()) == (first,)
    assert join_gpus((first, other), ()) == (first,)


def test_a_uuid_that_a_file_has_under_another_minor_is_the_files() -> None:
    files, old_list = (Gpu(1, GpuUuid("GPU-a")),), (Gpu(0, GpuUuid("GPU-a"), index=0),)
    assert join_gpus(files, old_list) == files


def test_a_uuid_is_remembered_by_address_until_it_is_told_again() -> None:
    known, _ = remember_uuids({}, (Gpu(5, UUID, address=ADDRESS),))
    _, gpus = remember_uuids(known, (Gpu(5, None, address=ADDRESS), Gpu(6, None)))
    assert gpus == (Gpu(5, UUID, address=ADDRESS), Gpu(6, None))


A, B, MIG = GpuUuid("GPU-a"), GpuUuid("GPU-b"), GpuUuid("MIG-a")
OF_A = Gpu(5, MIG, "NVML's", index=1, instance=MigInstance(A, 9, 0))


def test_instances_follow_their_gpu_with_what_that_is_called_by_now() -> None:
    files = (Gpu(3, A, "file's"), Gpu(1, B, "file's"))
    other = Gpu(5, GpuUuid("MIG-b"), "NVML's", index=1, instance=MigInstance(A, 2, 0))
    nvml = (Gpu(1, B, index=0), Gpu(3, A, is_partitioned=True, index=2), OF_A, other)
    assert join_gpus(files, nvml) == (
        Gpu(1, B, "file's", index=0),
        Gpu(3, A, "file's", is_partitioned=True, index=2),
        Gpu(3, MIG, "file's", index=2, instance=MigInstance(A, 9, 0)),
        Gpu(3, GpuUuid("MIG-b"), "file's", index=2, instance=MigInstance(A, 2, 0)),
    )


def test_an_instance_of_a_gpu_that_nobody_knows_is_left_out() -> None:
    assert join_gpus((Gpu(5, B),), (OF_A,)) == (Gpu(5, B),)
    assert join_gpus((Gpu(5, None),), (OF_A,)) == (Gpu(5, None),)


def test_an_instance_is_never_taken_for_the_gpu_with_its_minor() -> None:
    assert join_gpus((), (Gpu(5, A, "NVML's", is_partitioned=True, index=1), OF_A)) == (
        Gpu(5, A, "NVML's", is_partitioned=True, index=1),
        OF_A,
    )
    known, gpus = remember_uuids({}, (Gpu(5, A, address=ADDRESS), OF_A))
    assert (known, gpus[1]) == ({ADDRESS: A}, OF_A)
