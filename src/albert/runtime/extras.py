"""Modules that need more than the package itself installs: imported when they are asked for, by name."""

import importlib
from types import ModuleType

from albert.runtime.errors import Unavailable


def load_extra(module: str, extra: str) -> ModuleType:
    """Import a module of ours that stands on an optional library.

    Args:
        module: its full name, "albert.text.parquet_reader" say.
        extra: the extra of the package that brings the library.

    Raises:
        Unavailable: the library is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "albert":
            raise
        raise Unavailable(error.name, "is not installed", f"pip install 'albert[{extra}]'") from error
