"""ALBERT, whole: from a pile of text to a pre-trained, fine-tuned and measured encoder.

`albert.load` opens a trained model to be asked (see `albert.inference.predictor.Predictor.open`), and
`albert.AlbertEmbedding` is a step of a scikit-learn pipeline. Both come when somebody asks for them, because what they
stand on is heavy.
"""

import importlib
import os
import sys

from albert.runtime.threads import settle_threads

if sys.platform == "win32":
    raise ImportError(
        "albert runs on Linux and macOS, not on Windows (it locks files with fcntl); WSL is a way to run it"
    )

settle_threads(os.environ)

TYPE_CHECKING = False
if TYPE_CHECKING:  # for editors and type checkers; `typing` would be most of what this file costs
    from albert.inference.embedding import AlbertEmbedding as AlbertEmbedding
    from albert.inference.predictor import Predictor

    load = Predictor.open

__version__ = "0.1.0"
_LATE = {
    "load": ("albert.inference.predictor", "Predictor.open"),
    "AlbertEmbedding": ("albert.inference.embedding", "AlbertEmbedding"),
}


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, path = _LATE[name]
    found: object = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATE])
