# SPDX-License-Identifier: Apache-2.0
"""Pure: the cgroups of Slurm's steps; a job's and a task's are no containers, and the extern step holds no work.

v1: `[slurm]/uid_U/job_J/step_S/task_T`; v2: `[NODE_]slurmstepd.scope/job_J/step_S/user/task_T`, since 26.05 with the
job's SLUID (Slurm's `sluid.c`: `s`, then 13 letters of Crockford's base 32) in place of its number.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import CgroupPath, Container, Runtime, SlurmStep

if TYPE_CHECKING:
    from collections.abc import Sequence

_STEP: Final = re.compile(r"step_(?P<step>[0-9]+(?:\+[0-9]+)?|batch|interactive)")
_JOB: Final = re.compile(r"job_(?P<job>[0-9]+)|(?P<sluid>s[0-9A-HJKMNP-TV-Z]{13})")
_USER: Final = re.compile(r"uid_(?P<uid>[0-9]{1,10})")
_SCOPE: Final = re.compile(r"(?:.+_)?slurmstepd\.scope", re.DOTALL)


def parse_step(path: CgroupPath, names: Sequence[str]) -> Container | None:
    """The step whose cgroup this is; its job's number is None where the path has the SLUID instead."""
    if len(names) < 3 or (step := _STEP.fullmatch(names[-1])) is None or (job := _JOB.fullmatch(names[-2])) is None:
        return None
    user = _USER.fullmatch(names[-3])
    if user is None and _SCOPE.fullmatch(names[-3]) is None:
        return None
    slurm = SlurmStep(step["step"], job["job"], None if user is None else int(user["uid"]))
    return Container(path, Runtime.SLURM, name=f"slurm-{job['job'] or job['sluid']}.{step['step']}", slurm=slurm)
