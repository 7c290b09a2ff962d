# SPDX-License-Identifier: Apache-2.0
"""WHAT the GPUs say: their identity, one NVML pass a cycle, and the join with what containers may open."""

from __future__ import annotations
