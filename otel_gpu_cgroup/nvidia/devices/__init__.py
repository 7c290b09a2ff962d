# SPDX-License-Identifier: Apache-2.0
"""Which devices there are: by the driver's files, the PCI bus and NVML together."""

from __future__ import annotations
