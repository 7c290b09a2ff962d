# SPDX-License-Identifier: Apache-2.0
"""Pure: `doctor`'s checks of what the kernel must show: cgroups, their device programs, processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cli.facts import Check, Facts, Result, problems_of
from otel_gpu_cgroup.cli.table import counted
from otel_gpu_cgroup.model import AccessClass, CgroupMode, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_GRANT: Final = "run as root of the host; in a container, with --cap-add {} (or privileged)"


def _cgroups(facts: Facts) -> Iterator[Check]:
    layout, mode = facts.layout, facts.layout.mode
    if mode is None:
        why = facts.layout_trouble or "no cgroup hierarchy that decides on devices is mounted"
        yield Check("cgroups", Result.FAIL, why, "mount the host's /sys/fs/cgroup and /proc, and name --host-root")
        return
    places = ((name, root) for name, root in (("v1 devices", layout.devices), ("v2", layout.unified)) if root)
    yield Check("cgroups", Result.OK, f"{mode}: " + ", ".join(f"{name} at {root}" for name, root in places))


def _capabilities(facts: Facts) -> Iterator[Check]:
    admin, net = "CAP_SYS_ADMIN", "CAP_NET_ADMIN"
    if (inapplicable := _without_programs(facts)) is not None:
        yield Check(admin, Result.NOT_APPLICABLE, inapplicable)
        yield Check(net, Result.NOT_APPLICABLE, inapplicable)
        return
    if admin in facts.capabilities:
        yield Check(admin, Result.OK, "device programs of cgroup v2 can be read")
    else:
        lost = "missing: device programs of cgroup v2 cannot be read, what they allow is unknown"
        yield Check(admin, Result.FAIL, lost, _GRANT.format("SYS_ADMIN"))
    if net in facts.capabilities:
        yield Check(
            net, Result.OK, "kernels older than about 6.8 ask for it, too, before they tell which programs there are"
        )
    elif facts.programs_trouble is None:
        yield Check(net, Result.NOT_APPLICABLE, "missing, but this kernel does not ask for it")
    else:
        lost = "missing: kernels older than about 6.8 do not tell without it which programs there are"
        result = Result.FAIL if admin in facts.capabilities else Result.WARN
        yield Check(net, result, lost, _GRANT.format("NET_ADMIN"))


def _tracing(facts: Facts) -> Iterator[Check]:
    """What is needed to look into the /dev of a container, as is done where bpf(2) is refused."""
    name = "CAP_SYS_PTRACE"
    if _without_programs(facts) is not None or facts.programs_trouble is None:
        yield Check(name, Result.NOT_APPLICABLE, "it is for the case that bpf(2) is refused")
    elif name in facts.capabilities:
        yield Check(name, Result.OK, "in place of bpf(2) the device nodes of containers can be looked at")
    else:
        lost = "missing: not even the device nodes of containers can be looked at in place of bpf(2)"
        yield Check(name, Result.WARN, lost, _GRANT.format("SYS_PTRACE"))


def _programs(facts: Facts) -> Iterator[Check]:
    name = "device programs"
    if (inapplicable := _without_programs(facts)) is not None:
        yield Check(name, Result.NOT_APPLICABLE, inapplicable)
    elif facts.programs_trouble is not None:
        yield Check(name, Result.FAIL, facts.programs_trouble, "grant what is named here, and let seccomp pass bpf(2)")
    elif _hides_programs(facts):
        setting = f"net.core.bpf_jit_harden is 2 and kernel.kptr_restrict {facts.kptr_restrict}"
        cure = "set one of the two lower, or grant CAP_SYSLOG where kernel.kptr_restrict is 1"
        yield Check(name, Result.FAIL, f"{setting}: the kernel hides the instructions", cure)
    else:
        yield Check(name, Result.OK, f"bpf(2) tells them: {facts.root_programs} on the root cgroup")


def _hides_programs(facts: Facts) -> bool:
    """Whether constants are blinded, and addresses hidden from this process."""
    hidden = facts.kptr_restrict == 2 or (facts.kptr_restrict == 1 and "CAP_SYSLOG" not in facts.capabilities)
    return facts.jit_harden == 2 and hidden


def _without_programs(facts: Facts) -> str | None:
    """Why bpf(2) does not matter here; None where it does."""
    if facts.simulated:
        return "the host is simulated"
    if facts.layout.mode in (None, CgroupMode.V1):
        return "cgroup v2 is not mounted; the rules of v1 can be read by everybody"
    return None


def _containers(facts: Facts) -> Iterator[Check]:
    stats = facts.stats
    if not stats.up.get(Stage.DISCOVERY):
        trouble = problems_of(stats, Stage.DISCOVERY) or "they could not be looked for"
        yield Check("containers", Result.FAIL, trouble, "let this program read the host's cgroup hierarchy")
        return
    unknown = [report.container.cgroup for report in stats.containers if report.access is AccessClass.UNKNOWN]
    count = len(stats.containers)
    if unknown:
        why = problems_of(stats, Stage.POLICY) or f"such as {unknown[0]}"
        cure = f"otel-gpu-cgroup explain {unknown[0]}"
        yield Check(
            "containers",
            Result.FAIL,
            f"of {counted(count, 'container')} the access of {len(unknown)} is unknown: {why}",
            cure,
        )
        return
    stated = sum(
        not report.source.is_kernel for report in stats.containers if report.access is not AccessClass.EXCLUDED
    )
    if stated:
        lost = f"of {counted(count, 'container')} the access of {stated} is known from others than the kernel"
        yield Check("containers", Result.WARN, lost, "see the checks of capabilities and device programs")
        return
    yield Check("containers", Result.OK, f"{counted(count, 'container')} found, and what each may open")


def _pid_namespace(facts: Facts) -> Iterator[Check]:
    name = "PID namespace"
    if facts.simulated:
        yield Check(name, Result.NOT_APPLICABLE, "the host is simulated")
    elif facts.in_host_pid_namespace:
        yield Check(name, Result.OK, "the host's")
    else:
        lost = "not the host's: which of a container's own cgroups its processes are in cannot be told"
        yield Check(name, Result.WARN, lost, "hostPID: true in Kubernetes, --pid host in Docker")


def _names(facts: Facts) -> Iterator[Check]:
    name = "names"
    works = facts.stats.up.get(Stage.NAMES)
    found = ", ".join(facts.name_places) or "none of the places where engines leave them"
    if works is None:
        yield Check(name, Result.NOT_APPLICABLE, f"no container here waits for one; there is {found}")
    elif works:
        yield Check(name, Result.OK, f"told by what is in {found}")
    else:
        trouble = problems_of(facts.stats, Stage.NAMES) or "some containers have none"
        cure = "mount the host's /var/log, /run and /var/lib/docker or /var/lib/containers below --host-root"
        yield Check(name, Result.WARN, f"{trouble}; there is {found}", cure)


KERNEL_CHECKS: Final[tuple[Callable[[Facts], Iterator[Check]], ...]] = (
    _cgroups,
    _capabilities,
    _tracing,
    _programs,
    _containers,
    _pid_namespace,
    _names,
)
