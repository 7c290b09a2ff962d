# SPDX-License-Identifier: Apache-2.0
"""What a person sees: who holds which device, what is its own, what is lost, and what is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from otel_gpu_cgroup.cli.overview import render_table
from otel_gpu_cgroup.model import (
    AccessClass,
    CgroupPath,
    ContainerReport,
    GpuReading,
    GpuUuid,
    OwnShare,
    Pod,
    Problem,
    Runtime,
    SlurmStep,
    Stage,
)
from tests.support.stats import GIB, accelerator, container, gpu, instance, node, partitioned

MIB: Final = 1 << 20
EVIL: Final = "x\n\x1b[2J\r\u202e\udcff"
READ: Final = GpuReading(80 * GIB, 64 * GIB, 72.4)


def named(report: ContainerReport, name: str) -> ContainerReport:
    return replace(report, container=replace(report.container, name=name))


TRAINER: Final = container(
    "7a1de4" * 10,
    accelerator("GPU-a", own=OwnShare(60 * GIB, 0.617, 1)),
    pod=Pod("uid-1", "llama-0", "training", "main"),
)
EMBEDDER: Final = named(container("5e4e2" * 12, accelerator("GPU-a", own=OwnShare(0, None, 0))), "embedder")
LOST: Final = accelerator(
    "GPU-b", None, None, own=OwnShare(None, None, 2), lost=True, reason="its own /dev has the node"
)
LOSER: Final = named(container("105e" * 16, LOST), "transcoder")
STEP: Final = named(
    container(
        "unused",
        accelerator("MIG-a", parent="GPU-m", own=None),
        id=None,
        runtime=Runtime.SLURM,
        slurm=SlurmStep("0", "42"),
        cgroup=CgroupPath("/slurm/uid_1/job_42/step_0"),
    ),
    "slurm-42.0",
)
NAMELESS: Final = container("ab" * 32)


def table(text: str, number: int) -> list[str]:
    return text.split("\n\n")[number].splitlines()


def test_devices_with_their_holders_then_containers_then_what_is_wrong() -> None:
    stats = node(
        NAMELESS,
        TRAINER,
        EMBEDDER,
        LOSER,
        STEP,
        gpus=[
            gpu("GPU-a", 0, TRAINER.container.key, EMBEDDER.container.key, reading=READ, unattributed=4 * GIB),
            gpu("GPU-b", 1, reading=GpuReading(80 * GIB, 1 * GIB, 0.0), unattributed=1 * GIB),
            partitioned("GPU-m", 2, STEP.container.key),
            instance("MIG-a", "GPU-m", 2, STEP.container.key),
            instance("MIG-b", "GPU-m", 2),
        ],
        problems=[Problem(Stage.NVML, "GPU-b", "is odd")],
    )
    assert render_table(stats).splitlines() == [
        "GPU          MODEL    USE     GPU MEMORY         GPU BUSY  OWN MEMORY  OWN BUSY  PROCS  CONTAINER",
        "nvidia0      H100     shared  65536 / 81920 MiB  72 %      61440 MiB   62 %      1      training/llama-0/main",
        "                                                           0 MiB       -         0      embedder",
        "                                                           4096 MiB                     (unattributed)",
        "nvidia1      H100     lost    1024 / 81920 MiB   0 %       -           -         2      transcoder (lost)",
        "nvidia2      H100     MIG     3072 / 81920 MiB   -",
        "nvidia2/gi7  1g.10gb  held    1024 / 8192 MiB    40 %      -           -         -      slurm-42.0",
        "nvidia2/gi7  1g.10gb  free    1024 / 8192 MiB    40 %",
        "",
        "ID            RUNTIME  ACCESS    GPUS          CONTAINER",
        "7a1de47a1de4  docker   explicit  nvidia0       training/llama-0/main",
        "5e4e25e4e25e  docker   explicit  nvidia0       embedder",
        "105e105e105e  docker   explicit  lost:nvidia1  transcoder",
        "-             slurm    explicit  nvidia2/gi7   slurm-42.0",
        "abababababab  docker   none      -             abababababab",
        "",
        "lost: transcoder should be able to open nvidia1: its own /dev has the node",
        "",
        "problem: nvml: GPU-b: is odd",
    ]


def test_what_is_unknown_is_a_dash_and_never_0() -> None:
    holder = container("a" * 64, accelerator("GPU-a", None, None, own=None))
    [_, line] = table(render_table(node(holder, gpus=[gpu("GPU-a", 0, reading=GpuReading(), complete=False)])), 0)
    assert line.split() == ["nvidia0", "H100", "-", "-", "/", "-", "MiB", "-", "-", "-", "-", "a" * 12]


@pytest.mark.parametrize(
    ("holders", "known", "in_part"),
    [((), "free", "-"), (("a",), "held", "-"), (("a", "b"), "shared", "shared")],
)
def test_how_many_hold_a_device_as_far_as_that_is_known(holders: tuple[str, ...], known: str, in_part: str) -> None:
    for complete, word in ((True, known), (False, in_part)):
        lines = table(render_table(node(gpus=[gpu("GPU-a", 0, *holders, complete=complete)])), 0)
        assert lines[1].split()[2] == word


@pytest.mark.parametrize(("unattributed", "lines"), [(None, 1), (0, 1), (4 * GIB - 1, 1), (4 * GIB, 2)])
def test_what_is_nobodys_has_a_line_where_it_matters(unattributed: int | None, lines: int) -> None:
    user = container("a", accelerator("GPU-a"))
    stats = node(user, gpus=[gpu("GPU-a", 0, "a", unattributed=unattributed)])
    assert len(table(render_table(stats), 0)) == 1 + lines


def test_instances_are_told_apart_by_the_ids_of_their_files() -> None:
    part = instance("MIG-a", "GPU-m", 3)
    assert part.gpu.instance is not None
    second = replace(part.gpu, uuid=GpuUuid("MIG-b"), instance=replace(part.gpu.instance, compute_instance=1))
    user = container("u", accelerator("MIG-a"), accelerator("MIG-b"), accelerator("GPU-x"))
    text = render_table(node(user, gpus=[part, replace(part, gpu=second)]))
    assert [line.split()[0] for line in table(text, 0)[1:]] == ["nvidia3/gi7", "nvidia3/gi7/ci1"]
    assert table(text, 1)[1].split()[3] == "nvidia3/gi7,3/gi7/ci1,GPU-x"


def test_many_devices_of_one_container_are_one_word() -> None:
    gpus = [gpu(f"GPU-{minor}", minor) for minor in range(8)]
    user = container("u", *(accelerator(f"GPU-{minor}") for minor in range(8)))
    assert table(render_table(node(user, gpus=gpus)), 1)[1].split()[3] == "nvidia0,1,2,3,4,5,6,7"


def test_a_pods_container_without_a_name_is_told_from_its_siblings_by_its_id() -> None:
    found = container("cafe" * 16, pod=Pod("uid", "web-0", "shop"))
    assert table(render_table(node(found)), 1)[1].split()[-1] == "shop/web-0/cafecafecafe"


def test_hostile_names_break_no_line_in_any_cell() -> None:
    victim = named(container(EVIL, accelerator(EVIL), accelerator("GPU-b", lost=True, reason=EVIL)), EVIL)
    podded = container("p", pod=Pod(EVIL, EVIL, EVIL, EVIL))
    pathed = container("q", id=None, cgroup=CgroupPath(f"/{EVIL}" + "y" * 5000))
    device = gpu("GPU-a", 0)
    part = instance("MIG-a", "GPU-m", 1)
    assert part.gpu.instance is not None
    parts = [
        replace(device, gpu=replace(device.gpu, model=EVIL * 100)),
        replace(part, gpu=replace(part.gpu, instance=replace(part.gpu.instance, profile=EVIL))),
    ]
    stats = node(victim, podded, pathed, gpus=parts, problems=[Problem(Stage.CYCLE, EVIL, EVIL)])
    lines = render_table(stats).split("\n")
    assert all(line.isprintable() for line in lines)
    assert len(lines) == 3 + 1 + 4 + 1 + 1 + 1 + 1
    assert max(map(len, lines)) < 3000


def test_without_gpus_and_containers_it_says_so() -> None:
    assert render_table(node()).splitlines() == ["No NVIDIA GPU is known here.", "", "No container is known here."]


def test_ten_thousand_containers_have_a_line_each() -> None:
    many = [container(f"{number:064x}", accelerator("GPU-a")) for number in range(10_000)]
    text = render_table(node(*many, gpus=[gpu("GPU-a", 0, *(report.container.key for report in many))]))
    assert len(text.split("\n")) == 1 + 10_000 + 1 + 1 + 10_000


def test_a_container_that_is_left_out_is_shown_as_such() -> None:
    found = replace(container("e" * 64), access=AccessClass.EXCLUDED)
    assert table(render_table(node(found)), 1)[1].split()[2:4] == ["excluded", "-"]
