# SPDX-License-Identifier: Apache-2.0
"""Properties are of values: how long one example takes says nothing on a machine that does other things, too."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("without a deadline", deadline=None)
settings.load_profile("without a deadline")
