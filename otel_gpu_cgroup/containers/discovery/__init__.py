# SPDX-License-Identifier: Apache-2.0
"""Finds the cgroups of containers, and which of them speak for each."""

from __future__ import annotations
