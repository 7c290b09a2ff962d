# SPDX-License-Identifier: Apache-2.0
"""Pure: what a cgroup's path means that a reader in a cgroup namespace is shown.

The kernel tells every path from the root of the reader's namespace: `/../b` is a sibling of that root, `/b` is below
it. Where the host's tree is mounted, the same cgroup has a path from the top of that tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class KnownPaths:
    """The paths of a tree, to be looked up by how they end."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._by_name: dict[str, list[str]] = {}
        for path in paths:
            self._by_name.setdefault(path.rpartition("/")[2], []).append(path)

    def ending_in(self, names: Sequence[str]) -> list[str]:
        """Those whose last names are these."""
        end = "/" + "/".join(names)
        return [path for path in self._by_name.get(names[-1], ()) if path.endswith(end)]


def resolve_path(shown: str, own: str | None, known: KnownPaths) -> str | None:
    """The path in the host's tree of a cgroup that is shown as this; None where it cannot be told, or is outside.

    `own` is the path in that tree of the root of the reader's cgroup namespace: "/" without a namespace, None where
    nobody can tell. Then it is the only known path that ends with what follows the dots, or with as many names of
    that as a known path ends with: the rest is below it.
    """
    names = [name for name in shown.split("/") if name]
    up = next((place for place, name in enumerate(names) if name != ".."), len(names))
    if own is None:
        return _resolve_by_end(names[up:], known)
    base = [name for name in own.split("/") if name]
    return None if up > len(base) else "/" + "/".join(base[: len(base) - up] + names[up:])


def _resolve_by_end(names: Sequence[str], known: KnownPaths) -> str | None:
    for length in range(len(names), 0, -1):
        found = known.ending_in(names[:length])
        if found:
            return "/".join([found[0], *names[length:]]) if len(found) == 1 else None
    return None
