"""The environment of the process: installed package, lazy imports, precisions, ranks set by torchrun, threads."""

import importlib
import os
import re
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from albert.runtime.errors import Unavailable

# --------------------------------------------------------------------------------------------------------------------
# The package as it was installed: its name on the package index, and the models that come with it.

DISTRIBUTION = "albert-encoder"
"""What `pip install` calls the package; `albert` on the package index is another project."""
_PACKAGE = Path(__file__).resolve().parents[1]
_NAME = re.compile(r"[a-z][a-z0-9-]*")


def install_command(extra: str) -> str:
    """What installs the libraries of an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def shipped_model(name: str | Path) -> Path | None:
    """The directory of a model that comes with the package, by its name ("tiny"); None: there is none of this name.

    A wheel has it inside of the package, a checkout beside `src`.
    """
    inside = [_PACKAGE / "models"]
    beside = [_PACKAGE.parents[1] / "models"] if _PACKAGE.parent.name == "src" else []
    if _NAME.fullmatch(str(name)):
        for folder in (*beside, *inside):
            if (folder / name / "config.json").is_file():
                return folder / name
    return None


# --------------------------------------------------------------------------------------------------------------------
# Modules that are imported when they are asked for, by name: heavy ones, and those that need an optional library.


def load_by_name(module: str, extra: str | None = None) -> ModuleType:
    """Import a module of ours, or of a library that takes long to import.

    Args:
        extra: the extra of the package that brings the library on which it stands.

    Raises:
        Unavailable: the library is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if extra is None or error.name is None or error.name.split(".")[0] == "albert":
            raise
        raise Unavailable(error.name, "is not installed", install_command(extra)) from error


# --------------------------------------------------------------------------------------------------------------------
# The names of the precisions at which models are trained.

Precision = Literal["fp32", "bf16"]
PrecisionChoice = Literal["auto", "fp32", "bf16"]


# --------------------------------------------------------------------------------------------------------------------
# The processes that torchrun started, as the environment describes them; this needs no torch.

PEER_TIMEOUT_MINUTES = 30.0
"""A peer that died is noticed at once, by gloo or by a thread beside NCCL; this is for one that hangs. The first rank
checks, evaluates and saves meanwhile."""


@dataclass(frozen=True)
class Ranks:
    """The processes that train together."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0


def world() -> Ranks:
    """The world torchrun described in the environment, or a single process."""
    if "RANK" not in os.environ:
        return Ranks()
    return Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ.get("LOCAL_RANK", "0")))


# --------------------------------------------------------------------------------------------------------------------
# How many threads compute and how they wait, settled before torch is loaded: its library reads both only then.

SPINS = "10000"
"""Times that a thread of GNU OpenMP looks for its next piece of work before it sleeps. Left alone it looks for
milliseconds. Where another process has taken a core, that keeps the others from it at every operation of a model: a
text takes 20 times as long as on a quiet machine; with this number about 3 times, and as long as before on a quiet one.
"""


def settle_threads(environment: MutableMapping[str, str], groups: Path = Path("/sys/fs/cgroup")) -> None:
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
