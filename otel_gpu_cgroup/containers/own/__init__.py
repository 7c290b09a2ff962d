# SPDX-License-Identifier: Apache-2.0
"""What a process can tell of the container that it is in itself."""

from __future__ import annotations
