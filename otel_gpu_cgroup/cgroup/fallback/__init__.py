# SPDX-License-Identifier: Apache-2.0
"""What is known of a container's policy without the kernel's word: what its runtime asked for, or put into its /dev."""

from __future__ import annotations
