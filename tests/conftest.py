# SPDX-License-Identifier: Apache-2.0
"""Fixtures that every level of tests shares."""

from __future__ import annotations
