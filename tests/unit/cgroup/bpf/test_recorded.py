# SPDX-License-Identifier: Apache-2.0
"""The programs of real containers, as the kernel showed them, open the GPUs that the containers' rules name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import tests
from otel_gpu_cgroup.cgroup.bpf.isa import decode
from otel_gpu_cgroup.cgroup.bpf.machine import request_context, run
from otel_gpu_cgroup.model import READ_WRITE, Permission
from tests.kernel.bpf.comparison import is_blinded
from tests.kernel.bpf.runtimes import CASES

_FILES: Final = sorted((Path(tests.__file__).parent / "data/bpf").glob("*.bin"))
_CHAR: Final = 2


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_a_recorded_program_opens_the_gpus_of_its_rules(file: Path) -> None:
    program = decode(file.read_bytes())
    _, name, *blinded = file.stem.split(".")
    opened = {minor for minor in range(20) if run(program, request_context(READ_WRITE.value, _CHAR, 195, minor))}
    assert opened == CASES[name].gpus
    assert is_blinded(program) == bool(blinded)


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_every_container_may_make_nodes_and_open_dev_null(runtime: str) -> None:
    """Both add these rules to those of the container; so mknod says nothing about a GPU."""
    for file in _FILES:
        if file.name.startswith(runtime):
            program = decode(file.read_bytes())
            assert run(program, request_context(READ_WRITE.value, _CHAR, 1, 3)) == 1
            assert run(program, request_context(Permission.MKNOD.value, _CHAR, 195, 12)) == 1


def test_both_runtimes_were_recorded_for_every_case() -> None:
    stems = {file.stem for file in _FILES}
    assert {f"{runtime}.{name}" for runtime in ("runc", "crun") for name in CASES} <= stems
