# SPDX-License-Identifier: Apache-2.0
"""What the cycle asks of a vendor's accelerators, in the shape of cAdvisor's `accelerators` package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from otel_gpu_cgroup.model import Container, ContainerStats, DeviceInventory, Ownership


class AcceleratorCollector(Protocol):
    """Knows which accelerators one container may open."""

    def update_stats(self, stats: ContainerStats) -> None:
        """Write the container's access and one `AcceleratorStats` for each of them into the stats; never raises."""
        ...


class AcceleratorManager(Protocol):
    """Knows the accelerators of one vendor on this host."""

    def setup(self) -> None:
        """Begin to reach for the driver, without waiting for it; never raises."""
        ...

    def refresh(self, timeout: float) -> DeviceInventory:
        """Read every accelerator once, waiting for at most `timeout` seconds; never raises.

        What has not answered by then is absent from what collectors write until the next call.
        """
        ...

    def attribute(self, ownership: Ownership) -> None:
        """Give what the processes of the last refresh use to the containers that they are in; never raises."""
        ...

    @property
    def is_suspecting(self) -> bool:
        """Whether a container may have lost an accelerator, which the next cycle confirms or not."""
        ...

    def get_collector(self, container: Container) -> AcceleratorCollector:
        """What the container may open and uses at this instant; raises Gone when it has ended."""
        ...

    def hurry(self) -> None:
        """End a refresh that waits, and let none wait for long from now on: the process is about to end."""
        ...

    def destroy(self) -> None:
        """Let go of the driver, unless a call to it hangs; never raises."""
        ...
