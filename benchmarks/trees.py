# SPDX-License-Identifier: Apache-2.0
"""The cgroups of a benchmark's containers: real ones where that is allowed, each inside one folder removed in the end.

On a hybrid host a sleeping process is in each, as an empty container is looked for anew in every cycle; elsewhere it
makes no difference, and none is.
"""

from __future__ import annotations

import os
import secrets
import signal
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.cgroup.bpf.reader import BpfReader
from otel_gpu_cgroup.cgroup.bpf.syscall import Bpf
from otel_gpu_cgroup.containers.discovery.mounts import devices_mount, parse_cgroup_mounts
from otel_gpu_cgroup.errors import PolicyUnreadable
from otel_gpu_cgroup.model import CgroupMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from otel_gpu_cgroup.simulate.containers import SimulatedContainer

    MakeCgroup = Callable[[Path, SimulatedContainer], None]

_DEVICES: Final = "/sys/fs/cgroup/devices"
_UNIFIED: Final = {CgroupMode.V2: "/sys/fs/cgroup", CgroupMode.HYBRID: "/sys/fs/cgroup/unified"}


def writable_hierarchy() -> Path | None:
    """This machine's v1 devices hierarchy; None where this process may not make a cgroup in it with any rules."""
    mount = devices_mount(parse_cgroup_mounts(Path("/proc/self/mountinfo").read_text()))
    if mount is None or not os.access(mount.point, os.W_OK):
        return None
    top = Path(mount.point)
    return top if (top / "devices.list").read_text().startswith("a *:* rwm") else None


def why_not_real(mode: CgroupMode) -> str | None:
    """Why no real cgroups of this mode can be made here; None where they can."""
    if mode is not CgroupMode.V2 and writable_hierarchy() is None:
        return "real cgroups need root and a v1 hierarchy"
    return None if mode is CgroupMode.V1 else _why_no_programs()


def kind_of_cgroups(mode: CgroupMode = CgroupMode.V1) -> str:
    """What the containers' cgroups are made of here."""
    reason = why_not_real(mode) if mode is CgroupMode.V1 else None  # only these can be files
    return f"real {mode} cgroups" if reason is None else f"files, as {reason}"


@contextmanager
def cgroups(mode: CgroupMode, root: Path, containers: Sequence[SimulatedContainer]) -> Iterator[None]:
    """The containers in the hierarchies of this mode, mounted below `root`; v1 ones are files where need be."""
    (root / "proc/1").mkdir(parents=True)
    (root / "proc/1/mountinfo").write_text(_mountinfo(mode))
    with ExitStack() as stack:
        if mode is not CgroupMode.V2:
            place, hierarchy = root / _DEVICES.lstrip("/"), writable_hierarchy()
            if hierarchy is None:
                _write_files(place, containers)
            else:
                stack.enter_context(_linked(place, hierarchy, containers, _make_devices_cgroup))
        if mode is not CgroupMode.V1:
            from tests.support.bpf import unified_hierarchy  # with pytest, which no measured process shall load

            hierarchy = unified_hierarchy()
            assert hierarchy is not None
            place = root / _UNIFIED[mode].lstrip("/")
            stack.enter_context(_linked(place, hierarchy, containers, _make_unified_cgroup))
        if mode is CgroupMode.HYBRID:
            stack.enter_context(_inhabited(root, containers))
        yield


def program_of(devices_list: str) -> bytes:
    """The program by which runc lets a container open these devices: it puts its rules into an order of their own."""
    from tests.support.bpf_programs import parse_rule, runc

    rules = [parse_rule(f"allow {line}") for line in devices_list.splitlines()]
    return runc(sorted(rules, key=lambda rule: [-1 if it is None else it for it in (rule.major, rule.minor)]))


def _why_no_programs() -> str | None:
    from tests.support.bpf import attached, unified_cgroup, unified_hierarchy

    if os.geteuid() != 0 or unified_hierarchy() is None:
        return "real cgroups need root and a cgroup2 hierarchy"
    try:
        with unified_cgroup() as cgroup, attached(cgroup, program_of("")):
            BpfReader(Bpf()).read(os.fspath(cgroup))
            return None
    except (OSError, PolicyUnreadable) as error:
        return f"the kernel takes or shows no device program: {error}"


def _mountinfo(mode: CgroupMode) -> str:
    devices = f"33 31 0:29 / {_DEVICES} rw - cgroup cgroup rw,devices\n"
    unified = f"41 31 0:38 / {_UNIFIED.get(mode)} rw - cgroup2 cgroup2 rw\n"
    return {CgroupMode.V1: devices, CgroupMode.V2: unified, CgroupMode.HYBRID: devices + unified}[mode]


@contextmanager
def _linked(place: Path, hierarchy: Path, containers: Sequence[SimulatedContainer], make: MakeCgroup) -> Iterator[None]:
    """Cgroups in one new folder of a hierarchy, to which `place` leads."""
    top = hierarchy / f"gpu-cgroup-bench-{secrets.token_hex(6)}"
    top.mkdir()
    try:
        for container in containers:
            folder = top / container.cgroup.lstrip("/")
            folder.mkdir(parents=True)
            make(folder, container)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(top)
        yield
    finally:
        for below, _, _ in os.walk(top, topdown=False):
            os.rmdir(below)


@contextmanager
def _inhabited(root: Path, containers: Sequence[SimulatedContainer]) -> Iterator[None]:
    """A sleeping process in each container's v1 cgroup, which /proc below the root says is in its v2 one, too."""
    sleepers: list[int] = []
    try:
        for container in containers:
            sleeper = os.fork()
            if sleeper == 0:
                signal.pause()
                os._exit(0)
            sleepers.append(sleeper)
            place = root / _DEVICES.lstrip("/") / container.cgroup.lstrip("/")
            (place / "cgroup.procs").write_text(str(sleeper))
            (root / f"proc/{sleeper}").mkdir()
            (root / f"proc/{sleeper}/cgroup").write_text(f"0::{container.cgroup}\n")
        yield
    finally:
        for sleeper in sleepers:
            os.kill(sleeper, signal.SIGKILL)
            os.waitpid(sleeper, 0)


def _write_files(place: Path, containers: Sequence[SimulatedContainer]) -> None:
    for container in containers:
        file = place / container.cgroup.lstrip("/") / "devices.list"
        file.parent.mkdir(parents=True)
        file.write_text(container.devices_list())


def _make_devices_cgroup(folder: Path, container: SimulatedContainer) -> None:
    """Allow the container's rules and nothing else."""
    (folder / "devices.deny").write_text("a")
    descriptor = os.open(folder / "devices.allow", os.O_WRONLY)
    try:
        for rule in container.devices_list().splitlines():
            os.write(descriptor, rule.encode())
    finally:
        os.close(descriptor)


def _make_unified_cgroup(folder: Path, container: SimulatedContainer) -> None:
    """Attach a program of the container's own, as a runtime does; it goes with the cgroup."""
    from tests.support.bpf import attach, loaded

    with loaded(program_of(container.devices_list())) as program:
        attach(folder, program)
