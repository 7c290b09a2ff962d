# SPDX-License-Identifier: Apache-2.0
"""Writes the programs of real containers into files, as the kernel shows them: `python -m tests.kernel.bpf.record`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import tests
from tests.kernel.bpf.lab import effective
from tests.kernel.bpf.runtimes import CASES, created
from tests.kernel.bpf.sysctl import hardening

FOLDER: Final = Path(tests.__file__).parent / "data/bpf"
BLINDED: Final = ("no-gpu", "one-gpu")
"""Cases that are recorded with constants blinded, too."""


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for runtime in ("runc", "crun"):
            for name in CASES:
                _record(runtime, name, 0, Path(scratch), f"{runtime}.{name}.bin")
            for name in BLINDED:
                _record(runtime, name, 2, Path(scratch), f"{runtime}.{name}.blinded.bin")


def _record(runtime: str, name: str, harden: int, scratch: Path, file: str) -> None:
    with hardening(harden, 0), created(runtime, scratch, CASES[name].rules) as cgroup:
        (code,) = effective(cgroup)
    (FOLDER / file).write_bytes(code)


if __name__ == "__main__":
    main()
