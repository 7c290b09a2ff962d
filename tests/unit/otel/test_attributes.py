# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from otel_gpu_cgroup.model import CgroupPath, Container, Gpu, GpuUuid, Pod, Runtime
from otel_gpu_cgroup.otel.attributes import container_attributes, gpu_attributes
from tests.support.stats import accelerator

PATH = CgroupPath("/x/y")


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
    ],
)
def test_what_is_not_known_is_left_out(container: Container, expected: dict[str, str]) -> None:
    attributes = container_attributes(container, accelerator("GPU-1"))
    assert attributes == {**expected, "hw.id": "GPU-1", "hw.model": "H100"}


def test_a_gpu_bears_no_container() -> None:
    assert gpu_attributes(Gpu(3, GpuUuid("GPU-1"))) == {"hw.id": "GPU-1", "hw.name": "nvidia3", "hw.vendor": "NVIDIA"}
