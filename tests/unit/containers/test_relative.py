# SPDX-License-Identifier: Apache-2.0
"""What the paths mean that a reader in a cgroup namespace is shown."""

from __future__ import annotations

from typing import Final

import pytest

from otel_gpu_cgroup.containers.discovery.relative import KnownPaths, resolve_path

POD: Final = "/kubepods.slice/kubepods-pod1.slice"
TREE: Final = KnownPaths(
    [
        "/init.scope",
        "/system.slice",
        "/system.slice/ssh.service",
        "/docker/one",
        "/docker/two",
        "/docker/two/system.slice",
        "/docker/two/system.slice/ssh.service",
        f"{POD}/agent",
        f"{POD}/other",
    ]
)


@pytest.mark.parametrize(
    ("shown", "own", "path"),
    [
        ("/docker/one", "/", "/docker/one"),
        ("/", "/", "/"),
        ("/", "/docker/one", "/docker/one"),
        ("/inner", "/docker/one", "/docker/one/inner"),
        ("/..", "/docker/one", "/docker"),
        ("/../..", "/docker/one", "/"),
        ("/../two", "/docker/one", "/docker/two"),
        ("/../../system.slice/ssh.service", "/docker/one", "/system.slice/ssh.service"),
        ("/../other/container", f"{POD}/agent", f"{POD}/other/container"),
        ("/../../../docker/one", f"{POD}/agent", "/docker/one"),
        ("/../../../docker/one", "/docker/one", None),  # above what is mounted
        ("/../one", "/", None),
        ("/a/../b", "/docker/one", "/docker/one/a/../b"),  # dots elsewhere are no way up
    ],
)
def test_with_the_own_path_dots_lead_upwards_from_it(shown: str, own: str, path: str | None) -> None:
    assert resolve_path(shown, own, KnownPaths([])) == path


@pytest.mark.parametrize(
    ("shown", "path"),
    [
        ("/../two", "/docker/two"),
        ("/../../docker/one", "/docker/one"),
        ("/../../docker/one/init.scope", "/docker/one/init.scope"),  # as long a head as is known, the rest below it
        ("/../other", f"{POD}/other"),
        ("/../../system.slice/ssh.service", None),  # two end so
        ("/../../init.scope", "/init.scope"),
        ("/../unheard-of", None),
        ("/..", None),
        ("/", None),
        ("", None),
        ("/../o", None),  # whole names
    ],
)
def test_without_it_the_only_path_that_ends_so(shown: str, path: str | None) -> None:
    assert resolve_path(shown, None, TREE) == path
