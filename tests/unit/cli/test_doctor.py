# SPDX-License-Identifier: Apache-2.0
"""What the checks make of what was found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from otel_gpu_cgroup.cli.checks import render_json, render_table, run_checks
from otel_gpu_cgroup.cli.doctor import parse_capabilities
from otel_gpu_cgroup.cli.facts import Check, Facts, Result
from otel_gpu_cgroup.model import (
    AccessClass,
    CgroupLayout,
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
    NodeStats,
    PolicySource,
    Problem,
    Runtime,
    Stage,
)

V1: Final = CgroupLayout(devices=Path("/sys/fs/cgroup/devices"))
V2: Final = CgroupLayout(unified=Path("/sys/fs/cgroup"))
HYBRID: Final = CgroupLayout(V1.devices, Path("/sys/fs/cgroup/unified"))
GPUS: Final = (Gpu(0, GpuUuid("GPU-a"), index=0), Gpu(1, GpuUuid("GPU-b"), index=1))
INVENTORY: Final = DeviceInventory(gpus=GPUS, driver_version="595.45.04", pci_gpus=2, nvml_gpus=2)
STATS: Final = NodeStats(0.0, 0.0, 0.0, None, INVENTORY, up={Stage.DISCOVERY: True})
PROBLEM: Final = Problem(Stage.NVML, "GPU-b", "GPU is lost")
HEALTHY: Final = Facts(
    stats=STATS,
    layout=V2,
    capabilities=frozenset({"CAP_SYS_ADMIN", "CAP_NET_ADMIN"}),
    root_programs=0,
    gpu_files=2,
    packages={"opentelemetry-sdk": "1.45.0"},
)
NO_GPU: Final = replace(
    HEALTHY,
    stats=replace(STATS, inventory=DeviceInventory(problems=(Problem(Stage.NVML, "NVML", "no library"),))),
    gpu_files=0,
)


def check(facts: Facts, name: str) -> Check:
    [found] = [check for check in run_checks(facts) if check.check == name]
    return found


def with_inventory(inventory: DeviceInventory, *problems: Problem) -> Facts:
    return replace(HEALTHY, stats=replace(STATS, inventory=inventory, problems=problems))


def test_where_all_is_well_nothing_fails_and_nothing_is_to_do() -> None:
    checks = run_checks(HEALTHY)
    assert {check.result for check in checks} == {Result.OK, Result.NOT_APPLICABLE}
    assert [check.cure for check in checks] == [None] * len(checks)


def test_a_host_without_a_gpu_is_no_failure() -> None:
    results = {check.check: check.result for check in run_checks(NO_GPU)}
    for name in ("PCI bus", "driver's files", "NVML", "device nodes"):
        assert results[name] is Result.NOT_APPLICABLE
    assert Result.FAIL not in results.values()


PARENT: Final = replace(GPUS[0], is_partitioned=True)
PART: Final = MigInstance(GpuUuid("GPU-a"), 7, 0, nodes=(DeviceNode(DeviceType.CHAR, 236, 471),))
READINGS: Final = {
    GpuUuid("GPU-a"): GpuReading(),  # a partitioned GPU's processes are listed by instance
    GpuUuid("GPU-b"): GpuReading(processes=(GpuProcess(7),)),
    GpuUuid("MIG-a"): GpuReading(processes=(GpuProcess(8),)),
}
SPLIT: Final = replace(
    INVENTORY, gpus=(PARENT, Gpu(0, GpuUuid("MIG-a"), index=0, instance=PART), GPUS[1]), readings=READINGS
)
NODELESS: Final = replace(SPLIT, gpus=(PARENT, Gpu(0, GpuUuid("MIG-a"), instance=replace(PART, nodes=None)), GPUS[1]))
UNLISTED: Final = replace(SPLIT, readings={**READINGS, GpuUuid("GPU-b"): GpuReading()})
HIDDEN: Final = Problem(Stage.SHARE, "processes", "needs the host PID namespace")


def with_names(*places: str, works: bool) -> Facts:
    problems = () if works else (Problem(Stage.NAMES, "pods", "no source is here"),)
    stats = replace(STATS, problems=problems, up={**STATS.up, Stage.NAMES: works})
    return replace(HEALTHY, stats=stats, name_places=places)


@pytest.mark.parametrize(
    ("facts", "name", "result", "word"),
    [
        (replace(HEALTHY, layout=HYBRID), "cgroups", Result.OK, "v2 at /sys/fs/cgroup/unified"),
        (replace(HEALTHY, layout=CgroupLayout()), "cgroups", Result.FAIL, "no cgroup hierarchy"),
        (replace(HEALTHY, layout=CgroupLayout(), layout_trouble="is gone"), "cgroups", Result.FAIL, "is gone"),
        (replace(HEALTHY, capabilities=frozenset()), "CAP_SYS_ADMIN", Result.FAIL, "unknown"),
        (replace(HEALTHY, layout=V1, capabilities=frozenset()), "CAP_SYS_ADMIN", Result.NOT_APPLICABLE, "v1"),
        (replace(HEALTHY, simulated=True, capabilities=frozenset()), "CAP_SYS_ADMIN", Result.NOT_APPLICABLE, "sim"),
        (
            replace(HEALTHY, capabilities=frozenset({"CAP_SYS_ADMIN"})),
            "CAP_NET_ADMIN",
            Result.NOT_APPLICABLE,
            "this kernel does not ask",
        ),
        (
            replace(HEALTHY, capabilities=frozenset({"CAP_SYS_ADMIN"}), programs_trouble="refused"),
            "CAP_NET_ADMIN",
            Result.FAIL,
            "kernels older",
        ),
        (
            replace(HEALTHY, capabilities=frozenset(), programs_trouble="refused"),
            "CAP_NET_ADMIN",
            Result.WARN,
            "kernels older",
        ),
        (HEALTHY, "CAP_SYS_PTRACE", Result.NOT_APPLICABLE, "refused"),
        (replace(HEALTHY, programs_trouble="refused"), "CAP_SYS_PTRACE", Result.WARN, "device nodes"),
        (
            replace(HEALTHY, programs_trouble="refused", capabilities=frozenset({"CAP_SYS_PTRACE"})),
            "CAP_SYS_PTRACE",
            Result.OK,
            "in place of",
        ),
        (replace(HEALTHY, root_programs=3), "device programs", Result.OK, "3 on the root cgroup"),
        (replace(HEALTHY, programs_trouble="refused"), "device programs", Result.FAIL, "refused"),
        (replace(HEALTHY, jit_harden=2, kptr_restrict=2), "device programs", Result.FAIL, "hides"),
        (replace(HEALTHY, jit_harden=2, kptr_restrict=1), "device programs", Result.FAIL, "hides"),
        (
            replace(HEALTHY, jit_harden=2, kptr_restrict=1, capabilities=frozenset({"CAP_SYSLOG"})),
            "device programs",
            Result.OK,
            "tells",
        ),
        (replace(HEALTHY, jit_harden=1, kptr_restrict=2), "device programs", Result.OK, "tells"),
        (replace(HEALTHY, jit_harden=2, kptr_restrict=0), "device programs", Result.OK, "tells"),
        (replace(HEALTHY, in_host_pid_namespace=False), "PID namespace", Result.WARN, "not the host's"),
        (replace(HEALTHY, simulated=True), "PID namespace", Result.NOT_APPLICABLE, "simulated"),
        (HEALTHY, "PCI bus", Result.OK, "2 NVIDIA GPUs on the PCI bus, 2 in NVML"),
        (with_inventory(replace(INVENTORY, nvml_gpus=1)), "PCI bus", Result.FAIL, "2 NVIDIA GPUs on the PCI bus, 1 in"),
        (with_inventory(replace(INVENTORY, pci_gpus=0)), "PCI bus", Result.NOT_APPLICABLE, "no NVIDIA GPU"),
        (HEALTHY, "NVML", Result.OK, "driver 595.45.04 lists 2 GPUs"),
        (with_inventory(INVENTORY, PROBLEM), "NVML", Result.WARN, "GPU-b: GPU is lost"),
        (with_inventory(INVENTORY, PROBLEM, PROBLEM), "NVML", Result.WARN, "(and 1 more)"),
        (
            with_inventory(replace(INVENTORY, nvml_gpus=None), Problem(Stage.NVML, "NVML", "Driver Not Loaded")),
            "NVML",
            Result.FAIL,
            "Driver Not Loaded",
        ),
        (HEALTHY, "driver's files", Result.OK, "2 GPUs"),
        (replace(HEALTHY, gpu_files=0), "driver's files", Result.WARN, "names no GPU"),
        (replace(HEALTHY, missing_nodes=("nvidia1",)), "device nodes", Result.WARN, "nvidia1"),
        (HEALTHY, "device nodes", Result.OK, "there for 2 GPUs"),
        (with_inventory(SPLIT), "device nodes", Result.OK, "there for 2 GPUs"),
        (HEALTHY, "MIG instances", Result.NOT_APPLICABLE, "none"),
        (with_inventory(SPLIT), "MIG instances", Result.OK, "of 1 instance are known"),
        (with_inventory(NODELESS), "MIG instances", Result.FAIL, "of 1 instance the capability nodes of 1 are unknown"),
        (HEALTHY, "own shares", Result.NOT_APPLICABLE, "NVML has read no device"),
        (with_inventory(SPLIT), "own shares", Result.OK, "the driver lists 2 processes on 2 devices"),
        (
            with_inventory(UNLISTED),
            "own shares",
            Result.WARN,
            "of 2 devices the driver does not list the processes of 1",
        ),
        (with_inventory(SPLIT, HIDDEN), "own shares", Result.WARN, "needs the host PID namespace"),
        (HEALTHY, "names", Result.NOT_APPLICABLE, "there is none of the places"),
        (with_names("/run/containerd", works=True), "names", Result.OK, "told by what is in /run/containerd"),
        (with_names("/var/log/pods", works=False), "names", Result.WARN, "no source is here; there is /var/log/pods"),
        (replace(HEALTHY, packages={"opentelemetry-sdk": None}), "packages", Result.WARN, "opentelemetry-sdk"),
        (HEALTHY, "packages", Result.OK, "opentelemetry-sdk 1.45.0"),
    ],
)
def test_a_check(facts: Facts, name: str, result: Result, word: str) -> None:
    found = check(facts, name)
    assert found.result is result
    assert word in found.message
    assert (found.cure is not None) == (result in (Result.WARN, Result.FAIL))


def test_containers_whose_access_is_unknown_are_a_failure_with_the_reason() -> None:
    containers = tuple(
        ContainerReport(Container(CgroupPath(f"/docker/{access}"), Runtime.DOCKER), access, PolicySource.NOBODY)
        for access in (AccessClass.UNKNOWN, AccessClass.NONE)
    )
    problems = (Problem(Stage.POLICY, "bpf(2)", "refused"),)
    facts = replace(HEALTHY, stats=replace(STATS, containers=containers, problems=problems))
    assert check(facts, "containers") == Check(
        "containers",
        Result.FAIL,
        "of 2 containers the access of 1 is unknown: bpf(2): refused",
        "otel-gpu-cgroup explain /docker/unknown",
    )


def test_containers_of_which_others_than_the_kernel_told_are_a_warning() -> None:
    containers = tuple(
        ContainerReport(Container(CgroupPath(f"/docker/{source}"), Runtime.DOCKER), access, source)
        for source, access in (
            (PolicySource.NODES, AccessClass.EXPLICIT),
            (PolicySource.BPF, AccessClass.EXPLICIT),
            (PolicySource.NOBODY, AccessClass.EXCLUDED),
        )
    )
    found = check(replace(HEALTHY, stats=replace(STATS, containers=containers)), "containers")
    assert (found.result, found.message) == (
        Result.WARN,
        "of 3 containers the access of 1 is known from others than the kernel",
    )


def test_containers_that_cannot_be_looked_for_are_a_failure() -> None:
    stats = replace(STATS, up={Stage.DISCOVERY: False}, problems=(Problem(Stage.DISCOVERY, "cgroups", "no mount"),))
    found = check(replace(HEALTHY, stats=stats), "containers")
    assert (found.result, found.message) == (Result.FAIL, "cgroups: no mount")


def test_the_table_has_a_line_for_each_check_whatever_a_message_holds() -> None:
    checks = [Check("one", Result.OK, "fine"), Check("two", Result.FAIL, "a\x1b[2J\nb", "do it")]
    assert render_table(checks).splitlines() == [
        "RESULT  CHECK  MEANING",
        "ok      one    fine",
        r"fail    two    a\x1b[2J\nb; to do: do it",
    ]


def test_the_document_is_a_list_of_checks() -> None:
    checks = [Check("one", Result.NOT_APPLICABLE, "fine"), Check("two", Result.FAIL, "bad", "do it")]
    assert json.loads(render_json(checks)) == [
        {"check": "one", "result": "does not apply", "message": "fine", "cure": None},
        {"check": "two", "result": "fail", "message": "bad", "cure": "do it"},
    ]


@pytest.mark.parametrize(
    ("status", "capabilities"),
    [
        ("CapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\n", set()),
        ("CapEff:\t0000000000201000\n", {"CAP_SYS_ADMIN", "CAP_NET_ADMIN"}),
        ("CapEff:\t00000000a80425fb\n", set()),  # what Docker gives
        ("CapEff:\t0000000400080000\n", {"CAP_SYSLOG", "CAP_SYS_PTRACE"}),
        ("Name:\tx\n", set()),
    ],
)
def test_effective_capabilities(status: str, capabilities: set[str]) -> None:
    assert parse_capabilities(status) == capabilities
