"""Sentence vectors for scikit-learn: `AlbertEmbedding`."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Float32
from sklearn.base import BaseEstimator, TransformerMixin

from albert.inference.engine import PrecisionAsked
from albert.inference.predictor import Pooling, Predictor


class AlbertEmbedding(TransformerMixin, BaseEstimator):
    """Texts to vectors: `make_pipeline(AlbertEmbedding("runs/mine"), LogisticRegression())`.

    Nothing is learnt: `fit` only opens the model. What scikit-learn copies and pickles are the settings; the weights
    are read again from where they are.

    Args:
        pooling: "mean" over all tokens, "cls", or "weighted", the mean in which rare pieces weigh more.
    """

    def __init__(
        self,
        model: str = "",
        pooling: Pooling = "mean",
        normalize: bool = False,
        device: str = "auto",
        precision: PrecisionAsked = "auto",
        depth: int | None = None,
    ) -> None:
        self.model = model
        self.pooling: Pooling = pooling
        self.normalize = normalize
        self.device = device
        self.precision: PrecisionAsked = precision
        self.depth = depth

    def fit(self, texts: Iterable[str], labels: Any = None) -> "AlbertEmbedding":
        """Open the model; neither texts nor labels are looked at."""
        self._opened()
        return self

    def transform(self, texts: Iterable[str]) -> Float32[np.ndarray, "texts H"]:
        """A vector for each text; any list, array or column of them."""
        return self._opened().embed(list(texts), self.pooling, self.normalize)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """`albert0`, `albert1`, ...: a name for each number of a vector."""
        return np.array([f"albert{place}" for place in range(self._opened().config.hidden_size)], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_open"}

    def _opened(self) -> Predictor:
        """The predictor for the settings as they are now, opened once."""
        asked = (self.model, self.device, self.precision, self.depth)
        opened = getattr(self, "_open", None)
        if opened is None or opened[0] != asked:
            predictor = Predictor.open(self.model, self.device, precision=self.precision, depth=self.depth)
            opened = self._open = (asked, predictor)
        return opened[1]
