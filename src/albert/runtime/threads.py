"""The number of threads and how they wait, set before torch is imported, because OpenMP reads both only then.

The package imports this file first, and it imports no other file of ours: an interrupt is handled only after it.
"""

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

SPINS = "10000"
"""Times that a thread of GNU OpenMP polls for work before it sleeps. The default is milliseconds of polling, which
makes a text take 20 times as long where another process uses one of the cores; with this value about 3 times, and no
longer than before on an idle machine."""


def configure_threads(environment: MutableMapping[str, str], groups: Path = Path("/sys/fs/cgroup")) -> None:
    """Set GOMP_SPINCOUNT and, in a container with a CPU quota, OMP_NUM_THREADS, unless the user has set them."""
    if "torch" in sys.modules:
        return
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", SPINS)
    quota = cores_of_quota(groups)
    if quota is not None and quota < (os.cpu_count() or 1):
        environment.setdefault("OMP_NUM_THREADS", str(max(1, int(quota))))


def cores_of_quota(groups: Path, own: Path = Path("/proc/self/cgroup")) -> float | None:
    """The CPU quota of this process's control group, in cores; None without a limit.

    Control groups of version 2 (`cpu.max`) or 1 (`cpu/cpu.cfs_quota_us`) are mounted at `groups`. All parents are read,
    because the group that `own` names may be mounted as the root in a container.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    quotas: list[float] = []
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = groups if not controllers else groups / "cpu"
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            quotas += _quota(folder)
            if folder == top:
                break
    return min(quotas, default=None)


def _quota(folder: Path) -> list[float]:
    """The limit of one group, in cores; empty without one."""
    try:
        if (folder / "cpu.max").is_file():
            time, period = (folder / "cpu.max").read_text().split()[:2]
        else:
            time = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        return [int(time) / int(period)] if time != "max" and int(time) > 0 else []
    except (OSError, ValueError):
        return []
