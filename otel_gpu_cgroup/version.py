# SPDX-License-Identifier: Apache-2.0
"""The version of the distribution, read by the build and reported as the instrumentation scope's."""

from __future__ import annotations

__version__ = "0.1.0"
