# SPDX-License-Identifier: Apache-2.0
"""Pure: what fails in one NVML pass: a query costs its own value alone, and is a Problem unless it is no surprise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from otel_gpu_cgroup.errors import NvmlDeviceLost, NvmlQueryFailed, NvmlRefused, NvmlUnsupported
from otel_gpu_cgroup.model import Gpu, GpuUuid, Problem, Stage
from otel_gpu_cgroup.nvidia.readings.process_use import ProcessUse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_gpu_cgroup.nvidia.nvml import NvmlDevice

T = TypeVar("T")


@dataclass(slots=True)
class Listed:
    """One device as NVML lists it, and what is remembered of it from pass to pass."""

    gpu: Gpu
    uuid: GpuUuid
    device: NvmlDevice
    unsupported: set[str] = field(default_factory=set)
    read_at: float | None = None
    """Monotonic seconds of the previous reading."""
    ages: Sequence[tuple[float, float]] = ()
    """Of the utilization samples of this reading."""
    newest: int = 0
    """Stamp of the newest of them; 0 where there is none."""
    use: ProcessUse = field(default_factory=ProcessUse)
    silent: bool = False
    """Whether it does not even say who it is any more; then it is who it was, and is asked nothing."""


class Failures:
    """The failures of one pass."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.is_list_doubtful = True
        """Whether one of them may be healed by listing the GPUs anew."""

    def begin(self) -> None:
        """A new pass."""
        self.problems, self.is_list_doubtful = [], False

    def report(self, subject: str, error: NvmlQueryFailed | str, *, of_instance: bool = False) -> None:
        """An instance is looked for anew by itself; a privilege that this process lacks, it lacks in the next pass."""
        self.problems.append(Problem(Stage.NVML, subject, str(error)))
        self.is_list_doubtful |= not of_instance and not isinstance(error, NvmlRefused)

    def asked(self, subject: str, query: Callable[[], T], *, of_instance: bool = False) -> T | None:
        """The answer, or None and a Problem; that NVML as a whole is down is for the caller."""
        try:
            return query()
        except NvmlQueryFailed as error:
            self.report(subject, error, of_instance=of_instance)
            return None

    def supported(self, listed: Listed, what: str, query: Callable[[], T]) -> T | None:
        """The answer; None when the device has no such thing (it is asked once) or failed (a Problem).

        Raises NvmlDeviceLost when the device answers nothing any more.
        """
        if what in listed.unsupported:
            return None
        try:
            return query()
        except NvmlDeviceLost:
            raise
        except NvmlUnsupported:
            listed.unsupported.add(what)
        except NvmlQueryFailed as error:
            self.report(listed.uuid, error, of_instance=listed.gpu.instance is not None)
        return None
