# SPDX-License-Identifier: Apache-2.0
"""A host to try things on: files that the real parsers read, and an NVML whose values move."""

from __future__ import annotations
