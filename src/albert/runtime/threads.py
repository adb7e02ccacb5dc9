"""How many threads compute and how they wait, settled before torch is loaded: its library reads both only then.

The package's first lines import this file, so it imports none of ours: an interrupt is answered only after them.
"""

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

SPINS = "10000"
"""Times that a thread of GNU OpenMP looks for its next piece of work before it sleeps. Left alone it looks for
milliseconds. Where another process has taken a core, that keeps the others from it at every operation of a model: a
text takes 20 times as long as on a quiet machine; with this number about 3 times, and as long as before on a quiet one.
"""


def configure_threads(environment: MutableMapping[str, str], groups: Path = Path("/sys/fs/cgroup")) -> None:
    """Set what GNU OpenMP reads, unless the user has set it.

    GOMP_SPINCOUNT, unless OMP_WAIT_POLICY says how threads wait; OMP_NUM_THREADS in a container that may use less
    processor time than its processors have.
    """
    if "torch" in sys.modules:
        return
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", SPINS)
    quota = cores_of_quota(groups)
    if quota is not None and quota < (os.cpu_count() or 1):
        environment.setdefault("OMP_NUM_THREADS", str(max(1, int(quota))))


def cores_of_quota(groups: Path, own: Path = Path("/proc/self/cgroup")) -> float | None:
    """The processor time that this process's control group may use, in cores; None: there is no limit.

    Args:
        groups: where control groups are mounted: version 2 (`cpu.max`) or 1 (`cpu/cpu.cfs_quota_us`).
        own: names the group of this process. A container sees its own group as the root, and is looked for there, too.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    places = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    quotas: list[float] = []
    for _, controllers, path in places:
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
    """The limit of one group, in cores; empty where it has none."""
    try:
        if (folder / "cpu.max").is_file():
            time, period = (folder / "cpu.max").read_text().split()[:2]
        else:
            time = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        return [int(time) / int(period)] if time != "max" and int(time) > 0 else []
    except (OSError, ValueError):
        return []
