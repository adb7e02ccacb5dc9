"""Checkpoints that TensorFlow wrote, and a writer of the same format.

`albert` is imported late: the hook on annotations comes first.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def checkpoints() -> Path:
    """The folder of checkpoints that `dev/scripts/make_tensorflow_checkpoints.py` wrote."""
    return HERE


@pytest.fixture(scope="session")
def writer() -> ModuleType:
    """`writer.py`."""
    spec = importlib.util.spec_from_file_location("tensorflow_writer", HERE / "writer.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
