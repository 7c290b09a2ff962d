# SPDX-License-Identifier: Apache-2.0
"""Names containers by the files that kubelet, engines and Slurm leave on a host."""

from __future__ import annotations
