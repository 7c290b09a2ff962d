# SPDX-License-Identifier: Apache-2.0
"""Pure: what one device policy means for the GPUs and MIG instances of this host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.policy import classify
from otel_gpu_cgroup.model import (
    MOST_GPUS,
    NVIDIA_MAJOR,
    READ_WRITE,
    AccessClass,
    DeviceKind,
    Gpu,
    PolicySource,
    Verdict,
    gpu_node,
)

if TYPE_CHECKING:
    from otel_gpu_cgroup.cgroup.policy import DevicePolicy
    from otel_gpu_cgroup.errors import PolicyUnreadable

_MAX_GPU_MINOR: Final = 247
"""Higher minors of the major are control nodes or unused (nv-chardev-numbers.h of open-gpu-kernel-modules 595)."""
_ANY_GPU_NODE: Final = tuple(gpu_node(minor) for minor in range(MOST_GPUS))


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a policy allows of the GPUs of this host; equal policies share one."""

    access: AccessClass
    source: PolicySource = PolicySource.NOBODY
    gpus: tuple[Gpu, ...] = ()
    """Those that may be used: all nodes of a whole GPU or of an instance may be opened read+write."""
    denied: tuple[Gpu, ...] = ()
    """Whole GPUs and instances of which a node may not be opened."""
    unsure: tuple[Gpu, ...] = ()
    """Whole GPUs and instances of which nobody can say."""
    strangers: tuple[int, ...] = ()
    """GPU minors that the policy names and this host does not have."""
    trouble: PolicyUnreadable | None = None
    """Why the kernel did not tell; None where it did."""


def judge(policy: DevicePolicy, gpus: tuple[Gpu, ...], *, are_all: bool = True) -> Judgement:
    """Ask the policy for each GPU; a partitioned one is no device that can be used, but its instances are.

    While some or all of the host's GPUs have no name (the driver is down, or one is lost), the class is what the policy
    means for any that there may be, and nothing is a stranger.
    """
    certain = are_all and bool(gpus)
    minors = {gpu.minor for gpu in gpus if gpu.instance is None}
    named = policy.named_minors(NVIDIA_MAJOR) if certain else frozenset[int]()
    nodes = [gpu.node for gpu in gpus if gpu.instance is None]
    access = classify(policy, nodes if certain else dict.fromkeys((*nodes, *_ANY_GPU_NODE)))
    source = PolicySource.NOBODY if access is AccessClass.UNKNOWN else policy.source
    verdicts = {gpu: _verdict(policy, gpu) for gpu in gpus if gpu.kind is not DeviceKind.PARTITIONED}
    return Judgement(
        access=access,
        source=source,
        gpus=tuple(gpu for gpu, verdict in verdicts.items() if verdict is Verdict.ALLOW),
        denied=tuple(gpu for gpu, verdict in verdicts.items() if verdict is Verdict.DENY),
        unsure=tuple(gpu for gpu, verdict in verdicts.items() if verdict is Verdict.UNKNOWN),
        strangers=tuple(sorted(minor for minor in named - minors if minor <= _MAX_GPU_MINOR)),
        trouble=None if source.is_kernel else policy.trouble,
    )


def _verdict(policy: DevicePolicy, gpu: Gpu) -> Verdict:
    """All of its nodes must be allowed, and one denial is enough, also while the others are not known."""
    verdict = Verdict.ALLOW if gpu.nodes is not None else Verdict.UNKNOWN
    for node in gpu.nodes or (gpu.node,):
        verdict &= policy.allows(node, READ_WRITE)
    return verdict
