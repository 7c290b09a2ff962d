# SPDX-License-Identifier: Apache-2.0
"""Pure: what the path of a cgroup tells about the container that it was made for."""

from __future__ import annotations

from otel_gpu_cgroup.containers.identity.path import parse_container

__all__ = ["parse_container"]
