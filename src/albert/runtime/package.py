"""The package as it was installed: its name on the package index, and the models that come with it."""

import re
from pathlib import Path

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
