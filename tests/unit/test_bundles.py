# SPDX-License-Identifier: Apache-2.0
"""Where the bundles of containers are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from otel_gpu_cgroup.bundles import Bundles
from otel_gpu_cgroup.errors import HostUnreadable
from otel_gpu_cgroup.host import HostPaths
from tests.support.name_host import ID, FailingFiles, NameHost

if TYPE_CHECKING:
    from pathlib import Path

PLACES = [
    f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json",
    f"run/containerd/io.containerd.runtime.v2.task/default/{ID}/config.json",
    f"run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby/{ID}/config.json",
    f"run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json",
    f"run/containers/storage/overlay-containers/{ID}/userdata/config.json",
    f"var/lib/containers/storage/overlay-containers/{ID}/userdata/config.json",
    f"run/crun/{ID}/config.json",
]


@pytest.mark.parametrize("place", PLACES)
def test_each_place(tmp_path: Path, place: str) -> None:
    written = NameHost(tmp_path).write(place, "{}")
    bundles = Bundles(HostPaths(tmp_path))
    found = bundles.find(ID)
    assert found is not None
    assert found.path == str(written)
    assert bundles.find("0" * 64) is None
    assert bundles.are_here


def test_a_file_that_has_changed_has_another_state(tmp_path: Path) -> None:
    host, bundles = NameHost(tmp_path), Bundles(HostPaths(tmp_path))
    states = []
    for text in ("{}", "{ }"):
        host.bundle(ID, text)
        found = bundles.find(ID)
        assert found is not None
        states.append(found.state)
    assert states[0] != states[1]


def test_places_are_looked_for_once_in_a_cycle(tmp_path: Path) -> None:
    bundles = Bundles(HostPaths(tmp_path))
    assert (bundles.find(ID), bundles.are_here) == (None, False)
    NameHost(tmp_path).bundle(ID, "{}")
    assert bundles.find(ID) is None
    bundles.begin_cycle()
    assert bundles.find(ID) is not None


@pytest.mark.parametrize("identity", ["", ".", "..", "../../etc", "a/b"])
def test_an_id_that_is_a_path_finds_nothing(tmp_path: Path, identity: str) -> None:
    NameHost(tmp_path).write("run/crun/config.json", "{}")
    NameHost(tmp_path).write("run/config.json", "{}")
    NameHost(tmp_path).write("run/crun/a/b/config.json", "{}")
    assert Bundles(HostPaths(tmp_path)).find(identity) is None


def test_a_bundle_that_cannot_be_looked_at_raises(tmp_path: Path) -> None:
    NameHost(tmp_path).bundle(ID, "{}")
    seen = FailingFiles(0, is_gone=False)
    Bundles(HostPaths(tmp_path), seen).find(ID)
    with pytest.raises(HostUnreadable):
        Bundles(HostPaths(tmp_path), FailingFiles(seen.reads, is_gone=False)).find(ID)
    assert Bundles(HostPaths(tmp_path), FailingFiles(seen.reads, is_gone=True)).find(ID) is None
