"""ALBERT, whole: from a pile of text to a pre-trained, fine-tuned and measured encoder."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from albert.inference.embedding_transformer import AlbertEmbedding as AlbertEmbedding
    from albert.inference.predictor import Predictor

    load = Predictor.open

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`albert.load`, which opens a model, and `albert.AlbertEmbedding`: the libraries they need come when asked for."""
    if name == "load":
        from albert.inference.predictor import Predictor

        return Predictor.open
    if name == "AlbertEmbedding":
        from albert.inference.embedding_transformer import AlbertEmbedding

        return AlbertEmbedding
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
