# SPDX-License-Identifier: Apache-2.0
"""WHO is on this host: the containers, recognised by their cgroups."""

from __future__ import annotations
