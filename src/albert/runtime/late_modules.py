"""Modules that are imported when they are asked for, by name: heavy ones, and those that need an optional library."""

import importlib
from types import ModuleType

from albert.runtime.errors import Unavailable
from albert.runtime.package import install_command


def load_by_name(module: str, extra: str | None = None) -> ModuleType:
    """Import a module of ours, or of a library that takes long to import.

    Args:
        module: its full name, "albert.text.preparation.preparation_engines" say.
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
