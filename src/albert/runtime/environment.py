"""The environment of the process: installed package, lazy imports, precisions, ranks set by torchrun."""

import difflib
import importlib
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import sys
import urllib.parse
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
    """The command that installs the libraries of an extra: from the checkout that this package was installed from,
    because there is no release on the package index."""
    checkout = _checkout()
    if checkout is None:
        return f"in a checkout of the repository: {_pip()} install '.[{extra}]'"
    editable = "-e " if _PACKAGE.is_relative_to(checkout) else ""
    folder = "." if checkout == Path.cwd() else str(checkout)
    return f"{_pip()} install {editable}{shlex.quote(f'{folder}[{extra}]')}"


def _checkout() -> Path | None:
    """The folder with the source from which this package was installed; None if it is unknown or gone."""
    if _PACKAGE.parent.name == "src":
        return _PACKAGE.parents[1]
    try:
        recorded = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    address = urllib.parse.urlsplit(json.loads(recorded)["url"] if recorded else "")
    folder = Path(urllib.parse.unquote(address.path))
    return folder if address.scheme == "file" and (folder / "pyproject.toml").is_file() else None


def _pip() -> str:
    """What the user types for the pip of this environment."""
    found = shutil.which("pip")
    if found is not None and Path(found).parent.resolve() == Path(sys.executable).parent.resolve():
        return "pip"
    return f"{_shown_path(Path(sys.executable))} -m pip"


def _shown_path(path: Path) -> str:
    """A path for a shell, relative to the working directory if it is inside."""
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))


def command_name() -> str:
    """What the user types for `albert`: the name if the shell finds this installation by it, else a path to it."""
    found = shutil.which("albert")
    beside_python = Path(sys.executable).parent / "albert"
    if beside_python.is_file():
        if found is not None and beside_python.samefile(found):
            return "albert"
        return _shown_path(beside_python)
    if found is not None and Path(sys.argv[0]).name == "albert":
        return "albert"
    return f"{shlex.quote(sys.executable)} -m albert"


def similar_shipped_model(name: str) -> str | None:
    """The name of a model that comes with the package and differs from this one by a slip: "small" for "smal"."""
    folders = [_PACKAGE / "models"]
    if _PACKAGE.parent.name == "src":
        folders.append(_PACKAGE.parents[1] / "models")
    known = {file.parent.name for folder in folders for file in folder.glob("*/config.json")}
    return next(iter(difflib.get_close_matches(name.lower(), sorted(known), n=1, cutoff=0.8)), None)


def bundled_model(name: str | Path) -> Path | None:
    """The directory of a model that comes with the package, by its name ("tiny"); None if there is no such model."""
    checkout = [_PACKAGE.parents[1] / "models"] if _PACKAGE.parent.name == "src" else []
    if _NAME.fullmatch(str(name)):
        for folder in (*checkout, _PACKAGE / "models"):  # a wheel has them inside the package
            if (folder / name / "config.json").is_file():
                return folder / name
    return None


# --------------------------------------------------------------------------------------------------------------------
# Modules imported on first use, by name: slow ones, and those that need an optional library.


def lazy_import(module: str, extra: str | None = None) -> ModuleType:
    """Import a module; `Unavailable` if the library of the package's extra `extra` is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if extra is None or error.name is None or error.name.split(".")[0] == "albert":
            raise
        raise Unavailable(error.name, "is not installed", install_command(extra)) from error


Precision = Literal["fp32", "bf16"]
PrecisionChoice = Literal["auto", "fp32", "bf16"]
OptimizerKind = Literal["lamb", "adamw", "muon"]
Log = Literal["tensorboard", "wandb", "trackio"]
DEFAULT_LOG: Log = "tensorboard"


# --------------------------------------------------------------------------------------------------------------------
# The processes that torchrun started, read from the environment without importing torch.

PEER_TIMEOUT_MINUTES = 30.0
"""For a peer that hangs, and longer than the first rank takes to evaluate and save. A dead peer is noticed at once, by
gloo or by a thread beside NCCL."""


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
    """The ranks that torchrun set in the environment; a single process without torchrun."""
    if "RANK" not in os.environ:
        return Ranks()
    return Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ.get("LOCAL_RANK", "0")))
