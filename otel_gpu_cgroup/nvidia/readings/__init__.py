# SPDX-License-Identifier: Apache-2.0
"""What the devices say: one NVML pass a cycle."""

from __future__ import annotations
