# SPDX-License-Identifier: Apache-2.0
"""Pure: the cgroups of systemd's services and scopes, of the host's system manager and of its users' managers.

Above a unit there are slices and user managers alone: the units of a systemd that runs in a container are not of this
host. Slices are no units here, as they hold no processes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from otel_gpu_cgroup.model import CgroupPath, Container, Runtime

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNIT: Final = re.compile(r".+\.(?:service|scope)", re.DOTALL)
_ABOVE: Final = re.compile(r".+\.slice|user@[0-9]+\.service", re.DOTALL)
_LEFT_OUT: Final = re.compile(
    r"init\.scope"  # systemd itself
    r"|(?:.+_)?slurmstepd\.scope"  # around all jobs of a node
    r"|(?:libpod|crio)-conmon-.+|podman-pause-.+",  # what watches a container, or holds its namespaces
    re.DOTALL,
)


def parse_unit(path: CgroupPath, names: Sequence[str]) -> Container | None:
    """The unit whose cgroup this is."""
    top, *above, name = names if len(names) > 1 else ("-", "")
    if top or _UNIT.fullmatch(name) is None or _LEFT_OUT.fullmatch(name) is not None:
        return None
    if not all(_ABOVE.fullmatch(folder) for folder in above):
        return None
    return Container(path, Runtime.SYSTEMD, name=name)
