# SPDX-License-Identifier: Apache-2.0
"""The device programs of cgroup v2: fetched from the kernel, decoded, and run on one request at a time."""

from __future__ import annotations
