"""Sentence vectors for scikit-learn: `AlbertEmbedding`."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Float32
from sklearn.base import BaseEstimator, TransformerMixin

from albert.inference.engine import PrecisionChoice
from albert.inference.predictor import Pooling, Predictor
from albert.inference.texts import check_texts


class AlbertEmbedding(TransformerMixin, BaseEstimator):
    """Texts to vectors: `make_pipeline(AlbertEmbedding("runs/mine"), LogisticRegression())`.

    Nothing is trained: `fit` only opens the model. scikit-learn copies and pickles the settings alone; the weights are
    read again from their directory.

    Args:
        pooling: "mean" over all tokens, "cls", "max", or "weighted", a mean that weights rare tokens higher. None: as
            the model's files for sentence-transformers say, else the mean.
        normalize: scale vectors to length 1. None: as the model's files say, else no.
        prompt: the name of one of the model's prompts, which is written before every text.
    """

    def __init__(
        self,
        model: str = "",
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        device: str = "auto",
        precision: PrecisionChoice = "auto",
        depth: int | None = None,
        prompt: str | None = None,
    ) -> None:
        self.model = model
        self.pooling: Pooling | None = pooling
        self.normalize = normalize
        self.prompt = prompt
        self.device = device
        self.precision: PrecisionChoice = precision
        self.depth = depth

    def fit(self, texts: Iterable[str], labels: Any = None) -> "AlbertEmbedding":
        """Open the model; texts and labels are ignored."""
        self._predictor()
        return self

    def transform(self, texts: Iterable[str]) -> Float32[np.ndarray, "texts D"]:
        """A vector for each text; any list, array or column of texts."""
        check_texts("texts", texts)  # before `list`, which makes letters of a string and names of a data frame
        return self._predictor().embed(list(texts), self.pooling, self.normalize, prompt=self.prompt)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """`albert0`, `albert1`, ...: one name per dimension."""
        return np.array([f"albert{index}" for index in range(self._predictor().vector_width)], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_open"}

    def _predictor(self) -> Predictor:
        """The predictor for the current settings, opened once."""
        settings = (self.model, self.device, self.precision, self.depth)
        cached = getattr(self, "_open", None)
        if cached is None or cached[0] != settings:
            predictor = Predictor.open(self.model, self.device, precision=self.precision, depth=self.depth)
            cached = (settings, predictor)
            self._open = cached
        return cached[1]
