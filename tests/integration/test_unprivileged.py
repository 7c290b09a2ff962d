# SPDX-License-Identifier: Apache-2.0
"""What is found out without the privilege to read device programs: inside containers, and by a weaker root outside.

Containers are runc's, with Python, the package and the C fake of the driver's library from this machine, seen
read-only; they have uid 65534, no capability and namespaces of their own. GPU nodes are real device nodes without a
driver behind them, which access(2) does not need.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import otel_gpu_cgroup
from tests.fakes.fake_nvml import GIB, LIBRARY_NAME, FakeGpu, FakeMemory, World
from tests.integration.host_tree import write
from tests.support.bpf import attached, need_bpf, unified_hierarchy
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.support.need import need
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
GPUS: Final = tuple(
    FakeGpu(uuid=f"GPU-{minor}", minor=minor, memory=FakeMemory(total=80 * GIB, used=(minor + 1) * GIB))
    for minor in range(3)
)
ONE_GPU: Final = (DENY_ALL, "allow c 195:0 rw", "allow c 195:255 rw")
EVERY_GPU: Final = (DENY_ALL, "allow c 195:* rw")
UNIT: Final = "[Scope]\nDevicePolicy=strict\n"
PACKAGE: Final = Path(otel_gpu_cgroup.__file__).parent
REFUSED: Final = "-sys_admin,-net_admin"
"""What root lacks to be refused by bpf(2); with CAP_NET_ADMIN alone it would still learn that there is no program."""


@pytest.fixture(autouse=True)
def parts(driver: Driver) -> None:
    need_runc()
    driver.set(World(gpus=GPUS))
    os.chmod(driver.world_file, 0o644)


def _nodes(folder: Path, minors: Sequence[int], mode: int = 0o666) -> list[Bind]:
    """Device nodes, and how a container sees them in its /dev."""
    binds = []
    for minor in minors:
        path = folder / f"nvidia{minor}-{mode:o}"
        if not path.exists():
            os.mknod(path, stat.S_IFCHR | mode, os.makedev(195, minor))
            path.chmod(mode)
        binds.append(Bind(str(path), f"/dev/nvidia{minor}", writable=True))
    return binds


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


def _rows(container: dict[str, Any]) -> list[str]:
    return [row["id"] for row in container["accelerators"]]


def test_a_container_finds_its_own_gpu_without_any_privilege(driver: Driver, tmp_path: Path) -> None:
    with runc_container(tmp_path, _inside(driver, ONE_GPU, _nodes(tmp_path, [0, 1]))) as container:
        assert container.run("/bin/busybox", "id", "-u").stdout.strip() == str(NOBODY)
        document, log = _once(container)
    own = _own(document)
    assert (own["access"], own["source"], _rows(own)) == ("explicit", "probe", ["GPU-0"])
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
    with runc_container(tmp_path, _inside(driver, rules, _nodes(tmp_path, minors))) as container:
        document, log = _once(container, "--scope", "self")
    own = _own(document)
    assert (own["access"], own["source"], _rows(own)) == expected
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
    with _inside_v2(driver, tmp_path, _nodes(tmp_path, [0, 1])) as (container, cgroup):
        before = _once(container)[0]
        with attached(cgroup, _deny_minor(0)):
            during = _own(_once(container)[0])
            with attached(cgroup, _deny_minor(1)):
                twice = _own(_once(container)[0])
    assert before["host"]["cgroup"] == "v2"
    assert before["problems"] == []
    for own, access, rows in (
        (_own(before), "explicit", ["GPU-0", "GPU-1"]),
        (during, "explicit", ["GPU-1"]),
        (twice, "none", []),
    ):
        assert (own["access"], own["source"], _rows(own)) == (access, "probe", rows)


def test_without_any_node_no_gpu_is_its(driver: Driver, tmp_path: Path) -> None:
    with _inside_v2(driver, tmp_path, []) as (container, _):
        own = _own(_once(container)[0])
    assert (own["access"], own["source"], _rows(own)) == ("none", "probe", [])


def test_a_node_that_its_mode_closes_is_unknown(driver: Driver, tmp_path: Path) -> None:
    with _inside_v2(driver, tmp_path, _nodes(tmp_path, [0, 1], mode=0o600)) as (container, _):
        document = _once(container)[0]
    own = _own(document)
    assert (own["access"], own["source"], _rows(own)) == ("unknown", "none", [])
    [problem] = document["problems"]
    assert (problem["stage"], problem["subject"]) == ("policy", "/")
    assert "195:0" in problem["message"]


def test_of_a_node_that_its_mode_closes_the_own_list_tells(driver: Driver, tmp_path: Path) -> None:
    binds = _nodes(tmp_path, [0, 1], mode=0o600)
    with runc_container(tmp_path, _inside(driver, ONE_GPU, binds)) as container:
        own = _own(_once(container)[0])
    assert (own["access"], _rows(own)) == ("explicit", ["GPU-0"])


def _deny_minor(minor: int) -> bytes:
    """r1 = ctx->minor; r0 = 1; if r1 != MINOR goto exit; r0 = 0; exit."""
    number = minor.to_bytes(4, "little").hex()
    return bytes.fromhex(f"6111080000000000b70000000100000055010100{number}b7000000000000009500000000000000")


def test_without_a_namespace_the_path_names_the_container(driver: Driver, tmp_path: Path) -> None:
    binds = _nodes(tmp_path, [0])
    shared = _inside(driver, ONE_GPU, binds, namespaces=("pid", "mount", "ipc", "uts"))
    with runc_container(tmp_path, shared) as container:
        own = _own(_once(container)[0])
    assert own["id"] == container.cgroup.rpartition("/")[2]
    assert (own["runtime"], own["cgroup"]) == ("docker", container.cgroup)
    assert (own["source"], _rows(own)) == ("probe", ["GPU-0"])


def test_dockers_files_name_the_container(driver: Driver, tmp_path: Path) -> None:
    identifier = "e5" * 32
    hostname = tmp_path / f"containers/{identifier}/hostname"
    write(hostname, "inside\n")
    with runc_container(tmp_path, _inside(driver, ONE_GPU, [Bind(str(hostname), "/etc/hostname")])) as container:
        own = _own(_once(container)[0])
    assert (own["id"], own["runtime"], own["source"]) == (identifier, "docker", "devices.list")


def test_run_inside_tells_of_the_own_container_alone(driver: Driver, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "otel_gpu_cgroup", "run", "--exporter", "console", "--interval", "1"]
    spec = _inside(driver, ONE_GPU, _nodes(tmp_path, [0, 1]), args=command)
    with runc_container(tmp_path, spec) as container:
        log = eventually(lambda: _pushed(container.output), container.output.read_text)
    assert log.count("warning") == 1
    for metric in ("container.gpu.access", "container.accelerator.memory.used"):
        assert {"hw.id=GPU-0", "container.id=/"} <= _attributes(log, metric)
        assert "hw.id=GPU-1" not in _attributes(log, metric)
    assert "gpu_cgroup.up" in log
    assert "hw.gpu." not in log
    assert "gpu_cgroup.device." not in log


def test_a_gpu_of_others_is_not_called_free(driver: Driver, tmp_path: Path) -> None:
    with runc_container(tmp_path, _inside(driver, ONE_GPU, _nodes(tmp_path, [0]))) as container:
        table = container.run(sys.executable, "-m", "otel_gpu_cgroup", "once").stdout
    holders = {line.split()[0]: line.split()[-1] for line in table.splitlines() if line.startswith("nvidia")}
    assert holders == {"nvidia0": "/", "nvidia1": "-", "nvidia2": "-"}


def test_scope_node_inside_shows_what_is_visible_there(driver: Driver, tmp_path: Path) -> None:
    with runc_container(tmp_path, _inside(driver, ONE_GPU, _nodes(tmp_path, [0]))) as container:
        document, log = _once(container, "--scope", "node")
    assert document["containers"] == []
    assert log == ""


def _pushed(output: Path) -> str | None:
    text = output.read_text()
    return text if "container.gpu.access" in text and "gpu_cgroup.cycle.problems" in text else None


def _attributes(log: str, metric: str) -> set[str]:
    """All attributes of the points that the console shows below a metric's heading."""
    words: set[str] = set()
    for block in log.split(f"{metric} [")[1:]:
        for line in block.splitlines()[1:]:
            if not line.startswith("  "):
                break
            words |= set(line.split()[1:])
    return words


@pytest.fixture
def weak() -> None:
    """Outside, as a root that lacks capabilities, on a host where device programs decide, too."""
    need_bpf()
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


@pytest.mark.usefixtures("weak")
def test_the_missing_capability_is_named_once_and_each_fallback_tells_in_its_turn(
    driver: Driver, tmp_path: Path
) -> None:
    root = _host(tmp_path)
    scope = f"docker-{docker_cgroup().rpartition('/')[2]}.scope"
    one = RuncSpec(docker_cgroup(), EVERY_GPU, binds=_nodes(tmp_path, [0, 1]))
    other = RuncSpec(f"/system.slice/{scope}", ONE_GPU)
    with runc_container(tmp_path, one) as in_docker, runc_container(tmp_path, other) as in_systemd:
        document = _weak_once(driver, root)
        for container, rows in ((in_docker, ["GPU-0", "GPU-1"]), (in_systemd, [])):
            found = _named(document, container)
            assert (found["source"], _rows(found)) == ("nodes", rows)
        _assert_refused_once(document)

        bundle = root / "run/crun" / in_docker.cgroup.rpartition("/")[2] / "config.json"
        write(bundle, _bundle_of(in_docker).read_text())
        unit = root / f"run/systemd/transient/{scope}.d/50-DeviceAllow.conf"
        write(unit, f"{UNIT}DeviceAllow=/dev/char/195:0 rw\nDeviceAllow=/dev/char/195:2 rw\n")
        document = _weak_once(driver, root)
        asked, told = _named(document, in_docker), _named(document, in_systemd)
        assert (asked["access"], asked["source"]) == ("explicit", "oci")
        assert _rows(asked) == ["GPU-0", "GPU-1", "GPU-2"]
        # what v1 denies (here GPU 2) is denied, whatever systemd was told
        assert (told["access"], told["source"], _rows(told)) == ("explicit", "systemd", ["GPU-0"])
        _assert_refused_once(document)


def _assert_refused_once(document: dict[str, Any]) -> None:
    refusals = [problem for problem in document["problems"] if "CAP_SYS_ADMIN" in problem["message"]]
    assert [(problem["stage"], problem["subject"]) for problem in refusals] == [("policy", "bpf(2)")]


@pytest.mark.usefixtures("weak")
def test_without_cap_sys_admin_programs_are_counted_and_not_read(driver: Driver, tmp_path: Path) -> None:
    hierarchy = unified_hierarchy()
    assert hierarchy is not None
    root = _host(tmp_path)
    with runc_container(tmp_path, RuncSpec(docker_cgroup(), ONE_GPU, binds=_nodes(tmp_path, [0]))) as container:
        free = _named(_weak_once(driver, root, "-sys_admin"), container)
        with attached(hierarchy / container.cgroup.lstrip("/"), _deny_minor(1)):
            document = _weak_once(driver, root, "-sys_admin")
    held = _named(document, container)
    assert (free["access"], free["source"], _rows(free)) == ("explicit", "devices.list+bpf", ["GPU-0"])
    assert (held["access"], held["source"], _rows(held)) == ("explicit", "nodes", ["GPU-0"])
    _assert_refused_once(document)


@pytest.mark.usefixtures("weak")
def test_v1s_denial_stands_without_a_fallback(driver: Driver, tmp_path: Path) -> None:
    spec = RuncSpec(docker_cgroup(), (DENY_ALL,), binds=_nodes(tmp_path, [0]))
    with runc_container(tmp_path, spec) as container:
        found = _named(_weak_once(driver, _host(tmp_path)), container)
    assert (found["access"], found["source"], _rows(found)) == ("none", "devices.list", [])


@pytest.mark.usefixtures("weak")
def test_where_nobody_answers_access_is_unknown(driver: Driver, tmp_path: Path) -> None:
    """The container's /dev is this machine's, no unit and no bundle is known."""
    spec = RuncSpec(docker_cgroup(), ONE_GPU, binds=[Bind("/dev", "/dev", writable=True)])
    with runc_container(tmp_path, spec) as container:
        document = _weak_once(driver, _host(tmp_path))
        found = _named(document, container)
    assert (found["access"], found["source"], _rows(found)) == ("unknown", "none", [])
    _assert_refused_once(document)


@pytest.mark.usefixtures("weak")
def test_a_fallback_gives_rows_and_no_access_point(driver: Driver, tmp_path: Path) -> None:
    command, environment = _weak_command(driver, REFUSED, "run", "--exporter", "console", "--interval", "1")
    output = tmp_path / "output"
    spec = RuncSpec(docker_cgroup(), ONE_GPU, binds=_nodes(tmp_path, [0]))
    with runc_container(tmp_path, spec) as container, output.open("wb") as out:
        key = f"container.id={container.cgroup.rpartition('/')[2]}"
        agent = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        try:
            memory = "container.accelerator.memory.used"
            eventually(lambda: key in _attributes(output.read_text(), memory), output.read_text)
            agent.send_signal(signal.SIGTERM)
            assert agent.wait(PATIENCE_SECONDS) == 0
        finally:
            agent.kill()
            agent.wait()
    log = output.read_text()
    assert key not in _attributes(log, "container.gpu.access")
    assert len([line for line in log.splitlines() if "warning" in line and "CAP_SYS_ADMIN" in line]) == 1
