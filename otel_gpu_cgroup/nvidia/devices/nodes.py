# SPDX-License-Identifier: Apache-2.0
"""Pure: GPU identities, from the driver's own files and from NVML, joined by minor number.

MIG instances are known to NVML alone.

`/proc/driver/nvidia/gpus/ADDRESS/information` (nv-procfs.c of open-gpu-kernel-modules 595) names each GPU
without NVML; NVML adds what the file does not tell, or everything where the file is not visible.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.errors import ParseError
from otel_gpu_cgroup.model import Gpu, GpuUuid, PciAddress
from otel_gpu_cgroup.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_ADDRESS: Final = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)
_MINOR: Final = re.compile(r"[0-9]{1,10}")
_NAME: Final = 96
"""Characters of a name; NVML's longest UUID and device name have 96 with their end."""
_FORM: Final = "the driver's information on a GPU, which has a line 'Device Minor: N'"


def parse_pci_address(text: str) -> PciAddress:
    """An address with a domain of 4 or 8 digits (NVML writes 8), as the kernel writes it."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ParseError(text, "a PCI address such as 0000:3b:00.0")
    domain, bus, device, function = match.groups()
    return PciAddress(f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower())


def parse_gpu_information(text: str) -> Gpu:
    """The GPU of one information file; its UUID is None while the driver writes question marks."""
    pairs = (line.partition(":")[::2] for line in text.splitlines())
    fields = {key.strip(): value.strip() for key, value in pairs}
    minor, uuid, address = (fields.get(key, "") for key in ("Device Minor", "GPU UUID", "Bus Location"))
    if _MINOR.fullmatch(minor) is None:
        raise ParseError(text, _FORM)
    return Gpu(
        minor=int(minor),
        uuid=GpuUuid(printable(uuid, _NAME)) if uuid and "?" not in uuid else None,
        model=printable(fields["Model"], _NAME) if fields.get("Model") else None,
        address=parse_pci_address(address) if address else None,
    )


def join_gpus(from_files: Iterable[Gpu], from_nvml: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Every GPU that either source knows, by minor number, each followed by its instances.

    The files are read in this cycle, NVML's list may be an older one: a UUID that a file has under another minor
    is that file's.
    """
    listed = tuple(from_nvml)
    gpus = _distinct(from_files)
    minors = {gpu.uuid: gpu.minor for gpu in gpus.values() if gpu.uuid is not None}
    for gpu in listed:
        if gpu.instance is None and minors.get(gpu.uuid or GpuUuid(""), gpu.minor) == gpu.minor:
            gpus[gpu.minor] = _joined(gpus.get(gpu.minor, gpu), gpu)
    instances = _instances(listed)
    return tuple(device for _, gpu in sorted(gpus.items()) for device in (gpu, *_of(gpu, instances)))


def _instances(gpus: Iterable[Gpu]) -> dict[GpuUuid, list[Gpu]]:
    """Every instance by the UUID of its GPU."""
    instances: dict[GpuUuid, list[Gpu]] = {}
    for gpu in gpus:
        if gpu.instance is not None:
            instances.setdefault(gpu.instance.parent, []).append(gpu)
    return instances


def _of(parent: Gpu, instances: Mapping[GpuUuid, list[Gpu]]) -> Iterator[Gpu]:
    """The instances of one GPU, with what that is called now."""
    for gpu in () if parent.uuid is None else instances.get(parent.uuid, ()):
        yield replace(gpu, minor=parent.minor, model=parent.model, index=parent.index)


def _distinct(gpus: Iterable[Gpu]) -> dict[int, Gpu]:
    """By minor number; of two that bear one minor or one UUID the first counts: nobody can open two by one name."""
    distinct: dict[int, Gpu] = {}
    uuids: set[GpuUuid] = set()
    for gpu in gpus:
        if gpu.uuid not in uuids:
            distinct.setdefault(gpu.minor, gpu)
        if gpu.uuid is not None:
            uuids.add(gpu.uuid)
    return distinct


def _joined(from_file: Gpu, from_nvml: Gpu) -> Gpu:
    return replace(
        from_nvml,
        uuid=from_file.uuid or from_nvml.uuid,
        model=from_nvml.model or from_file.model,
        address=from_nvml.address or from_file.address,
    )


def remember_uuids(
    known: Mapping[PciAddress, GpuUuid], gpus: tuple[Gpu, ...]
) -> tuple[dict[PciAddress, GpuUuid], tuple[Gpu, ...]]:
    """The UUIDs of these GPUs by address, and the GPUs with the UUID that was told for their address before.

    An instance has no address.
    """
    named = tuple(gpu if gpu.uuid or not gpu.address else replace(gpu, uuid=known.get(gpu.address)) for gpu in gpus)
    told = {gpu.address: gpu.uuid for gpu in named if gpu.address is not None and gpu.uuid is not None}
    return {**known, **told}, named
