# SPDX-License-Identifier: Apache-2.0
"""Pure: who a container is, which access it has, what it has lost and what it uses, as rows of a word and a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cli.labels import container_label, device_label, joined
from otel_gpu_cgroup.cli.table import UNKNOWN, counted, share_cells
from otel_gpu_cgroup.model import AccessClass, DeviceKind
from otel_gpu_cgroup.printable import printable
from otel_gpu_cgroup.settings import Unrestricted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_gpu_cgroup.cli.explanation import Explanation
    from otel_gpu_cgroup.model import Container, Gpu, OwnShare, SlurmStep

    _Rows = Iterator[tuple[str, str]]

_LONGEST_PATH: Final = 4096
_MEANINGS: Final = {
    AccessClass.EXPLICIT: "it may open some GPU nodes",
    AccessClass.UNRESTRICTED: "it may open every device; ",
    AccessClass.NONE: "it may open no GPU",
    AccessClass.UNKNOWN: "nobody can say what it may open",
}
_UNRESTRICTED: Final = {
    Unrestricted.USING: "it has rows for what it uses, with --unrestricted using",
    Unrestricted.ALL: "it has a row for each, with --unrestricted all",
    Unrestricted.NONE: "it has no rows, with --unrestricted none",
}
_NO_CONTAINER: Final = "none: a unit is reported where it was given GPUs, has lost one, or a process of it uses one"
_AWAITED: Final = "not all told yet; its metrics wait for them, for two cycles at most, and then never change them"
_USES_DENIED: Final = "; denied and using: it goes on with what was opened before"
_NOT_LISTED: Final = "the driver does not list its processes"


def who_rows(it: Explanation) -> _Rows:
    """All that is said of it before the verdicts."""
    yield from _identity(it.container)
    yield from _names(it)
    if it.outer is not None:
        yield "inside", f"{container_label(it.outer)} ({printable(it.outer.cgroup, limit=_LONGEST_PATH)})"
    yield "cgroup", printable(it.container.cgroup, limit=_LONGEST_PATH)
    for speaker in it.speakers:
        yield speaker.hierarchy, f"{printable(speaker.folder, limit=_LONGEST_PATH)} ({speaker.reason})"
    yield from _access(it)
    yield from _losses(it)
    yield from _uses(it)


def _identity(container: Container) -> _Rows:
    pod = container.pod
    yield "container", printable(container.id or "without an id")
    if container.name is not None:
        yield "unit" if container.is_unit else "name", printable(container.name)
    yield "runtime", container.runtime
    if pod is not None:
        names = "/".join(filter(None, (pod.namespace, pod.name, pod.container)))
        yield "pod", printable(" ".join(filter(None, (pod.uid, names))))
    if container.slurm is not None:
        yield "slurm", printable(_step(container.slurm))


def _step(slurm: SlurmStep) -> str:
    user = "" if slurm.uid is None else f" of user {slurm.uid}"
    return f"job {slurm.job or UNKNOWN}{user}, step {slurm.step}"


def _names(it: Explanation) -> _Rows:
    if not it.container.is_named:
        yield "names", _AWAITED
    elif it.name_trouble is not None:
        yield "names", printable(it.name_trouble)


def _access(it: Explanation) -> _Rows:
    """Where it is left out, the class that it would have."""
    access = it.judgement.access if it.report.access is AccessClass.EXCLUDED else it.report.access
    if it.exclusion is not None:
        yield "access", f"{AccessClass.EXCLUDED}: left out of all metrics {printable(it.exclusion)}"
    yield "access" if it.exclusion is None else "otherwise", f"{access}: {_meaning(it, access)}"
    if not it.is_reported:
        yield "rows", _NO_CONTAINER
    yield "source", it.judgement.source
    if it.judgement.trouble is not None:
        yield "trouble", printable(str(it.judgement.trouble))


def _meaning(it: Explanation, access: AccessClass) -> str:
    usable = _usable(it)
    if access is AccessClass.EXPLICIT and usable:
        parts = " and MIG instances" if any(gpu.instance for gpu in usable) else ""
        return f"it may open {len(it.judgement.gpus)} of {counted(len(usable), 'GPU')}{parts}"
    return _MEANINGS[access] + (_UNRESTRICTED[it.unrestricted] if access is AccessClass.UNRESTRICTED else "")


def _losses(it: Explanation) -> _Rows:
    names = {gpu.uuid: device_label(gpu) for gpu in it.inventory.gpus}
    for row in it.report.accelerators:
        if row.lost:
            device = names.get(row.id) or printable(row.id)
            yield "lost", f"{device}: it should be able to open it: {printable(row.reason or UNKNOWN)}"


def _uses(it: Explanation) -> _Rows:
    """Each device that its processes are on, whether or not it may open it."""
    shares = {gpu: it.shares.of(it.container.key, gpu.uuid) for gpu in _usable(it) if gpu.uuid is not None}
    used = {gpu: share for gpu, share in shares.items() if share is not None and share.processes}
    for gpu, share in used.items():
        denied = _USES_DENIED if gpu in it.judgement.denied else ""
        yield "uses", f"{device_label(gpu)}: {_share(share)}{denied}"
    unread = [device_label(gpu) for gpu, share in shares.items() if share is None]
    if unread:
        yield "uses", f"{joined(unread)}: not known: {printable(it.share_trouble or _NOT_LISTED)}"
    elif shares and not used:
        yield "uses", "no GPU"


def _share(share: OwnShare) -> str:
    memory, busy, _ = share_cells(share)
    return f"{counted(share.processes, 'process')} of it, memory {memory}, busy {busy}"


def _usable(it: Explanation) -> list[Gpu]:
    """A partitioned GPU is none: its instances are."""
    return [gpu for gpu in it.inventory.gpus if gpu.kind is not DeviceKind.PARTITIONED]
