# SPDX-License-Identifier: Apache-2.0
"""Which container is meant, and what is told of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from otel_gpu_cgroup.cgroup.bpf.isa import Instruction, encode
from otel_gpu_cgroup.cgroup.bpf.policy import BpfPolicy, DeviceProgram
from otel_gpu_cgroup.cgroup.devices_list import DeviceRule, parse_devices_list
from otel_gpu_cgroup.cgroup.fallback.stated import StandInPolicy, StatedPolicy, Statement
from otel_gpu_cgroup.cgroup.policy import BothPolicies, DevicePolicy, UnknownPolicy
from otel_gpu_cgroup.cli.explanation import Explanation, Speaker, render_explanation
from otel_gpu_cgroup.cli.selection import find_outer, name_trouble, select_containers
from otel_gpu_cgroup.errors import PolicyUnreadable
from otel_gpu_cgroup.model import (
    READ_WRITE,
    AcceleratorStats,
    AccessClass,
    CgroupPath,
    Container,
    ContainerReport,
    DeviceInventory,
    DeviceNode,
    DeviceType,
    Gpu,
    GpuProcess,
    GpuReading,
    GpuUuid,
    MigInstance,
    Ownership,
    Pod,
    PolicySource,
    Problem,
    ProcessOwner,
    Runtime,
    SlurmStep,
    Stage,
)
from otel_gpu_cgroup.nvidia.judgement import judge
from otel_gpu_cgroup.nvidia.share import Shares, own_shares
from otel_gpu_cgroup.settings import Unrestricted
from tests.support.stats import accelerator

ALONE: Final = Container(CgroupPath(f"/docker/{'1a2b' * 16}"), Runtime.DOCKER, "1a2b" * 16, name="web")
TWIN: Final = Container(CgroupPath(f"/docker/{'1a2c' * 16}"), Runtime.DOCKER, "1a2c" * 16, name="1a2b")
PODDED: Final = Container(
    CgroupPath(f"/kubepods/podx/{'ffff' * 16}"),
    Runtime.CONTAINERD,
    "ffff" * 16,
    pod=Pod("uid-1", "trainer", "ml", "main"),
)
SIDECAR: Final = Container(
    CgroupPath(f"/kubepods/podx/{'eeee' * 16}"), Runtime.CONTAINERD, "eeee" * 16, pod=Pod("uid-1", "trainer", "ml")
)
NAMELESS: Final = Container(CgroupPath("/machine.slice/unit.service"), Runtime.PODMAN)
STEP: Final = Container(CgroupPath("/slurm/uid_1/job_42/step_0"), Runtime.SLURM, name="slurm-42.0")
UNIT: Final = Container(CgroupPath("/system.slice/ollama.service"), Runtime.SYSTEMD, name="ollama.service")
EVERYONE: Final = (ALONE, TWIN, PODDED, SIDECAR, NAMELESS, STEP, UNIT)
GPUS: Final = (Gpu(0, GpuUuid("GPU-a"), "H100", index=1), Gpu(1, GpuUuid("GPU-b"), "H100", index=0))
READINGS: Final = {GpuUuid("GPU-a"): GpuReading(80 << 30, 5 << 30, 12.5)}


def program(minor: int) -> DeviceProgram:
    """r1 = the request's minor; if it is this one r0 = 1, else r0 = 0."""
    code = (
        Instruction(0xB7, 0, 0, 0, 0),
        Instruction(0x61, 1, 1, 8, 0),
        Instruction(0x55, 1, 0, 1, minor),
        Instruction(0xB7, 0, 0, 0, 1),
        Instruction(0x95, 0, 0, 0, 0),
    )
    return DeviceProgram(encode(code), "sd_devices", bytes.fromhex("0123456789abcdef"))


def capability(minor: int) -> DeviceNode:
    return DeviceNode(DeviceType.CHAR, 508, minor)


def explain(
    policy: DevicePolicy,
    container: Container = ALONE,
    gpus: tuple[Gpu, ...] = GPUS,
    rows: tuple[AcceleratorStats, ...] = (),
    **more: Any,
) -> list[str]:
    speakers = (Speaker("cgroup v1", f"/sys/fs/cgroup/devices{container.cgroup}", "its own cgroup"),)
    judgement = judge(policy, gpus)
    report = ContainerReport(container, more.pop("access", judgement.access), judgement.source, rows)
    inventory = DeviceInventory(gpus, READINGS)
    explanation = Explanation(report, policy, judgement, speakers, inventory, **more)
    return render_explanation(explanation).splitlines()


def shares(**processes: tuple[GpuProcess, ...] | None) -> Shares:
    """Of ALONE, whose all these processes are, by the last letter of the GPU's UUID."""
    readings = {
        GpuUuid(f"GPU-{letter}"): GpuReading(processes=found, covered=1.0) for letter, found in processes.items()
    }
    pids = (process.pid for found in processes.values() for process in found or ())
    return own_shares(readings, Ownership({pid: ProcessOwner(ALONE.key, 1.0) for pid in pids}))


def told(lines: list[str], word: str) -> list[str]:
    """What is said under a word, before the verdicts."""
    head = lines[: lines.index("")]
    return [line.partition(" ")[2].strip() for line in head if line.startswith(f"{word} ")]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("1a2b" * 16, [ALONE]),
        (ALONE.cgroup, [ALONE]),
        (f"docker/{'1a2b' * 16}/", [ALONE]),
        ("1a2b1a2b1a2b", [ALONE]),
        ("web", [ALONE]),
        ("1a2b", [TWIN]),
        ("ffff", [PODDED]),
        ("ml/trainer", [PODDED, SIDECAR]),
        ("ml/trainer/main", [PODDED]),
        ("/machine.slice/unit.service", [NAMELESS]),
        ("slurm-42.0", [STEP]),
        ("slurm-42", []),
        ("ollama.service", [UNIT]),
        ("1a2", []),
        ("trainer", []),
        ("2b1a", []),
        ("", []),
        ("/", []),
    ],
    ids=repr,
)
def test_which_container_is_meant(wanted: str, found: list[Container]) -> None:
    assert select_containers(wanted, EVERYONE) == found


def test_a_beginning_that_two_ids_share_means_both() -> None:
    ids = ("abcd1" + "0" * 59, "abcd2" + "0" * 59)
    containers = [Container(CgroupPath(f"/docker/{key}"), Runtime.DOCKER, key) for key in ids]
    assert select_containers("abcd", containers) == containers
    assert select_containers("abcd2", containers) == containers[1:]


def test_the_rules_of_a_devices_list_and_what_each_decided() -> None:
    policy = parse_devices_list("c *:* m\nc 1:3 rwm\nc 195:0 rw\nc 195:255 rw\n")
    assert explain(policy) == [
        f"container  {'1a2b' * 16}",
        "name       web",
        "runtime    docker",
        f"cgroup     /docker/{'1a2b' * 16}",
        f"cgroup v1  /sys/fs/cgroup/devices/docker/{'1a2b' * 16} (its own cgroup)",
        "access     explicit: it may open 1 of 2 GPUs",
        "source     devices.list",
        "uses       nvidia0,1: not known: the driver does not list its processes",
        "",
        "GPU      INDEX  UUID                                  MAY OPEN  DEVICES.LIST  MEMORY            BUSY",
        "nvidia0  1      GPU-a                                 allow     c 195:0 rw    5120 / 81920 MiB  12 %",
        "nvidia1  0      GPU-b                                 deny      no rule       - / - MiB         -",
        "195:253         (no GPU: only wildcards allow it)     deny      no rule",
        "1:1             (/dev/mem: only allow-all allows it)  deny      no rule",
        "",
        "devices.list: 4 rules; the first that covers read and write decides",
        "  c *:* m",
        "  c 1:3 rwm",
        "  c 195:0 rw          <- nvidia0",
        "  c 195:255 rw",
        "  no rule: denied     <- nvidia1, 195:253, 1:1",
    ]


def test_a_list_that_allows_everything_may_hide_exceptions() -> None:
    lines = explain(parse_devices_list("a *:* rwm\n"))
    assert lines[-3:] == [
        "devices.list: 1 rule; the first that covers read and write decides",
        "  a *:* rwm           <- nvidia0, nvidia1, 195:253, 1:1",
        "  a list that allows by default may have exceptions; the kernel does not show them",
    ]
    assert any(line.startswith("access     unrestricted: ") for line in lines)


def test_a_program_with_the_path_for_the_first_gpu_that_is_allowed() -> None:
    lines = explain(BpfPolicy([program(1)], [102]))
    table = [line.split() for line in lines if line.startswith(("nvidia", "GPU ", "195", "1:1"))]
    assert "PROGRAM 102" in lines[lines.index("") + 1]
    assert table[1][3:7] == ["deny", "deny", "at", "2"]
    assert table[2][3:7] == ["allow", "allow", "at", "2"]
    assert lines[-9:] == [
        "program 102: tag 0123456789abcdef, name sd_devices, 5 instructions",
        "  > executed for nvidia1 (c 195:1), read and write; => the condition that decided",
        "  type: 1 block, 2 char; access: 1 mknod + 2 read + 4 write",
        "   >    0  r0 = 0",
        "   >    1  r1 = *(u32 *)(r1 +8)        ; minor",
        "  =>    2  if r1 != 1 goto 4           ; minor",
        "   >    3  r0 = 1",
        "   >    4  exit",
        "  its answer for nvidia1 (c 195:1): allow",
    ]


def test_two_programs_that_disagree_are_both_shown() -> None:
    lines = explain(BpfPolicy([program(0), program(1)], [7, 8]))
    assert [line.partition(":")[0] for line in lines if line.startswith("program")] == ["program 7", "program 8"]
    assert [line for line in lines if line.startswith("  its answer")] == [
        "  its answer for nvidia0 (c 195:0): allow",
        "  its answer for nvidia0 (c 195:0): deny",
    ]
    [row] = [line.split() for line in lines if line.startswith("nvidia0")]
    assert row[3:10] == ["deny", "allow", "at", "2", "deny", "at", "2"]


def test_a_program_that_cannot_be_evaluated_says_where_and_why() -> None:
    call = (Instruction(0xB7, 1, 0, 0, 1), Instruction(0x85, 0, 0, 0, 5), Instruction(0x95, 0, 0, 0, 0))
    lines = explain(BpfPolicy([DeviceProgram(encode(call))]))
    assert "   >    1  call 5" in lines
    assert "        2  exit" in lines
    assert lines[-1].startswith("  its answer for nvidia0 (c 195:0): unknown: ")
    assert any(line.startswith("access     unknown: nobody can say") for line in lines)
    assert "program: tag not known, name none, 3 instructions" in lines


def test_on_a_hybrid_host_each_of_both_has_its_say() -> None:
    lines = explain(BothPolicies(parse_devices_list("c 195:* rw\n"), BpfPolicy([program(1)], [9])))
    [first] = [line.split() for line in lines if line.startswith("nvidia0")]
    assert first[3:9] == ["deny", "c", "195:*", "rw", "deny", "at"]
    assert "  c 195:* rw          <- nvidia0, nvidia1, 195:253" in lines
    assert "  its answer for nvidia1 (c 195:1): allow" in lines


def test_without_a_program_nothing_is_restricted() -> None:
    lines = explain(BpfPolicy(()))
    assert lines[-1] == "no program: nothing is restricted"
    assert any(line.startswith("access     unrestricted") for line in lines)


def test_a_controller_that_does_not_tell_says_why() -> None:
    refused = UnknownPolicy(PolicyUnreadable("refused: needs\x1b[2J CAP_SYS_ADMIN"))
    lines = explain(BothPolicies(parse_devices_list("c 195:0 rw\n"), refused))
    assert lines[-1] == r"not told: refused: needs\x1b[2J CAP_SYS_ADMIN"
    assert r"trouble    refused: needs\x1b[2J CAP_SYS_ADMIN" in lines
    rows = {line.split()[0]: line.split()[3] for line in lines if line.startswith("nvidia")}
    assert rows == {"nvidia0": "unknown", "nvidia1": "deny"}


def test_what_others_say_in_place_of_the_kernel_is_shown_beside_what_it_says() -> None:
    kernel = BothPolicies(parse_devices_list("c 195:* rw\n"), UnknownPolicy(PolicyUnreadable("refused")))
    every, one = (DeviceRule(DeviceType.CHAR, 195, minor, READ_WRITE) for minor in (None, 1))
    statements = (Statement(allow=True, rule=every), Statement(allow=False, rule=one))
    lines = explain(StandInPolicy(kernel, StatedPolicy(PolicySource.OCI, statements)))
    assert "source     oci" in lines
    assert "trouble    refused" in lines
    table = {line.split()[0]: line.split()[3:] for line in lines if line.startswith("nvidia")}
    assert table["nvidia0"][:8] == ["allow", "c", "195:*", "rw", "unknown", "allow", "c", "195:*"]
    assert table["nvidia1"][:8] == ["deny", "c", "195:*", "rw", "unknown", "deny", "c", "195:1"]
    assert lines[-6:] == [
        "not told: refused",
        "",
        "oci, in place of the kernel: 2 rules; the last that covers read and write decides",
        "  allow c 195:* rw    <- nvidia0, 195:253",
        "  deny c 195:1 rw     <- nvidia1",
        "  no rule: denied     <- 1:1",
    ]


def test_where_no_gpu_is_known_the_nodes_are_shown_that_it_may_open() -> None:
    lines = explain(parse_devices_list("c 195:3 rw\nc 195:7 rw\n"), gpus=())
    assert [line.split()[0] for line in lines if line.startswith("nvidia")] == ["nvidia3", "nvidia7"]
    assert "access     explicit: it may open some GPU nodes" in lines
    assert "No GPU of this host is known: the rows are nodes that a driver could have." in lines
    nothing = explain(parse_devices_list(""), gpus=())
    assert [line.split()[:4] for line in nothing if line.startswith("nvidia")] == [["nvidia0", "-", "-", "deny"]]


def test_hostile_names_break_no_line() -> None:
    evil = Container(CgroupPath("/a\n\x1b[2J\udcff"), Runtime.PODMAN, None, "b\rc", Pod("u\n", "n\x07", "s\n", "c\n"))
    evil = replace(evil, slurm=SlurmStep("s\n", "j\x1b"))
    lost = accelerator("GPU-x\n", lost=True, reason="r\n")
    lines = explain(
        parse_devices_list(""),
        evil,
        rows=(lost,),
        outer=evil,
        exclusion="by 'g\n'",
        share_trouble="t\n",
        name_trouble="n\n",
        access=AccessClass.EXCLUDED,
    )
    assert all(line.isprintable() for line in lines)
    assert lines[:8] == [
        "container  without an id",
        r"name       b\rc",
        "runtime    podman",
        r"pod        u\n s\n/n\x07/c\n",
        r"slurm      job j\x1b, step s\n",
        r"names      n\n",
        r"inside     s\n/n\x07/c\n (/a\n\x1b[2J\udcff)",
        r"cgroup     /a\n\x1b[2J\udcff",
    ]
    assert told(lines, "lost") == [r"GPU-x\n: it should be able to open it: r\n"]


def test_an_instance_needs_each_of_its_nodes() -> None:
    """A GPU's node and one of two capabilities are no instance."""
    instance = MigInstance(GpuUuid("GPU-a"), 2, 0, "1g.10gb", nodes=tuple(capability(minor) for minor in (696, 697)))
    other = replace(instance, gpu_instance=3, nodes=tuple(capability(minor) for minor in (705, 706)))
    unknown = replace(instance, gpu_instance=4, nodes=None)
    parent = replace(GPUS[0], is_partitioned=True)
    parts = [
        Gpu(0, GpuUuid(f"MIG-{it.gpu_instance}"), "H100", index=1, instance=it) for it in (instance, other, unknown)
    ]
    lines = explain(parse_devices_list("c 195:0 rw\nc 508:696 rw\nc 508:697 rw\nc 508:705 rw\n"), gpus=(parent, *parts))
    assert told(lines, "access") == ["explicit: it may open 1 of 3 GPUs and MIG instances"]
    table = [line.split() for line in lines[lines.index("") + 2 :]]
    assert [row[:4] for row in table[:2]] == [
        ["nvidia0", "1", "GPU-a", "allow"],
        ["nvidia0/gi2", "1", "MIG-2", "allow"],
    ]
    assert [(row[0], *row[-4:]) for row in table[2:4]] == [
        ("nvidia-cap696", "allow", "c", "508:696", "rw"),
        ("nvidia-cap697", "allow", "c", "508:697", "rw"),
    ]
    assert table[4][:4] == ["nvidia0/gi3", "1", "MIG-3", "deny"]
    assert [(row[0], row[-3]) for row in table[6:7]] == [("nvidia-cap706", "deny")]
    assert table[7][:4] == ["nvidia0/gi4", "1", "MIG-4", "unknown"]
    assert table[8] == ["(its", "capability", "nodes", "are", "not", "known)"]
    assert "  c 508:697 rw        <- nvidia-cap697" in lines


def test_a_lost_device_is_told_with_its_reason_and_the_way_that_denies_it() -> None:
    lost = accelerator("GPU-b", None, None, lost=True, reason="of the 2 programs on its cgroup systemd's denies it")
    lines = explain(BpfPolicy([program(0)]), rows=(accelerator("GPU-a"), lost))
    assert told(lines, "lost") == [
        "nvidia1: it should be able to open it: of the 2 programs on its cgroup systemd's denies it"
    ]
    assert lines[-1] == "  its answer for nvidia1 (c 195:1): deny"


def test_what_it_uses_and_that_it_goes_on_with_what_it_is_denied() -> None:
    uses = shares(a=(GpuProcess(1, 3 << 20, 0.25, 9.0), GpuProcess(2, 1 << 20, 0.5, 9.0)), b=(GpuProcess(3, None),))
    lines = explain(parse_devices_list("c 195:0 rw\n"), shares=uses)
    assert told(lines, "uses") == [
        "nvidia0: 2 processes of it, memory 4 MiB, busy 75 %",
        "nvidia1: 1 process of it, memory -, busy -; denied and using: it goes on with what was opened before",
    ]
    assert told(explain(parse_devices_list(""), shares=shares(a=(), b=())), "uses") == ["no GPU"]
    partly = explain(parse_devices_list(""), shares=shares(a=(), b=None), share_trouble="needs the host PID namespace")
    assert told(partly, "uses") == ["nvidia1: not known: needs the host PID namespace"]
    assert told(explain(parse_devices_list(""), gpus=()), "uses") == []


@pytest.mark.parametrize("unrestricted", Unrestricted)
def test_which_rows_an_unrestricted_container_gets(unrestricted: Unrestricted) -> None:
    [access] = told(explain(parse_devices_list("a *:* rwm\n"), unrestricted=unrestricted), "access")
    rows = {"using": "rows for what it uses", "all": "a row for each", "none": "no rows"}[unrestricted]
    assert access == f"unrestricted: it may open every device; it has {rows}, with --unrestricted {unrestricted}"


def test_a_container_that_is_left_out_has_the_class_that_it_would_have() -> None:
    lines = explain(
        parse_devices_list("c 195:1 rw\n"), access=AccessClass.EXCLUDED, exclusion="by --exclude-containers 'w*'"
    )
    assert told(lines, "access") == ["excluded: left out of all metrics by --exclude-containers 'w*'"]
    assert told(lines, "otherwise") == ["explicit: it may open 1 of 2 GPUs"]


def test_a_step_of_slurm_whose_programs_deny_a_gpu_is_what_the_cycle_says() -> None:
    lines = explain(parse_devices_list("a *:* rwm\n"), access=AccessClass.EXPLICIT)
    assert told(lines, "access") == ["explicit: it may open 2 of 2 GPUs"]


def test_a_unit_that_counts_as_no_container_is_told_why() -> None:
    unit = Container(CgroupPath("/system.slice/ollama.service"), Runtime.SYSTEMD, name="ollama.service")
    lines = explain(BpfPolicy(()), unit, is_reported=False)
    assert told(lines, "unit") == ["ollama.service"]
    [rows] = told(lines, "rows")
    assert rows.startswith("none: a unit is reported where ")


def test_where_it_is_and_whose_job_it_is() -> None:
    step = Container(
        CgroupPath("/slurm/uid_7/job_42/step_0/docker/x"),
        Runtime.SLURM,
        name="slurm-42.0",
        slurm=SlurmStep("0", "42", 7),
    )
    assert told(explain(parse_devices_list(""), step, outer=ALONE), "inside") == [f"web ({ALONE.cgroup})"]
    assert told(explain(parse_devices_list(""), step), "slurm") == ["job 42 of user 7, step 0"]
    jobless = replace(step, slurm=SlurmStep("batch"))
    assert told(explain(parse_devices_list(""), jobless), "slurm") == ["job -, step batch"]


def test_names_that_are_awaited_and_names_that_never_came() -> None:
    [awaited] = told(explain(parse_devices_list(""), replace(ALONE, is_named=False), name_trouble="x"), "names")
    assert awaited.startswith("not all told yet; ")
    assert told(explain(parse_devices_list(""), name_trouble="nothing has told it"), "names") == ["nothing has told it"]
    assert told(explain(parse_devices_list("")), "names") == []


def test_why_a_container_has_no_names() -> None:
    nameless = replace(PODDED, pod=Pod("uid-1"))
    of_pods = Problem(Stage.NAMES, "pods", "no source is here")
    own = Problem(Stage.NAMES, nameless.cgroup, "its log tells none")
    for container, problems, expected in (
        (nameless, (of_pods,), "no source is here"),
        (PODDED, (of_pods,), None),
        (PODDED, (own, of_pods), "its log tells none"),
        (ALONE, (own, Problem(Stage.NVML, ALONE.cgroup, "x")), None),
    ):
        assert name_trouble(container, problems) == expected


def test_the_innermost_container_around_another() -> None:
    paths = ("/lxc/a", "/lxc/a/docker/b", "/lxc/a/docker/b/unit.scope", "/lxc/ab")
    outer, middle, inner, other = containers = [Container(CgroupPath(path), Runtime.LXC) for path in paths]
    assert [find_outer(it, containers) for it in (outer, middle, inner, other)] == [None, outer, middle, None]
