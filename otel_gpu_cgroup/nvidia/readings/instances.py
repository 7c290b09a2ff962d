# SPDX-License-Identifier: Apache-2.0
"""The MIG instances of one GPU from pass to pass: who they are is asked once, whether they still are in each pass.

A handle is all that tells an instance from one that was made after it in the same place, as their UUIDs are equal: it
fails once its instance was destroyed. NVML then uses it again for whatever is asked for in its slot, so that all
handles are taken anew when one instance comes or goes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from otel_gpu_cgroup.errors import NvmlDeviceLost, NvmlQueryFailed, NvmlUnsupported
from otel_gpu_cgroup.nvidia.readings.failures import Listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_gpu_cgroup.model import Gpu, GpuUuid, MigInstance
    from otel_gpu_cgroup.nvidia.nvml import NvmlGpu, NvmlInstance, NvmlMeter
    from otel_gpu_cgroup.nvidia.readings.failures import Failures


@dataclass(slots=True, kw_only=True)
class ListedInstance(Listed):
    """One MIG instance."""

    device: NvmlInstance
    instance: MigInstance
    meter: NvmlMeter | None = None
    """None where the counters of its GPU instance are not its own alone."""


class Partition:
    """The instances of one partitioned GPU, by slot."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._slots: dict[int, ListedInstance] = {}
        self._count: int | None = None

    @property
    def instances(self) -> tuple[ListedInstance, ...]:
        """Those that the last refresh found; a silent one did not answer in it."""
        return tuple(self._slots.values())

    def refresh(self, parent: Gpu, device: NvmlGpu) -> None:
        """Find out which instances there are; one query for each slot, unless one has come or gone."""
        self._slots = {slot: _of(parent, known) for slot, known in self._slots.items()}
        count = self._counted(parent, device)
        if count is None:
            self.silence()
            return
        alive = {known.uuid: known for known in self._slots.values() if _answers(known)}
        if len(alive) < len(self._slots) or self._has_more(device, count):
            self._enumerate(parent, device, count, alive)

    def silence(self) -> None:
        """Let all be who they were, and be asked nothing: their GPU is lost, or NVML was started again."""
        for known in self._slots.values():
            known.silent = True

    def release(self) -> None:
        """Give back what the meters hold of the driver's."""
        for known in self._slots.values():
            _unmeter(known)

    def _counted(self, parent: Gpu, device: NvmlGpu) -> int | None:
        if self._count is None:
            self._count = self._failures.asked(parent.uuid or "", device.slots)
        return self._count

    def _has_more(self, device: NvmlGpu, count: int) -> bool:
        """Whether there is an instance in a slot where there was none, or it does not say."""
        for slot in range(count):
            try:
                if slot not in self._slots and device.instance(slot) is not None:
                    return True
            except NvmlUnsupported:
                return False  # MIG mode has just been turned off; the next pass asks for the mode
            except NvmlQueryFailed:
                return True
        return False

    def _enumerate(self, parent: Gpu, device: NvmlGpu, count: int, alive: Mapping[GpuUuid, ListedInstance]) -> None:
        found: dict[int, ListedInstance] = {}
        failed: dict[int, NvmlQueryFailed] = {}
        for slot in range(count):
            try:
                known = self._find(parent, device, slot, alive)
            except NvmlQueryFailed as error:
                failed[slot] = error
                continue
            if known is not None and not _is_among(known, found):
                found[slot] = known
        if len(failed) == count and all(isinstance(why, NvmlDeviceLost) for why in failed.values()):
            self.silence()  # the GPU itself is lost, which its own reading tells
            return
        for slot, why in failed.items():
            self._keep_silent(parent, slot, why, found)
        for known in self._slots.values():
            if not any(known is kept for kept in found.values()):
                _unmeter(known)
        self._slots = dict(sorted(found.items()))
        self._meter(device)

    def _find(
        self, parent: Gpu, device: NvmlGpu, slot: int, alive: Mapping[GpuUuid, ListedInstance]
    ) -> ListedInstance | None:
        """The instance in one slot, which is a new one unless it was alive under its old handle."""
        instance = device.instance(slot)
        if instance is None:
            return None
        uuid = instance.uuid()
        known = alive.get(uuid)
        if known is not None:
            known.device = instance
            return known
        if not uuid:
            raise NvmlQueryFailed("NVML gives no UUID")
        described = instance.describe(parent.uuid or uuid, self._count or 0)
        return _of(parent, ListedInstance(parent, uuid, device=instance, instance=described))

    def _keep_silent(self, parent: Gpu, slot: int, error: NvmlQueryFailed, found: dict[int, ListedInstance]) -> None:
        """Of a slot that does not answer: the instance that was in it, unless it is in another now."""
        if isinstance(error, NvmlUnsupported):
            return  # as in a hole: MIG mode has just been turned off
        known = self._slots.get(slot)
        subject = f"MIG slot {slot} of {parent.uuid}" if known is None else known.uuid
        self._failures.report(subject, error, of_instance=True)
        if known is not None and not _is_among(known, found):
            known.silent = True
            found[slot] = known

    def _meter(self, device: NvmlGpu) -> None:
        """The counters are a GPU instance's: they are an instance's own only where that is all of it."""
        sharing = Counter(known.instance.gpu_instance for known in self._slots.values())
        for known in self._slots.values():
            is_all = sharing[known.instance.gpu_instance] == 1 and _is_whole(known.instance)
            if not is_all:
                _unmeter(known)
            elif known.meter is None:
                known.meter = device.meter(known.instance.gpu_instance)


def _answers(known: ListedInstance) -> bool:
    """Whether it is the same still, by its own handle."""
    try:
        return not known.silent and known.device.uuid() == known.uuid
    except NvmlQueryFailed:
        return False


def _is_among(known: ListedInstance, found: Mapping[int, ListedInstance]) -> bool:
    return any(known.uuid == other.uuid for other in found.values())


def _is_whole(instance: MigInstance) -> bool:
    """Whether it has all compute slices of its GPU instance, by its profile: `1c.3g.40gb` has one of three."""
    return instance.profile is not None and "c." not in instance.profile


def _of(parent: Gpu, known: ListedInstance) -> ListedInstance:
    """With what its GPU is called by now."""
    known.gpu = replace(parent, uuid=known.uuid, address=None, is_partitioned=False, instance=known.instance)
    return known


def _unmeter(known: ListedInstance) -> None:
    if known.meter is not None:
        known.meter.release()
        known.meter = None
