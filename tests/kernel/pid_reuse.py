# SPDX-License-Identifier: Apache-2.0
"""What a pid's files and a `ProcessTable` say while one process after the other has it.

It runs as the first process of a PID namespace of its own, where nobody else takes pids:

    unshare --pid --fork --mount-proc python -m tests.kernel.pid_reuse 40 '{"a": [FOLDER, CGROUP], "b": [...]}'
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from otel_gpu_cgroup.containers.processes.files import ProcessFiles
from otel_gpu_cgroup.containers.processes.table import MOST_CYCLES, ProcessTable
from otel_gpu_cgroup.host import HostPaths
from tests.support.attribution import container, end, inventory, keys, sleeper

_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")
_LAST: Final = Path("/proc/sys/kernel/ns_last_pid")


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _again(pid: int, folder: str) -> None:
    """Another process with this pid."""
    end(pid)
    _LAST.write_text(str(pid - 1))
    other = sleeper(folder)
    assert other == pid, (other, pid)


def _after_ticks(number: int, since: float) -> None:
    while _boottime() < since + number * _TICK:
        time.sleep(_TICK)


def measure(lives: int, places: dict[str, list[str]]) -> dict[str, Any]:
    containers = [container(name, cgroup) for name, (_, cgroup) in places.items()]
    folders = [folder for folder, _ in places.values()]
    table, files = ProcessTable(HostPaths(), is_host=False), ProcessFiles(HostPaths().proc)
    pid = sleeper(folders[0])
    identities, changes, owners, stale = [files.identify(pid)], 0, [], []
    for life in range(1, lives + 1):
        for _ in range(MOST_CYCLES):  # while a process lives, its identity is one
            owners.append(keys(table.attribute(inventory([pid]), containers)).get(pid))
            changes += files.identify(pid) != identities[-1]
        listed_at = _boottime()
        _after_ticks(3, listed_at)
        _again(pid, folders[life % 2])
        identities.append(files.identify(pid))
        stale.append(keys(table.attribute(inventory([pid], listed_at=listed_at), containers)))
    end(pid)
    return {"identities": identities, "changes": changes, "owners": owners, "stale": stale}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), json.loads(sys.argv[2]))))  # noqa: T201
