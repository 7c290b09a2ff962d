# SPDX-License-Identifier: Apache-2.0
"""Pure: `doctor`'s checks of the driver and its GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cli.facts import Check, Facts, Result, problems_of
from otel_gpu_cgroup.cli.table import counted
from otel_gpu_cgroup.model import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _nvml(facts: Facts) -> Iterator[Check]:
    inventory = facts.stats.inventory
    trouble = problems_of(facts.stats, Stage.NVML)
    if inventory.nvml_gpus is None and not _has_gpu(facts):
        yield Check("NVML", Result.NOT_APPLICABLE, "no NVIDIA GPU here, which is normal; one that comes later is found")
    elif inventory.nvml_gpus is None:
        cure = "install the NVIDIA driver, or name its libnvidia-ml.so.1 with --nvml-library"
        yield Check("NVML", Result.FAIL, trouble or "it does not answer", cure)
    elif trouble:
        yield Check(
            "NVML", Result.WARN, f"driver {_driver(facts)}: {trouble}", "look for Xid messages in the kernel log"
        )
    else:
        yield Check("NVML", Result.OK, f"driver {_driver(facts)} lists {counted(inventory.nvml_gpus, 'GPU')}")


def _pci(facts: Facts) -> Iterator[Check]:
    inventory = facts.stats.inventory
    if not inventory.pci_gpus or inventory.nvml_gpus is None:
        why = "NVML does not answer" if inventory.pci_gpus else "no NVIDIA GPU on the PCI bus"
        yield Check("PCI bus", Result.NOT_APPLICABLE, why)
        return
    both = f"{counted(inventory.pci_gpus, 'NVIDIA GPU')} on the PCI bus, {inventory.nvml_gpus} in NVML"
    if inventory.pci_gpus > inventory.nvml_gpus:
        cure = "look for Xid messages in the kernel log; reset the GPU or restart the host"
        yield Check("PCI bus", Result.FAIL, f"{both}: the driver has lost one", cure)
    else:
        yield Check("PCI bus", Result.OK, both)


def _driver_files(facts: Facts) -> Iterator[Check]:
    name = "driver's files"
    if facts.gpu_files:
        yield Check(
            name, Result.OK, f"/proc/driver/nvidia names {counted(facts.gpu_files, 'GPU')}, also while NVML hangs"
        )
    elif _has_gpu(facts):
        lost = "/proc/driver/nvidia names no GPU: while NVML hangs it is unknown which there are"
        yield Check(name, Result.WARN, lost, "mount the host's /proc below --host-root")
    else:
        yield Check(name, Result.NOT_APPLICABLE, "no NVIDIA GPU here")


def _nodes(facts: Facts) -> Iterator[Check]:
    name = "device nodes"
    if facts.simulated or not facts.stats.inventory.gpus:
        why = "the host is simulated" if facts.simulated else "no GPU is known"
        yield Check(name, Result.NOT_APPLICABLE, why)
    elif facts.missing_nodes:
        missing = ", ".join(facts.missing_nodes)
        lost = f"not in the host's /dev: {missing}; containers that get them later find none"
        yield Check(name, Result.WARN, lost, "nvidia-modprobe -c MINOR (or nvidia-smi) on the host makes them")
    else:
        yield Check(name, Result.OK, f"there for {counted(len(facts.stats.inventory.gpus), 'GPU')}")


def _has_gpu(facts: Facts) -> bool:
    inventory = facts.stats.inventory
    return bool(inventory.pci_gpus or inventory.gpus or facts.gpu_files)


def _driver(facts: Facts) -> str:
    return facts.stats.inventory.driver_version or "of an unknown version"


DRIVER_CHECKS: Final[tuple[Callable[[Facts], Iterator[Check]], ...]] = (
    _pci,
    _driver_files,
    _nvml,
    _nodes,
)
