"""ALBERT, whole: from a pile of text to a pre-trained, fine-tuned and measured encoder.

`albert.load` opens a trained model to be asked (see `albert.inference.predictor.Predictor.open`), and
`albert.AlbertEmbedding` is a step of a scikit-learn pipeline.
"""

import importlib
from typing import Any

__version__ = "0.1.0"
_LATE = {
    "load": ("albert.inference.predictor", "Predictor.open"),
    "AlbertEmbedding": ("albert.inference.embedding_transformer", "AlbertEmbedding"),
}
"""Names whose modules stand on heavy libraries: these come when somebody asks, and not before."""


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, path = _LATE[name]
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATE])
