# SPDX-License-Identifier: Apache-2.0
"""Which GPUs and MIG instances NVML lists, from pass to pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from otel_gpu_cgroup.errors import NvmlDeviceLost, NvmlQueryFailed, ParseError
from otel_gpu_cgroup.nvidia.readings.failures import Failures, Listed
from otel_gpu_cgroup.nvidia.readings.instances import Partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_gpu_cgroup.model import GpuUuid
    from otel_gpu_cgroup.nvidia.nvml import Nvml, NvmlGpu


@dataclass(slots=True, kw_only=True)
class _ListedGpu(Listed):
    """One physical GPU."""

    device: NvmlGpu
    partition: Partition


class Listing:
    """Lists GPUs anew when their number or the MIG mode of one changes, or one failed; instances in every pass."""

    def __init__(self, nvml: Nvml, failures: Failures) -> None:
        self._nvml = nvml
        self._failures = failures
        self._gpus: dict[GpuUuid, _ListedGpu] = {}
        self._count: int | None = None
        self._list_anew = True

    @property
    def devices(self) -> tuple[Listed, ...]:
        """Every GPU, each followed by its instances, as the last refresh found them."""
        return tuple(self._devices())

    def forget(self) -> None:
        """Old handles and indices mean nothing: NVML was started again."""
        self._count, self._list_anew = None, True
        for gpu in self._gpus.values():
            gpu.partition.silence()

    def release(self) -> None:
        """Give back what is held of the driver's, as NVML is about to be stopped."""
        for gpu in self._gpus.values():
            gpu.partition.release()

    def refresh(self, count: int, *, is_doubtful: bool) -> None:
        """Find out what is there now; `count` is how many GPUs NVML counts."""
        if count != self._count or self._list_anew or is_doubtful or self._has_mode_changed():
            self._list(count)
        self._list_anew = False
        for gpu in self._gpus.values():
            if gpu.silent:
                gpu.partition.silence()
            elif gpu.gpu.is_partitioned:
                gpu.partition.refresh(gpu.gpu, gpu.device)

    def _devices(self) -> Iterator[Listed]:
        for gpu in self._gpus.values():
            yield gpu
            if gpu.gpu.is_partitioned:
                yield from gpu.partition.instances

    def _has_mode_changed(self) -> bool:
        """Whether a GPU has been cut or made whole, which takes a reset: it may be called otherwise, too."""
        return any(self._mode(gpu) is not gpu.gpu.is_partitioned for gpu in self._gpus.values() if not gpu.silent)

    def _mode(self, gpu: _ListedGpu) -> bool:
        """Whether it is in MIG mode; as before while it does not say."""
        try:
            told = self._failures.supported(gpu, "MIG", gpu.device.is_partitioned)
        except NvmlDeviceLost:
            told = None  # which the reading tells
        return gpu.gpu.is_partitioned if told is None else told

    def _list(self, count: int) -> None:
        """Ask each GPU who it is; what the same set of GPUs does not support is not asked again.

        While their number stays, one that does not answer (it is lost) is still the one that it was.
        """
        before = {gpu.gpu.index: gpu for gpu in self._gpus.values()} if count == self._count else {}
        names = [before[index].uuid if index in before else f"GPU {index}" for index in range(count)]
        found = [self._failures.asked(name, partial(self._identify, index)) for index, name in enumerate(names)]
        listed = self._distinct(found)
        for index, gpu in enumerate(found):
            if gpu is None and index in before and before[index].uuid not in listed:
                listed[before[index].uuid] = replace(before[index], silent=True)
        self._remember(listed)
        self._gpus, self._count = listed, count

    def _distinct(self, found: Sequence[_ListedGpu | None]) -> dict[GpuUuid, _ListedGpu]:
        """By UUID; one that bears another's UUID or minor number cannot be told from it."""
        listed: dict[GpuUuid, _ListedGpu] = {}
        for gpu in found:
            if gpu is None:
                continue
            if gpu.uuid in listed or gpu.gpu.minor in {known.gpu.minor for known in listed.values()}:
                message = f"GPU {gpu.gpu.index} has the UUID or the minor number of another; left out"
                self._failures.report(gpu.uuid, message)
            else:
                listed[gpu.uuid] = gpu
        return listed

    def _identify(self, index: int) -> _ListedGpu:
        device = self._nvml.device(index)
        try:
            gpu = device.identity()
        except ParseError as error:
            raise NvmlQueryFailed(str(error)) from error
        if not gpu.uuid:
            raise NvmlQueryFailed("NVML gives no UUID")
        return _ListedGpu(gpu, gpu.uuid, device=device, partition=Partition(self._failures))

    def _remember(self, listed: dict[GpuUuid, _ListedGpu]) -> None:
        """Let the GPUs that were known be who they were, and ask each for its MIG mode."""
        is_same_set = listed.keys() == self._gpus.keys()
        for uuid, known in self._gpus.items():
            gpu = listed.get(uuid)
            if gpu is None:
                known.partition.release()
                continue
            gpu.gpu = replace(gpu.gpu, is_partitioned=known.gpu.is_partitioned)
            gpu.partition = known.partition
            if is_same_set:
                gpu.unsupported, gpu.read_at, gpu.use = known.unsupported, known.read_at, known.use
        for gpu in listed.values():
            if not gpu.silent:
                self._set_mode(gpu)

    def _set_mode(self, gpu: _ListedGpu) -> None:
        is_partitioned = self._mode(gpu)
        if not is_partitioned:
            gpu.partition.release()
            gpu.partition = Partition(self._failures)
        gpu.gpu = replace(gpu.gpu, is_partitioned=is_partitioned)
