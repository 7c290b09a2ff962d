# SPDX-License-Identifier: Apache-2.0
"""Pure: the minor numbers of MIG capabilities, as the driver's files tell them.

`/proc/driver/nvidia-caps/mig-minors` (nv-caps.c of open-gpu-kernel-modules 595) lists every capability that there may
be; `/proc/driver/nvidia/capabilities` has a file for each that there is. Both call a GPU by its minor number.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Container

    from otel_gpu_cgroup.model import MigInstance

_LINE: Final = re.compile(r"(gpu[0-9]{1,3}/[a-z0-9/]{1,32}) ([0-9]{1,7})")
_MINOR: Final = re.compile(r"DeviceFileMinor:\s*([0-9]{1,7})")


def capability_names(gpu_minor: int, instance: MigInstance) -> tuple[str, str]:
    """What mig-minors calls the two capabilities that an instance is opened by: its GPU instance's and its own."""
    place = f"gpu{gpu_minor}/gi{instance.gpu_instance}"
    return f"{place}/access", f"{place}/ci{instance.compute_instance}/access"


def capability_path(name: str) -> str:
    """Where the file of a capability is under `/proc/driver/nvidia/capabilities`."""
    gpu, _, rest = name.partition("/")
    return f"{gpu}/mig/{rest}"


def parse_mig_minors(text: str, wanted: Container[str]) -> dict[str, int]:
    """The minor numbers of the wanted capabilities, as far as they are there."""
    found = (match.groups() for line in text.splitlines() if (match := _LINE.fullmatch(line.strip())))
    return {name: int(minor) for name, minor in found if name in wanted}


def parse_capability(text: str) -> int:
    """The minor number in a capability's own file."""
    match = _MINOR.match(text)
    if match is None:
        raise ParseError(text, "a capability of the driver, which begins 'DeviceFileMinor: N'")
    return int(match[1])
