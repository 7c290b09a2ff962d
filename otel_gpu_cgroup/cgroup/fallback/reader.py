# SPDX-License-Identifier: Apache-2.0
"""Asks one after the other who may know what a container was given, where the kernel does not tell. Only reads."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.bundles import Bundles
from otel_gpu_cgroup.cgroup.drivers import parse_drivers
from otel_gpu_cgroup.cgroup.fallback.nodes import read_container_nodes, read_node
from otel_gpu_cgroup.cgroup.fallback.oci import parse_bundle
from otel_gpu_cgroup.cgroup.fallback.stated import allows_a_gpu, nodes_policy
from otel_gpu_cgroup.cgroup.fallback.systemd import parse_unit, unit_policy
from otel_gpu_cgroup.errors import Gone, HostUnreadable, ParseError
from otel_gpu_cgroup.host import read_stored, read_text

if TYPE_CHECKING:
    from otel_gpu_cgroup.bundles import Bundle
    from otel_gpu_cgroup.cgroup.fallback.stated import StatedPolicy
    from otel_gpu_cgroup.host import HostPaths
    from otel_gpu_cgroup.model import Container, DeviceNode

_log: Final = logging.getLogger(__name__)
_TRANSIENT: Final = "/run/systemd/transient"
_UNITS: Final = (".scope", ".service")


class Fallbacks:
    """Remembers for a cycle what all containers share, and for as long as it is met what a bundle said."""

    def __init__(self, host: HostPaths) -> None:
        self._host = host
        self._bundles = Bundles(host)
        self._met: dict[str, tuple[tuple[int, ...], StatedPolicy | None]] = {}
        """What bundles said, of this cycle, by their files and what tells a changed file."""
        self._met_before: dict[str, tuple[tuple[int, ...], StatedPolicy | None]] = {}

    def begin_cycle(self) -> None:
        """Let go of what the last cycle did not meet."""
        self._bundles.begin_cycle()
        self._met_before, self._met = self._met, {}

    def read(self, container: Container) -> StatedPolicy | None:
        """What the first says that knows the container: systemd, its OCI bundle, its own /dev; None if nobody does."""
        for read in (self._read_unit, self._read_bundle, self._read_nodes):
            try:
                stated = read(container)
                if stated is not None and not self._knows_too_little(stated, container):
                    return stated
            except (HostUnreadable, ParseError) as error:
                _log.debug("fallback without an answer cgroup=%a error=%s", container.cgroup, error)
        return None

    def _knows_too_little(self, stated: StatedPolicy, container: Container) -> bool:
        """Whether it allows no GPU while the container's own /dev has one: NVIDIA's legacy hook tells nobody else."""
        return not allows_a_gpu(stated) and (nodes := self._read_nodes(container)) is not None and allows_a_gpu(nodes)

    def _read_unit(self, container: Container) -> StatedPolicy | None:
        name = container.cgroup.rpartition("/")[2]
        if not name.endswith(_UNITS):
            return None
        files = (name, f"{name}.d/50-DevicePolicy.conf", f"{name}.d/50-DeviceAllow.conf")
        unit = parse_unit("".join(self._read_if_there(f"{_TRANSIENT}/{file}") for file in files))
        if unit is None:
            return None
        return unit_policy(unit, parse_drivers(read_text(self._host.proc / "devices")), self._node_at)

    def _read_if_there(self, path: str) -> str:
        try:
            return read_stored(self._host.under_root(path)) + "\n"
        except Gone:
            return ""

    def _node_at(self, path: str) -> DeviceNode | None:
        return read_node(os.fspath(self._host.under_root(path)))

    def _read_bundle(self, container: Container) -> StatedPolicy | None:
        if container.id is None:
            return None
        bundle = self._bundles.find(container.id)
        return None if bundle is None else self._read_config(bundle)

    def _read_config(self, bundle: Bundle) -> StatedPolicy | None:
        """What a bundle's configuration says; parsed once, as it is long and does not change. Raises HostUnreadable."""
        known = self._met.get(bundle.path) or self._met_before.get(bundle.path)
        if known is None or known[0] != bundle.state:
            known = (bundle.state, parse_bundle(read_stored(bundle.path)))
        self._met[bundle.path] = known
        return known[1]

    def _read_nodes(self, container: Container) -> StatedPolicy | None:
        cgroup = container.devices or container.unified
        nodes = None if cgroup is None else read_container_nodes(self._host, cgroup)
        return None if nodes is None else nodes_policy(nodes)
