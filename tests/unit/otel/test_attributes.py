# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from otel_gpu_cgroup.model import Account, CgroupPath, Container, Gpu, GpuUuid, MigInstance, Pod, Runtime, SlurmStep
from otel_gpu_cgroup.otel.attributes import (
    account_attributes,
    container_attributes,
    device_attributes,
    kind_attributes,
)
from tests.support.stats import accelerator

PATH = CgroupPath("/x/y")
INSTANCE = MigInstance(GpuUuid("GPU-1"), gpu_instance=7, compute_instance=0, profile="1g.10gb", fraction=1 / 7)


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (Container(PATH, Runtime.DOCKER, "abc"), {"container.id": "abc"}),
        (Container(PATH, Runtime.DOCKER, name="web"), {"container.id": "/x/y", "container.name": "web"}),
        (Container(PATH, Runtime.CRIO, "abc", pod=Pod("u1")), {"container.id": "abc", "k8s.pod.uid": "u1"}),
        (
            Container(PATH, Runtime.CRIO, "abc", pod=Pod("u1", "web-0", "shop", "server")),
            {
                "container.id": "abc",
                "container.name": "server",
                "k8s.namespace.name": "shop",
                "k8s.pod.name": "web-0",
                "k8s.pod.uid": "u1",
                "k8s.container.name": "server",
            },
        ),
        (
            Container(PATH, Runtime.SLURM, name="slurm-41.0", slurm=SlurmStep("0", "41", 1000)),
            {"container.id": "/x/y", "container.name": "slurm-41.0", "slurm.job.id": "41"},
        ),
        (Container(PATH, Runtime.SLURM, slurm=SlurmStep("0")), {"container.id": "/x/y"}),
    ],
)
def test_what_is_not_known_is_left_out(container: Container, expected: dict[str, str]) -> None:
    attributes = container_attributes(container, accelerator("GPU-1"))
    assert attributes == {**expected, "hw.id": "GPU-1", "hw.model": "H100"}


def test_an_instance_names_its_gpu() -> None:
    attributes = container_attributes(Container(PATH, Runtime.DOCKER, "a"), accelerator("MIG-1", parent="GPU-1"))
    assert attributes == {"container.id": "a", "hw.id": "MIG-1", "hw.model": "H100", "hw.parent": "GPU-1"}


def test_hostile_names_are_escaped_and_cut() -> None:
    pod = Pod("u", "web\x1b[2J", "sh\nop", "\udcff")
    attributes = container_attributes(Container(PATH, Runtime.CRIO, "a", "n" * 5000, pod), accelerator("GPU-1"))
    assert attributes["k8s.pod.name"] == r"web\x1b[2J"
    assert attributes["k8s.namespace.name"] == r"sh\nop"
    assert attributes["k8s.container.name"] == r"\udcff"
    assert len(str(attributes["container.name"])) == 1024


@pytest.mark.parametrize(
    ("gpu", "attributes", "kind"),
    [
        (
            Gpu(3, GpuUuid("GPU-1")),
            {"hw.id": "GPU-1", "hw.name": "nvidia3", "hw.vendor": "NVIDIA"},
            {"gpu_cgroup.device.kind": "gpu"},
        ),
        (
            Gpu(3, GpuUuid("GPU-1"), "H100", is_partitioned=True),
            {"hw.id": "GPU-1", "hw.model": "H100", "hw.name": "nvidia3", "hw.vendor": "NVIDIA"},
            {"gpu_cgroup.device.kind": "partitioned"},
        ),
        (
            Gpu(3, GpuUuid("MIG-1"), "H100", instance=INSTANCE),
            {"hw.id": "MIG-1", "hw.model": "H100", "hw.parent": "GPU-1", "hw.vendor": "NVIDIA"},
            {"gpu_cgroup.device.kind": "mig", "gpu_cgroup.mig.profile": "1g.10gb"},
        ),
    ],
)
def test_a_device_bears_no_container(gpu: Gpu, attributes: dict[str, str], kind: dict[str, str]) -> None:
    assert device_attributes(gpu) == attributes
    assert kind_attributes(gpu) == kind


@pytest.mark.parametrize(
    ("account", "expected"),
    [
        (Account("shop", None, "H100"), {"k8s.namespace.name": "shop", "hw.model": "H100"}),
        (Account(None, 0, "H100"), {"slurm.job.uid": 0, "hw.model": "H100"}),
        (Account(None, None, None), {}),
    ],
)
def test_an_account_bears_what_is_known_of_it(account: Account, expected: dict[str, Any]) -> None:
    assert account_attributes(account) == expected
