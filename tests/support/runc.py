# SPDX-License-Identifier: Apache-2.0
"""Real containers, made by Debian's runc out of busybox-static; needs root and the packages of both.

    need_runc()
    with runc_container(tmp_path, RuncSpec(cgroup=docker_cgroup(), rules=("allow c 195:0 rw",))) as container:
        container.devices_cgroup / "devices.list"

A container is up when its own program runs in it. runc lets a new cgroup pass through allow-all and deny-all before
its rules are in place, all of it before it runs the program; so no test sees that. The container is always deleted;
the folder above its cgroup (such as /docker) stays, as another test may be making a container in it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.containers.discovery.mounts import devices_mount, parse_cgroup_mounts
from tests.support.need import need

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BUSYBOX: Final = "/usr/bin/busybox"
DENY_ALL: Final = "deny a *:* rwm"
"""What every engine begins the rules of a container with that is not privileged."""
PRIVILEGED: Final = ("allow a *:* rwm",)
"""The rules of a privileged container."""
ENGINE_CAPABILITIES: Final = tuple(
    f"CAP_{name}"
    for name in (
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
        *("NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    )
)
"""What Docker leaves to a container that is not privileged."""
_SECONDS: Final = 20.0
_FOREVER: Final = ("/bin/busybox", "sleep", "1000000")


def docker_cgroup() -> str:
    """The cgroup of a new container as Docker's cgroupfs driver names it."""
    return f"/docker/{secrets.token_hex(32)}"


@dataclass(frozen=True, slots=True)
class Bind:
    """One file or folder of this machine that a container sees."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class RuncSpec:
    """What a container is to be: `linux.resources.devices` and its surroundings in OCI's config.json."""

    cgroup: str
    """Its path in every hierarchy, such as `/docker/<64 hexadecimal digits>`."""
    rules: Sequence[str] = ()
    """`allow|deny TYPE MAJOR:MINOR ACCESS` in OCI's order, such as `allow c 195:0 rw`; runc adds its defaults."""
    args: Sequence[str] = _FOREVER
    env: Mapping[str, str] = field(default_factory=dict)
    binds: Sequence[Bind] = ()
    namespaces: Sequence[str] = ("pid", "mount", "ipc", "uts", "cgroup")
    """Without `pid`, `network` or `cgroup` it shares the test's; `mount` runc needs."""
    uid: int = 0
    read_only: bool = True
    """Whether its root is."""
    capabilities: Sequence[str] = ENGINE_CAPABILITIES
    sees_v1: bool = True
    """Whether its cgroups in the v1 hierarchies are mounted at /sys/fs/cgroup."""


@dataclass(frozen=True, slots=True)
class RuncContainer:
    """One running container."""

    id: str
    pid: int
    """Of its first process, in the test's PID namespace."""
    cgroup: str
    devices_cgroup: Path
    """Its folder in the v1 devices hierarchy."""
    output: Path
    """The file that its first process writes stdout and stderr to."""
    state: Path

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """What a program does inside it; busybox is at /bin/busybox, its applets in /bin."""
        return _runc(self.state, "exec", self.id, *args)


def need_runc() -> None:
    """Skip (or fail where nothing may be skipped) unless real containers can be made here."""
    need(os.geteuid() == 0, "runc containers need root")
    need(shutil.which("runc"), "runc is not installed")
    need(os.path.exists(BUSYBOX), "busybox-static is not installed")
    need(devices_hierarchy() is not None, "no cgroup v1 devices hierarchy is mounted")


def devices_hierarchy() -> Path | None:
    """Where this machine's v1 devices hierarchy is mounted; None where it is not."""
    mount = devices_mount(parse_cgroup_mounts(Path("/proc/self/mountinfo").read_text()))
    return None if mount is None else Path(mount.point)


@contextmanager
def runc_container(tmp_path: Path, spec: RuncSpec) -> Iterator[RuncContainer]:
    """Create and start it, yield when its program runs, delete it whatever happens; several may share `tmp_path`."""
    name = f"gpu-cgroup-test-{secrets.token_hex(6)}"
    bundle, state = tmp_path / name, tmp_path / "runc"
    _write_bundle(bundle, spec)
    try:
        yield _started(name, bundle, state, spec)
    finally:
        _runc(state, "delete", "--force", name)
        shutil.rmtree(bundle)


def _started(name: str, bundle: Path, state: Path, spec: RuncSpec) -> RuncContainer:
    hierarchy = devices_hierarchy()
    assert hierarchy is not None
    output, pid_file = bundle / "output", bundle / "pid"
    with output.open("wb") as out:
        create = ["runc", "--root", str(state), "create", "--bundle", str(bundle), "--pid-file", str(pid_file), name]
        created = subprocess.run(
            create, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=_SECONDS, check=False
        )
    assert created.returncode == 0, f"runc create: {output.read_text()}"
    pid = int(pid_file.read_text())
    command_of_runc = _command(pid)
    started = _runc(state, "start", name)
    assert started.returncode == 0, f"runc start: {started.stderr}"
    deadline = time.monotonic() + _SECONDS
    while _command(pid) == command_of_runc:  # it waits for "start" and then becomes the container's program
        assert time.monotonic() < deadline, f"after {_SECONDS} s the container's process is still {command_of_runc!r}"
        time.sleep(0.002)
    return RuncContainer(name, pid, spec.cgroup, hierarchy / spec.cgroup.lstrip("/"), output, state)


def _command(pid: int) -> bytes:
    """The command line of a process; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _runc(state: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = ["runc", "--root", str(state), *args]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
    )


def _write_bundle(bundle: Path, spec: RuncSpec) -> None:
    root = bundle / "rootfs"
    for folder in ("bin", "dev", "etc", "proc", "run", "sys", "tmp"):
        (root / folder).mkdir(parents=True)
    shutil.copy2(BUSYBOX, root / "bin/busybox")
    for applet in ("cat", "id", "ls", "sh", "sleep"):
        (root / "bin" / applet).symlink_to("busybox")
    bundle.chmod(0o755)  # so that a container with another uid can pass
    (bundle / "config.json").write_text(json.dumps(_config(spec)))


def _config(spec: RuncSpec) -> dict[str, object]:
    return {
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs", "readonly": spec.read_only},
        "process": {
            "user": {"uid": spec.uid, "gid": spec.uid},
            "args": list(spec.args),
            "env": [f"{name}={value}" for name, value in {"PATH": "/usr/bin:/bin", **spec.env}.items()],
            "cwd": "/",
            "capabilities": {key: list(spec.capabilities) for key in ("bounding", "effective", "permitted")},
        },
        "mounts": [*_BASE_MOUNTS, *((_V1_MOUNT,) if spec.sees_v1 else ()), *(_bind(bind) for bind in spec.binds)],
        "linux": {
            "cgroupsPath": spec.cgroup,
            "namespaces": [{"type": kind} for kind in spec.namespaces],
            "resources": {"devices": [_rule(rule) for rule in spec.rules]},
        },
    }


_BASE_MOUNTS: Final = (
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755"]},
    {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
    {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]},
)
_V1_MOUNT: Final = {
    "destination": "/sys/fs/cgroup",
    "type": "cgroup",
    "source": "cgroup",
    "options": ["nosuid", "nodev", "ro"],
}


def _bind(bind: Bind) -> dict[str, object]:
    options = ["rbind", "rw" if bind.writable else "ro"]
    return {"destination": bind.target, "type": "bind", "source": bind.source, "options": options}


def _rule(rule: str) -> dict[str, object]:
    """OCI's form of a rule; a wildcard is an absent number there."""
    verb, kind, numbers, access = rule.split()
    pairs = zip(("major", "minor"), numbers.split(":"), strict=True)
    given = {name: int(number) for name, number in pairs if number != "*"}
    return {"allow": verb == "allow", "type": kind, "access": access, **given}
