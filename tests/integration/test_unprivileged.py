# SPDX-License-Identifier: Apache-2.0
"""What a process in a container finds out about it without any privilege.

Containers are runc's, with Python, the package and the C fake of the driver's library from this machine, seen
read-only; they have uid 65534, no capability and namespaces of their own.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import otel_gpu_cgroup
from tests.fakes.fake_nvml import GIB, LIBRARY_NAME, World
from tests.integration.gpu_nodes import EVERY_GPU, GPUS, ONE_GPU, attributes, deny_minor, nodes, rows
from tests.integration.host_tree import write
from tests.support.bpf import attached, need_bpf, unified_hierarchy
from tests.support.eventually import eventually
from tests.support.runc import (
    DENY_ALL,
    PRIVILEGED,
    Bind,
    RuncContainer,
    RuncSpec,
    docker_cgroup,
    need_runc,
    runc_container,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.agent import Driver

NOBODY: Final = 65534
PACKAGE: Final = Path(otel_gpu_cgroup.__file__).parent


@pytest.fixture(autouse=True)
def parts(driver: Driver) -> None:
    need_runc()
    driver.set(World(gpus=GPUS))
    os.chmod(driver.world_file, 0o644)


def _inside(driver: Driver, rules: Sequence[str], binds: Sequence[Bind], **changes: Any) -> RuncSpec:
    """A container without privileges in which the product can be run."""
    roots = ("/usr", "/lib", "/lib64", sys.prefix, sys.base_prefix)
    system = [Bind(root, root) for root in dict.fromkeys(roots) if os.path.isdir(root) and not _below_usr(root)]
    product = [
        Bind(str(PACKAGE), "/opt/otel_gpu_cgroup"),
        Bind(str(driver.library_dir / LIBRARY_NAME), f"/opt/driver/{LIBRARY_NAME}"),
        Bind(str(driver.world_file), "/opt/driver/world"),
    ]
    variables = {"PYTHONPATH": "/opt", "LD_LIBRARY_PATH": "/opt/driver", "FAKE_NVML_FILE": "/opt/driver/world"}
    spec: dict[str, Any] = {"uid": NOBODY, "capabilities": (), "cgroup": docker_cgroup(), **changes}
    return RuncSpec(rules=rules, binds=[*system, *product, *binds], env=variables, **spec)


def _below_usr(root: str) -> bool:
    return root.startswith("/usr/")


def _once(container: RuncContainer, *options: str) -> tuple[dict[str, Any], str]:
    """What `once` prints and logs inside."""
    done = container.run(sys.executable, "-m", "otel_gpu_cgroup", "once", "--format", "json", *options)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document, done.stderr


def _own(document: dict[str, Any]) -> dict[str, Any]:
    [own] = document["containers"]
    return dict(own)


def test_a_container_finds_its_own_gpu_without_any_privilege(driver: Driver, tmp_path: Path) -> None:
    with runc_container(tmp_path, _inside(driver, ONE_GPU, nodes(tmp_path, [0, 1]))) as container:
        assert container.run("/bin/busybox", "id", "-u").stdout.strip() == str(NOBODY)
        document, log = _once(container)
    own = _own(document)
    assert (own["access"], own["source"], rows(own)) == ("explicit", "probe", ["GPU-0"])
    assert (own["id"], own["cgroup"]) == (None, "/")
    assert own["accelerators"][0]["memory_used"] == GIB
    assert document["problems"] == []
    [warning] = log.splitlines()
    assert "warning" in warning
    assert "scope=self" in warning


@pytest.mark.parametrize(
    ("rules", "minors", "expected"),
    [
        (EVERY_GPU, (0, 1, 2), ("explicit", "probe", ["GPU-0", "GPU-1", "GPU-2"])),
        ((DENY_ALL,), (0, 1, 2), ("none", "probe", [])),
        ((DENY_ALL, "allow c 195:* r"), (0,), ("none", "probe", [])),
        # a list that allows by default hides its holes, and access(2) finds them
        ((*PRIVILEGED, "deny c 195:1 rw"), (0, 1), ("explicit", "probe", ["GPU-0", "GPU-2"])),
        ((DENY_ALL, "allow c 195:2 rw"), (), ("explicit", "devices.list", ["GPU-2"])),
        ((DENY_ALL,), (), ("none", "devices.list", [])),
    ],
)
def test_the_verdicts_inside(
    driver: Driver, tmp_path: Path, rules: tuple[str, ...], minors: tuple[int, ...], expected: tuple[object, ...]
) -> None:
    with runc_container(tmp_path, _inside(driver, rules, nodes(tmp_path, minors))) as container:
        document, log = _once(container, "--scope", "self")
    own = _own(document)
    assert (own["access"], own["source"], rows(own)) == expected
    assert log == ""


@contextmanager
def _inside_v2(driver: Driver, tmp_path: Path, binds: Sequence[Bind]) -> Iterator[tuple[RuncContainer, Path]]:
    """A container that sees nothing of cgroup v1, and its folder in the cgroup2 hierarchy."""
    need_bpf()
    hierarchy = unified_hierarchy()
    assert hierarchy is not None
    cgroup = docker_cgroup()
    folder = hierarchy / cgroup.lstrip("/")
    folder.mkdir(parents=True)
    visible = [*binds, Bind(str(folder), "/sys/fs/cgroup")]
    with runc_container(tmp_path, _inside(driver, PRIVILEGED, visible, cgroup=cgroup, sees_v1=False)) as container:
        yield container, folder


def test_device_programs_are_obeyed_inside(driver: Driver, tmp_path: Path) -> None:
    with _inside_v2(driver, tmp_path, nodes(tmp_path, [0, 1])) as (container, cgroup):
        before = _once(container)[0]
        with attached(cgroup, deny_minor(0)):
            during = _own(_once(container)[0])
            with attached(cgroup, deny_minor(1)):
                twice = _own(_once(container)[0])
    assert before["host"]["cgroup"] == "v2"
    assert before["problems"] == []
    for own, access, expected in (
        (_own(before), "explicit", ["GPU-0", "GPU-1"]),
        (during, "explicit", ["GPU-1"]),
        (twice, "none", []),
    ):
        assert (own["access"], own["source"], rows(own)) == (access, "probe", expected)


def test_without_any_node_no_gpu_is_its(driver: Driver, tmp_path: Path) -> None:
    with _inside_v2(driver, tmp_path, []) as (container, _):
        own = _own(_once(container)[0])
    assert (own["access"], own["source"], rows(own)) == ("none", "probe", [])


def test_a_node_that_its_mode_closes_is_unknown(driver: Driver, tmp_path: Path) -> None:
    with _inside_v2(driver, tmp_path, nodes(tmp_path, [0, 1], mode=0o600)) as (container, _):
        document = _once(container)[0]
    own = _own(document)
    assert (own["access"], own["source"], rows(own)) == ("unknown", "none", [])
    [problem] = document["problems"]
    assert (problem["stage"], problem["subject"]) == ("policy", "/")
    assert "195:0" in problem["message"]


def test_of_a_node_that_its_mode_closes_the_own_list_tells(driver: Driver, tmp_path: Path) -> None:
    binds = nodes(tmp_path, [0, 1], mode=0o600)
    with runc_container(tmp_path, _inside(driver, ONE_GPU, binds)) as container:
        own = _own(_once(container)[0])
    assert (own["access"], rows(own)) == ("explicit", ["GPU-0"])


def test_without_a_namespace_the_path_names_the_container(driver: Driver, tmp_path: Path) -> None:
    binds = nodes(tmp_path, [0])
    shared = _inside(driver, ONE_GPU, binds, namespaces=("pid", "mount", "ipc", "uts"))
    with runc_container(tmp_path, shared) as container:
        own = _own(_once(container)[0])
    assert own["id"] == container.cgroup.rpartition("/")[2]
    assert (own["runtime"], own["cgroup"]) == ("docker", container.cgroup)
    assert (own["source"], rows(own)) == ("probe", ["GPU-0"])


def test_dockers_files_name_the_container(driver: Driver, tmp_path: Path) -> None:
    identifier = "e5" * 32
    hostname = tmp_path / f"containers/{identifier}/hostname"
    write(hostname, "inside\n")
    with runc_container(tmp_path, _inside(driver, ONE_GPU, [Bind(str(hostname), "/etc/hostname")])) as container:
        own = _own(_once(container)[0])
    assert (own["id"], own["runtime"], own["source"]) == (identifier, "docker", "devices.list")


def test_run_inside_tells_of_the_own_container_alone(driver: Driver, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "otel_gpu_cgroup", "run", "--exporter", "console", "--interval", "1"]
    spec = _inside(driver, ONE_GPU, nodes(tmp_path, [0, 1]), args=command)
    with runc_container(tmp_path, spec) as container:
        log = eventually(lambda: _pushed(container.output), container.output.read_text)
    assert log.count("warning") == 1
    for metric in ("container.gpu.access", "container.accelerator.memory.used"):
        assert {"hw.id=GPU-0", "container.id=/"} <= attributes(log, metric)
        assert "hw.id=GPU-1" not in attributes(log, metric)
    assert "gpu_cgroup.up" in log
    assert "hw.gpu." not in log
    assert "gpu_cgroup.device." not in log


def test_a_gpu_of_others_is_not_called_free(driver: Driver, tmp_path: Path) -> None:
    with runc_container(tmp_path, _inside(driver, ONE_GPU, nodes(tmp_path, [0]))) as container:
        table = container.run(sys.executable, "-m", "otel_gpu_cgroup", "once").stdout
    devices = {line.split()[0]: line for line in table.splitlines() if line.startswith("nvidia")}
    assert devices.keys() == {"nvidia0", "nvidia1", "nvidia2"}
    assert devices["nvidia0"].split()[-1] == "/"
    assert not [line for line in devices.values() if " free " in line]


def test_what_others_may_use_is_not_called_nobodys(driver: Driver, tmp_path: Path) -> None:
    """The driver tells of no process that this container does not see, but of all that is in use."""
    with runc_container(tmp_path, _inside(driver, ONE_GPU, nodes(tmp_path, [0]))) as container:
        document, _ = _once(container)
    assert [(gpu["memory_used"], gpu["memory_unattributed"]) for gpu in document["gpus"]][:1] == [(GIB, None)]
    assert {gpu["memory_unattributed"] for gpu in document["gpus"]} == {None}


def test_scope_node_inside_shows_what_is_visible_there(driver: Driver, tmp_path: Path) -> None:
    with runc_container(tmp_path, _inside(driver, ONE_GPU, nodes(tmp_path, [0]))) as container:
        document, log = _once(container, "--scope", "node")
    assert document["containers"] == []
    assert log == ""


def _pushed(output: Path) -> str | None:
    text = output.read_text()
    return text if "container.gpu.access" in text and "gpu_cgroup.cycle.problems" in text else None
