# SPDX-License-Identifier: Apache-2.0
"""`python -m otel_gpu_cgroup`."""

from __future__ import annotations

from otel_gpu_cgroup.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
