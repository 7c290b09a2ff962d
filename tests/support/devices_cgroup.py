# SPDX-License-Identifier: Apache-2.0
"""Cgroups in this machine's v1 devices hierarchy, and the kernel itself as the judge of what they allow; needs root.

    need_devices_cgroup()
    with devices_cgroup() as cgroup, kernel_oracle(tmp_path, nodes) as kernel:
        cgroup.deny("a")
        cgroup.allow("c 195:0 rw")
        kernel.ask(cgroup.path)[nodes[0], READ_WRITE].allowed

The oracle is one child process that moves into a cgroup and asks for real device nodes: access(2) and open(2) to
read, to write and for both at once, mknod(2) to make them. EPERM is the cgroup's no; any other answer (ENXIO where
no driver is) comes after its yes. It answers for all nodes in one go, so hundreds of cgroups take a few seconds.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_gpu_cgroup.model import READ_WRITE, DeviceNode, DeviceType, Permission
from tests.support import device_asker
from tests.support.need import need
from tests.support.runc import devices_hierarchy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import IO

ASKED: Final = (Permission.READ, Permission.WRITE, READ_WRITE, Permission.MKNOD)
"""The requests that the kernel is asked for each node, in the order in which the child answers."""
_FILE_TYPES: Final = {DeviceType.CHAR: stat.S_IFCHR, DeviceType.BLOCK: stat.S_IFBLK}


class Answer(NamedTuple):
    """The kernel's answers to one request asked in two ways: 0, or an errno."""

    access: int
    open: int

    @property
    def allowed(self) -> bool:
        """Whether the cgroup lets it pass; a driver that says no comes after it."""
        return errno.EPERM not in self

    @property
    def agree(self) -> bool:
        """Whether both ways say the same of the cgroup."""
        return (self.access == errno.EPERM) == (self.open == errno.EPERM)


@dataclass(frozen=True, slots=True)
class DevicesCgroup:
    """One cgroup in the v1 devices hierarchy; a new one has the rules of the cgroup above it."""

    path: Path

    def allow(self, rule: str) -> bool:
        """Write a rule (`c 195:0 rw`, or `a` for everything) to devices.allow; whether the kernel took it."""
        return self._write("devices.allow", rule)

    def deny(self, rule: str) -> bool:
        """Write a rule to devices.deny; whether the kernel took it."""
        return self._write("devices.deny", rule)

    def devices_list(self) -> str:
        """What the kernel prints of its rules."""
        return (self.path / "devices.list").read_text()

    def _write(self, file: str, rule: str) -> bool:
        try:
            (self.path / file).write_text(rule)
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EINVAL):  # the kernel refuses; all else is a defect of the test
                return False
            raise
        return True


@contextmanager
def devices_cgroup(above: DevicesCgroup | None = None) -> Iterator[DevicesCgroup]:
    """A new cgroup, inside another or at the top, with the rules of the one above; removed in the end."""
    top = devices_hierarchy() if above is None else above.path
    assert top is not None
    cgroup = DevicesCgroup(top / f"gpu-cgroup-test-{secrets.token_hex(6)}")
    cgroup.path.mkdir()
    try:
        yield cgroup
    finally:
        cgroup.path.rmdir()


class KernelOracle:
    """The kernel's answers for a fixed set of nodes."""

    def __init__(self, child: subprocess.Popen[str], nodes: Sequence[DeviceNode], home: Path) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self._input: IO[str] = child.stdin
        self._output: IO[str] = child.stdout
        self._nodes = nodes
        self._home = home

    def ask(self, cgroup: Path) -> Mapping[tuple[DeviceNode, Permission], Answer]:
        """What a process in this cgroup gets, for each node and each of `ASKED`; the child leaves it again."""
        with self.inside(cgroup) as answers:
            return answers()

    @contextmanager
    def inside(self, cgroup: Path) -> Iterator[Callable[[], Mapping[tuple[DeviceNode, Permission], Answer]]]:
        """Let the child stay in the cgroup, and give what asks there: moving costs more than all the answers."""
        self._told(self._procs(cgroup))
        try:
            yield self._answers
        finally:
            self._told(self._procs(self._home))

    def _answers(self) -> Mapping[tuple[DeviceNode, Permission], Answer]:
        return {
            (node, permission): Answer(*pair)
            for node, pairs in zip(self._nodes, self._told(None), strict=True)
            for permission, pair in zip(ASKED, pairs, strict=True)
        }

    def _told(self, line: str | None) -> list[list[list[int]]]:
        self._input.write(json.dumps(line) + "\n")
        self._input.flush()
        answer = self._output.readline()
        assert answer, f"the child of the kernel oracle ended when it was told {line!r}"
        answers: list[list[list[int]]] = json.loads(answer)
        return answers

    @staticmethod
    def _procs(cgroup: Path) -> str:
        return os.fspath(cgroup / "cgroup.procs")


@contextmanager
def kernel_oracle(folder: Path, nodes: Sequence[DeviceNode], home: Path | None = None) -> Iterator[KernelOracle]:
    """Make the device nodes below `folder` and start the child, which goes back to `home` after every question.

    None is the top of the v1 devices hierarchy; for cgroup2 name the top of that one.
    """
    home = home or devices_hierarchy()
    assert home is not None
    places = folder / "nodes"
    places.mkdir()
    made = [_make_node(places, node) for node in nodes]
    command = [sys.executable, "-I", device_asker.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        child.stdin.write(json.dumps([made, os.fspath(places / "spare")]) + "\n")
        yield KernelOracle(child, nodes, home)
        child.stdin.close()


def need_devices_cgroup(folder: Path) -> None:
    """Skip (or fail where nothing may be skipped) unless cgroups and device nodes can be made here."""
    need(os.geteuid() == 0, "a cgroup's device rules need root")
    hierarchy = devices_hierarchy()
    need(hierarchy is not None, "no cgroup v1 devices hierarchy is mounted")
    need(hierarchy is not None and os.access(hierarchy, os.W_OK), "the cgroup v1 devices hierarchy is read-only")
    need(takes_nodes(folder), f"no device node can be made and opened below {folder}")


def takes_nodes(folder: Path) -> bool:
    """Whether device nodes can be made in this folder, and opened."""
    path = folder / "null"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        path.read_bytes()
    except OSError:
        return False
    finally:
        path.unlink(missing_ok=True)
    return True


def _make_node(places: Path, node: DeviceNode) -> tuple[str, int, int]:
    path = places / f"{node.type.value}-{node.major}-{node.minor}"
    mode, device = _FILE_TYPES[node.type] | 0o666, os.makedev(node.major, node.minor)
    os.mknod(path, mode, device)
    return os.fspath(path), mode, device
