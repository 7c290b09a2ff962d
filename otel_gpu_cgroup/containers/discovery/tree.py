# SPDX-License-Identifier: Apache-2.0
"""Walks a mounted hierarchy of cgroups. Only reads."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final, TypeAlias

from otel_gpu_cgroup.errors import Gone
from otel_gpu_cgroup.host import unreadable
from otel_gpu_cgroup.model import CgroupPath, Problem, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

_log: Final = logging.getLogger(__name__)
_LEAF_LINKS: Final = 2
"""st_nlink of a folder without subfolders on kernfs (2 + subfolders); btrfs and overlayfs always say 1."""


Cgroup: TypeAlias = tuple[CgroupPath, bool, int]
"""Its path, whether no cgroup is below it, and its folder's inode: a plain tuple, as a cycle makes thousands."""


def walk(top: str, problems: list[Problem], inner: AbstractSet[str] = frozenset()) -> Iterator[Cgroup]:
    """All cgroups below a hierarchy's top; leaves are not opened, nor are those of `inner` asked whether they are some.

    What ends meanwhile is left out, and what cannot be read goes to `problems`; raises HostUnreadable for the top.
    """
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            found = _subfolders(top, folder, inner)
        except OSError as error:
            trouble = unreadable(f"{top}{folder}", error)
            if not folder:
                raise trouble from error
            if isinstance(trouble, Gone):
                _log.debug("cgroup ended during the walk cgroup=%a error=%s", folder, error)
            else:
                problems.append(Problem(Stage.DISCOVERY, folder, str(trouble)))
            continue
        yield from found
        folders += [path for path, is_leaf, _ in found if not is_leaf]


def _subfolders(top: str, folder: str, inner: AbstractSet[str]) -> list[Cgroup]:
    """Asked through the opened folder: the kernel then looks up one name, not all the names of a long path."""
    descriptor = os.open(f"{top}{folder}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(descriptor) as entries:
            return [
                (path, path not in inner and _is_leaf(entry), entry.inode())
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and (path := CgroupPath(f"{folder}/{entry.name}"))
            ]
    finally:
        os.close(descriptor)


def _is_leaf(entry: os.DirEntry[str]) -> bool:
    """Whether a folder has no subfolders, as one has none that is gone."""
    try:
        return entry.stat(follow_symlinks=False).st_nlink == _LEAF_LINKS
    except OSError:
        return True
