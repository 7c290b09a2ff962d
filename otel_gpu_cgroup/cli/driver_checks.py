# SPDX-License-Identifier: Apache-2.0
"""Pure: `doctor`'s checks of the driver and its GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cli.facts import Check, Facts, Result, problems_of
from otel_gpu_cgroup.cli.table import counted
from otel_gpu_cgroup.model import DeviceKind, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NOBODY: Final = "nobody can say which containers may open them"


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
    gpus = facts.stats.inventory.gpus
    if facts.simulated or not gpus:
        why = "the host is simulated" if facts.simulated else "no GPU is known"
        yield Check(name, Result.NOT_APPLICABLE, why)
    elif facts.missing_nodes:
        missing = ", ".join(facts.missing_nodes)
        lost = f"not in the host's /dev: {missing}; containers that get them later find none"
        cure = "nvidia-modprobe -c MINOR (-f CAPABILITY for nvidia-caps; or nvidia-smi) on the host makes them"
        yield Check(name, Result.WARN, lost, cure)
    else:
        yield Check(name, Result.OK, f"there for {counted(sum(gpu.instance is None for gpu in gpus), 'GPU')}")


def _instances(facts: Facts) -> Iterator[Check]:
    name = "MIG instances"
    instances = [gpu.instance for gpu in facts.stats.inventory.gpus if gpu.instance is not None]
    unknown = sum(instance.nodes is None for instance in instances)
    if not instances:
        yield Check(name, Result.NOT_APPLICABLE, "there is none")
    elif unknown:
        lost = f"of {counted(len(instances), 'instance')} the capability nodes of {unknown} are unknown: {_NOBODY}"
        yield Check(
            name, Result.FAIL, lost, "mount the host's /proc below --host-root, with all that the driver has in it"
        )
    else:
        yield Check(name, Result.OK, f"the capability nodes of {counted(len(instances), 'instance')} are known")


def _share(facts: Facts) -> Iterator[Check]:
    """A partitioned GPU is left out: drivers list processes by instance."""
    name = "own shares"
    inventory, trouble = facts.stats.inventory, problems_of(facts.stats, Stage.SHARE)
    partitioned = {gpu.uuid for gpu in inventory.gpus if gpu.kind is DeviceKind.PARTITIONED}
    lists = [reading.processes for uuid, reading in inventory.readings.items() if uuid not in partitioned]
    unlisted = sum(processes is None for processes in lists)
    if not lists:
        yield Check(name, Result.NOT_APPLICABLE, "NVML has read no device")
    elif trouble:
        cure = "share the host's PID namespace (hostPID: true in Kubernetes, --pid host in Docker) and its /proc"
        yield Check(name, Result.WARN, trouble, cure)
    elif unlisted:
        lost = f"of {counted(len(lists), 'device')} the driver does not list the processes of {unlisted}"
        yield Check(name, Result.WARN, lost, "look for problems of NVML, and update the driver")
    else:
        count = counted(len(inventory.pids), "process")
        yield Check(
            name, Result.OK, f"the driver lists {count} on {counted(len(lists), 'device')}, and /proc shows whose"
        )


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
    _instances,
    _share,
)
