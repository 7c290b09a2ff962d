# SPDX-License-Identifier: Apache-2.0
"""What the agent tells where bpf(2) is refused: outside, as a root without the capabilities for it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import otel_gpu_cgroup
from tests.fakes.fake_nvml import World
from tests.integration.gpu_nodes import EVERY_GPU, GPUS, ONE_GPU, attributes, deny_minor, nodes, rows
from tests.integration.host_tree import write
from tests.support.bpf import attached, need_bpf, unified_hierarchy
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.support.need import need
from tests.support.runc import (
    DENY_ALL,
    Bind,
    RuncContainer,
    RuncSpec,
    docker_cgroup,
    need_runc,
    runc_container,
)

if TYPE_CHECKING:
    from tests.support.agent import Driver

UNIT: Final = "[Scope]\nDevicePolicy=strict\n"
PACKAGE: Final = Path(otel_gpu_cgroup.__file__).parent
REFUSED: Final = "-sys_admin,-net_admin"
"""What root lacks to be refused by bpf(2); with CAP_NET_ADMIN alone it would still learn that there is no program."""


@pytest.fixture(autouse=True)
def parts(driver: Driver) -> None:
    need_runc()
    need_bpf()
    driver.set(World(gpus=GPUS))
    need(shutil.which("setpriv"), "setpriv is not installed")


def _weak_command(driver: Driver, lacks: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    weak = ["setpriv", "--bounding-set", lacks, "--inh-caps", lacks]
    command = [*weak, sys.executable, "-m", "otel_gpu_cgroup", *arguments]
    return command, {**os.environ, **driver.variables(), "PYTHONPATH": str(PACKAGE.parent)}


def _weak_once(driver: Driver, root: Path, lacks: str = REFUSED) -> dict[str, Any]:
    command, environment = _weak_command(driver, lacks, "once", "--format", "json", "--host-root", str(root))
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _host(tmp_path: Path) -> Path:
    """This machine under another root, where a test can put what systemd and engines write."""
    root = tmp_path / "host"
    root.mkdir()
    for name in ("proc", "sys", "dev"):
        (root / name).symlink_to(f"/{name}")
    return root


def _bundle_of(container: RuncContainer) -> Path:
    return container.output.parent / "config.json"


def _named(document: dict[str, Any], container: RuncContainer) -> dict[str, Any]:
    [found] = [one for one in document["containers"] if one["cgroup"] == container.cgroup]
    return dict(found)


def test_the_missing_capability_is_named_once_and_each_fallback_tells_in_its_turn(
    driver: Driver, tmp_path: Path
) -> None:
    root = _host(tmp_path)
    scope = f"docker-{docker_cgroup().rpartition('/')[2]}.scope"
    one = RuncSpec(docker_cgroup(), EVERY_GPU, binds=nodes(tmp_path, [0, 1]))
    other = RuncSpec(f"/system.slice/{scope}", ONE_GPU)
    with runc_container(tmp_path, one) as in_docker, runc_container(tmp_path, other) as in_systemd:
        document = _weak_once(driver, root)
        for container, expected in ((in_docker, ["GPU-0", "GPU-1"]), (in_systemd, [])):
            found = _named(document, container)
            assert (found["source"], rows(found)) == ("nodes", expected)
        _assert_refused_once(document)

        bundle = root / "run/crun" / in_docker.cgroup.rpartition("/")[2] / "config.json"
        write(bundle, _bundle_of(in_docker).read_text())
        unit = root / f"run/systemd/transient/{scope}.d/50-DeviceAllow.conf"
        write(unit, f"{UNIT}DeviceAllow=/dev/char/195:0 rw\nDeviceAllow=/dev/char/195:2 rw\n")
        document = _weak_once(driver, root)
        asked, told = _named(document, in_docker), _named(document, in_systemd)
        assert (asked["access"], asked["source"]) == ("explicit", "oci")
        assert rows(asked) == ["GPU-0", "GPU-1", "GPU-2"]
        # what v1 denies (here GPU 2) is denied, whatever systemd was told
        assert (told["access"], told["source"], rows(told)) == ("explicit", "systemd", ["GPU-0"])
        _assert_refused_once(document)


def _assert_refused_once(document: dict[str, Any]) -> None:
    refusals = [problem for problem in document["problems"] if "CAP_SYS_ADMIN" in problem["message"]]
    assert [(problem["stage"], problem["subject"]) for problem in refusals] == [("policy", "bpf(2)")]


def test_without_cap_sys_admin_programs_are_counted_and_not_read(driver: Driver, tmp_path: Path) -> None:
    hierarchy = unified_hierarchy()
    assert hierarchy is not None
    root = _host(tmp_path)
    with runc_container(tmp_path, RuncSpec(docker_cgroup(), ONE_GPU, binds=nodes(tmp_path, [0]))) as container:
        free = _named(_weak_once(driver, root, "-sys_admin"), container)
        with attached(hierarchy / container.cgroup.lstrip("/"), deny_minor(1)):
            document = _weak_once(driver, root, "-sys_admin")
    held = _named(document, container)
    assert (free["access"], free["source"], rows(free)) == ("explicit", "devices.list+bpf", ["GPU-0"])
    assert (held["access"], held["source"], rows(held)) == ("explicit", "nodes", ["GPU-0"])
    _assert_refused_once(document)


def test_v1s_denial_stands_without_a_fallback(driver: Driver, tmp_path: Path) -> None:
    spec = RuncSpec(docker_cgroup(), (DENY_ALL,), binds=nodes(tmp_path, [0]))
    with runc_container(tmp_path, spec) as container:
        found = _named(_weak_once(driver, _host(tmp_path)), container)
    assert (found["access"], found["source"], rows(found)) == ("none", "devices.list", [])


def test_where_nobody_answers_access_is_unknown(driver: Driver, tmp_path: Path) -> None:
    """The container's /dev is this machine's, no unit and no bundle is known."""
    spec = RuncSpec(docker_cgroup(), ONE_GPU, binds=[Bind("/dev", "/dev", writable=True)])
    with runc_container(tmp_path, spec) as container:
        document = _weak_once(driver, _host(tmp_path))
        found = _named(document, container)
    assert (found["access"], found["source"], rows(found)) == ("unknown", "none", [])
    _assert_refused_once(document)


def test_a_fallback_gives_rows_and_no_access_point(driver: Driver, tmp_path: Path) -> None:
    command, environment = _weak_command(driver, REFUSED, "run", "--exporter", "console", "--interval", "1")
    output = tmp_path / "output"
    spec = RuncSpec(docker_cgroup(), ONE_GPU, binds=nodes(tmp_path, [0]))
    with runc_container(tmp_path, spec) as container, output.open("wb") as out:
        key = f"container.id={container.cgroup.rpartition('/')[2]}"
        agent = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        try:
            memory = "container.accelerator.memory.used"
            eventually(lambda: key in attributes(output.read_text(), memory), output.read_text)
            agent.send_signal(signal.SIGTERM)
            assert agent.wait(PATIENCE_SECONDS) == 0
        finally:
            agent.kill()
            agent.wait()
    log = output.read_text()
    assert key not in attributes(log, "container.gpu.access")
    assert len([line for line in log.splitlines() if "warning" in line and "CAP_SYS_ADMIN" in line]) == 1
