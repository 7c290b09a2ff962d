# SPDX-License-Identifier: Apache-2.0
"""WHAT a container may open: the device policy of its cgroup, asked about one device node at a time."""

from __future__ import annotations
