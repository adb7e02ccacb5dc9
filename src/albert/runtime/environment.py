"""The environment of the process: installed package, lazy imports, precisions, ranks set by torchrun."""

import importlib
import os
import re
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


Precision = Literal["fp32", "bf16"]
PrecisionChoice = Literal["auto", "fp32", "bf16"]
OptimizerKind = Literal["lamb", "adamw", "muon"]


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
