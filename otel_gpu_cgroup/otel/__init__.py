# SPDX-License-Identifier: Apache-2.0
"""HOW it leaves: one table of instruments, and the ways from it into OpenTelemetry."""

from __future__ import annotations
