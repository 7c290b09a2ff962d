# SPDX-License-Identifier: Apache-2.0
"""Containers that real runc and crun create on cgroup2, also on a machine that mounts v1 controllers.

Both look at /sys/fs/cgroup to see which version there is, so each call gets a mount namespace of its own in which
cgroup2 is mounted there. A container that is created has its cgroup, its program and a first process that waits to
be started; nothing more is needed to ask what its cgroup allows.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.support.bpf import need_bpf, unified_hierarchy
from tests.support.need import need
from tests.support.runc import DENY_ALL, PRIVILEGED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_ON_CGROUP2: Final = ("unshare", "--mount", "sh", "-c", 'mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"', "sh")
_SHIM: Final = "int setrlimit(int resource, const void *limit) { (void)resource; (void)limit; return 0; }\n"
"""crun raises a limit for old kernels, which a root without CAP_SYS_RESOURCE may not and none since 5.11 needs."""
_SECONDS: Final = 20.0
_EVERYTHING: Final = frozenset(range(20))


@dataclass(frozen=True, slots=True)
class Case:
    """A container's rules in OCI's order, and the minors up to 19 of the GPUs that it may then open."""

    rules: Sequence[str]
    gpus: frozenset[int]


CASES: Final[Mapping[str, Case]] = {
    "no-gpu": Case((DENY_ALL,), frozenset()),
    "one-gpu": Case((DENY_ALL, "allow c 195:0 rw", "allow c 195:255 rw"), frozenset({0})),
    "one-gpu-with-mknod": Case((DENY_ALL, "allow c 195:7 rwm", "allow c 195:255 rwm"), frozenset({7})),
    "eight-gpus": Case((DENY_ALL, *(f"allow c 195:{minor} rw" for minor in range(8))), frozenset(range(8))),
    "every-gpu-by-a-wildcard": Case((DENY_ALL, "allow c 195:* rwm"), _EVERYTHING),
    "every-character-device": Case((DENY_ALL, "allow c *:* rwm"), _EVERYTHING),
    "mknod-alone": Case((DENY_ALL, "allow c 195:* m"), frozenset()),
    "reading-alone": Case((DENY_ALL, "allow c 195:0 r"), frozenset()),
    "a-gpu-taken-back": Case((DENY_ALL, "allow c 195:0 rw", "allow c 195:1 rw", "deny c 195:0 rw"), frozenset({1})),
    "privileged": Case(PRIVILEGED, _EVERYTHING),
    "deny-list": Case((*PRIVILEGED, "deny c 195:3 rw", "deny c 195:4 rwm"), _EVERYTHING - {3, 4}),
    "deny-list-of-writes": Case((*PRIVILEGED, "deny c 195:5 w"), _EVERYTHING),
    "block-devices-of-the-same-numbers": Case((DENY_ALL, "allow b 195:0 rw"), frozenset()),
}


def need_runtime(runtime: str) -> None:
    """Skip (or fail where nothing may be skipped) unless it can create containers on cgroup2 here."""
    need_bpf()
    need(shutil.which(runtime), f"{runtime} is not installed")
    need(
        runtime != "crun" or shutil.which("gcc"), "crun's setrlimit is replaced by what gcc compiles, which is not here"
    )
    tried = subprocess.run([*_ON_CGROUP2, "true"], capture_output=True, text=True, check=False)
    need(tried.returncode == 0, f"cgroup2 cannot be mounted in a namespace of its own: {tried.stderr.strip()}")


@contextmanager
def created(
    runtime: str, tmp_path: Path, rules: Sequence[str], above: Path | None = None, name: str | None = None
) -> Iterator[Path]:
    """A new container's cgroup, inside another or at the top; the container is deleted in the end."""
    top = unified_hierarchy()
    assert top is not None
    cgroup = (above or top) / (name or f"gpu-cgroup-test-{secrets.token_hex(6)}")
    bundle = _bundle(tmp_path / cgroup.name, f"/{cgroup.relative_to(top)}", rules)
    environment = {**os.environ, **({"LD_PRELOAD": str(_shim(tmp_path))} if runtime == "crun" else {})}
    command = [*_ON_CGROUP2, runtime, "--root", str(tmp_path / runtime)]
    try:
        _run([*command, "create", "--bundle", str(bundle), cgroup.name], bundle, environment)
        yield cgroup
    finally:
        _run([*command, "delete", "--force", cgroup.name], bundle, environment)


def _run(command: Sequence[str], bundle: Path, environment: Mapping[str, str]) -> None:
    """The container's process keeps what it was given as output, so that is a file."""
    output = bundle / "output"
    with output.open("ab") as file:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, timeout=_SECONDS, check=False
        )
    assert ran.returncode == 0, f"{' '.join(command)}: {output.read_text()}"


def _bundle(bundle: Path, cgroup: str, rules: Sequence[str]) -> Path:
    for folder in ("dev", "proc", "sys"):
        (bundle / "rootfs" / folder).mkdir(parents=True)
    (bundle / "rootfs/never-started").touch(mode=0o755)
    config = {
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs"},
        "process": {"user": {"uid": 0, "gid": 0}, "args": ["/never-started"], "cwd": "/"},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "linux": {
            "cgroupsPath": cgroup,
            "namespaces": [{"type": "pid"}, {"type": "mount"}],
            "resources": {"devices": [_oci(rule) for rule in rules]},
        },
    }
    (bundle / "config.json").write_text(json.dumps(config))
    return bundle


def _oci(rule: str) -> dict[str, object]:
    """OCI's form of a rule; a wildcard is an absent number there."""
    verb, kind, numbers, access = rule.split()
    pairs = zip(("major", "minor"), numbers.split(":"), strict=True)
    given = {name: int(number) for name, number in pairs if number != "*"}
    return {"allow": verb == "allow", "type": kind, "access": access, **given}


def _shim(tmp_path: Path) -> Path:
    library, source = tmp_path / "no-setrlimit.so", tmp_path / "no-setrlimit.c"
    if not library.exists():
        source.write_text(_SHIM)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library
