# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA GPUs of this host for its containers: each gets the collector of what it may open, and uses, now."""

from __future__ import annotations

import functools
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.policy import BpfPolicy
from otel_gpu_cgroup.cgroup.policy import BothPolicies, UnknownPolicy
from otel_gpu_cgroup.errors import Gone, HostUnreadable, PolicyUnreadable
from otel_gpu_cgroup.model import AccessClass, Container, DeviceInventory, Gpu, Ownership
from otel_gpu_cgroup.nvidia.collector import NvidiaCollector
from otel_gpu_cgroup.nvidia.devices.devices import Devices
from otel_gpu_cgroup.nvidia.judgement import Judgement, judge
from otel_gpu_cgroup.nvidia.share import own_shares
from otel_gpu_cgroup.nvidia.users import Users
from otel_gpu_cgroup.printable import printable
from otel_gpu_cgroup.settings import Unrestricted

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_gpu_cgroup.cgroup.policy import DevicePolicy, PolicyReading
    from otel_gpu_cgroup.host import HostPaths
    from otel_gpu_cgroup.nvidia.lost import LostWatch
    from otel_gpu_cgroup.nvidia.nvml import Nvml
    from otel_gpu_cgroup.nvidia.readings.snapshot import Clock

_log: Final = logging.getLogger(__name__)
_REMEMBERED: Final = 4096
"""Judgements that are kept: one for each different policy of a node."""
_LOST_LINE: Final = (
    "container has lost its GPU: it should be able to open it and is denied; it has to be made anew, and the README's "
    "trouble section tells how to keep it from happening container=%a gpu=%s reason=%a"
)


class NvidiaManager:
    """Knows the GPUs of this host, what they say, and what each container has of them."""

    def __init__(
        self,
        host: HostPaths,
        nvml: Nvml,
        policies: PolicyReading,
        lost: LostWatch,
        *,
        unrestricted: Unrestricted = Unrestricted.USING,
        clock: Clock | None = None,
    ) -> None:
        """Containers that may open everything get rows as `unrestricted` says: for what they use, for all, or none."""
        self._devices = Devices(host, nvml, clock)
        self._policies = policies
        self._lost = lost
        self._unrestricted = unrestricted
        self._users = Users()
        self._shares = own_shares({}, Ownership(is_told=False))
        self._judge = _judging((), are_all=False)
        self._judged: tuple[tuple[Gpu, ...], bool] = ((), False)
        """What the judge is of."""

    def setup(self) -> None:
        """Begin to reach for the driver; waits for nothing."""
        self._devices.setup()

    def refresh(self, timeout: float) -> DeviceInventory:
        """Read every device once, and let go of what the last cycle found out about containers."""
        self._policies.begin_cycle()
        self._lost.begin_cycle()
        self._log_losses()
        self._users.begin_cycle()
        self._shares = own_shares({}, Ownership(is_told=False))
        inventory = self._devices.refresh(timeout)
        devices = inventory.gpus, inventory.are_all
        if devices != self._judged:
            self._judge, self._judged = _judging(inventory.gpus, are_all=inventory.are_all), devices
        return inventory

    def attribute(self, ownership: Ownership) -> None:
        """Give what the processes of the last refresh use to the containers that they are in."""
        self._shares = own_shares(self._devices.inventory.readings, ownership)

    @property
    def is_suspecting(self) -> bool:
        """Whether a container may have lost a GPU, which the next cycle confirms or not."""
        return self._lost.is_suspecting

    def get_collector(self, container: Container) -> NvidiaCollector:
        """What the container may open and uses now of the GPUs that the last refresh found; raises Gone."""
        self._users.meet(container)
        policy, judgement = self._read(container)
        lost = self._lost.watch(container, policy, judgement)
        self._log_losses()
        shown = self._shown(container, judgement)
        return NvidiaCollector(judgement, self._devices.inventory, self._shares, shown=shown, lost=lost)

    def hurry(self) -> None:
        """Let no refresh wait for long from now on: the process is about to end."""
        self._devices.hurry()

    def destroy(self) -> None:
        """Let go of the driver, unless a call to it hangs."""
        self._devices.destroy()

    def _read(self, container: Container) -> tuple[DevicePolicy, Judgement]:
        """The container's policy and what it means; raises Gone."""
        try:
            policy = self._policies.read(container)
        except Gone:
            raise
        except (PolicyUnreadable, HostUnreadable) as error:
            trouble = error if isinstance(error, PolicyUnreadable) else PolicyUnreadable(str(error))
            return UnknownPolicy(trouble), Judgement(AccessClass.UNKNOWN, trouble=trouble)
        judgement = self._judge(policy)
        if judgement.access is AccessClass.UNKNOWN:
            stand_in = self._policies.read_stand_in(container, policy)
            return (policy, judgement) if stand_in is None else (stand_in, self._judge(stand_in))
        if judgement.access is AccessClass.UNRESTRICTED and container.slurm is not None and _has_programs(policy):
            return policy, replace(judgement, access=AccessClass.EXPLICIT)  # Slurm's programs list what is denied
        return policy, judgement

    def _log_losses(self) -> None:
        """Say once that a container has lost a GPU, and once that this is over."""
        for change in self._lost.take_changes():
            name = printable(change.container.name or change.container.key)
            device = change.lost.gpu.uuid or f"nvidia{change.lost.gpu.minor}"
            if change.end is None:
                _log.warning(_LOST_LINE, name, device, change.lost.reason)
            else:
                _log.info("GPU is not lost any more container=%a gpu=%s reason=%a", name, device, change.end)

    def _shown(self, container: Container, judgement: Judgement) -> tuple[Gpu, ...]:
        """The devices that get a row."""
        if judgement.access is not AccessClass.UNRESTRICTED or self._unrestricted is Unrestricted.ALL:
            return judgement.gpus
        if self._unrestricted is Unrestricted.NONE:
            return ()
        used = self._users.used(container, self._shares.devices(container.key))
        return tuple(gpu for gpu in judgement.gpus if gpu.uuid in used)


def _has_programs(policy: DevicePolicy) -> bool:
    """Whether the effective query returned any."""
    if isinstance(policy, BothPolicies):
        return any(_has_programs(part) for part in policy.parts)
    return isinstance(policy, BpfPolicy) and bool(policy.programs)


def _judging(gpus: tuple[Gpu, ...], *, are_all: bool) -> Callable[[DevicePolicy], Judgement]:
    """A judge for these GPUs who remembers what was judged: containers with equal rules share a policy."""

    @functools.lru_cache(maxsize=_REMEMBERED)
    def judged(policy: DevicePolicy) -> Judgement:
        return judge(policy, gpus, are_all=are_all)

    return judged
