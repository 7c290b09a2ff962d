# SPDX-License-Identifier: Apache-2.0
"""Tells which container each process is in."""

from __future__ import annotations
