"""Sentence vectors for scikit-learn: `AlbertEmbedding`."""

from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32
from sklearn.base import BaseEstimator, TransformerMixin

from albert.checkpoints.hub import require_name
from albert.inference.engine import PrecisionChoice
from albert.inference.predictor import Predictor
from albert.inference.texts import check_texts
from albert.model.albert import Pooling
from albert.runtime.errors import without_inner_frames


class AlbertEmbedding(TransformerMixin, BaseEstimator):
    """Texts to vectors: `make_pipeline(AlbertEmbedding("runs/mine"), LogisticRegression())`.

    Nothing is trained: `fit` only opens the model. A pickle (joblib's, too) has the settings, the model's absolute path
    and the fingerprint of the model that was open, without weights; where another model is in its place, the first use
    is refused. `copy.deepcopy` has the weights.

    Args:
        pooling: "mean" over all tokens, "cls", "max", or "weighted", a mean that weights rare tokens higher. None: as
            the model's files for sentence-transformers say, else the mean.
        normalize: scale vectors to length 1. None: as the model's files say, else no.
        prompt: the name of one of the model's prompts, which is written before every text.
    """

    @without_inner_frames("albert.AlbertEmbedding")
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

    @without_inner_frames("fit")
    def fit(self, texts: Iterable[str], labels: Any = None) -> "AlbertEmbedding":
        """Open the model; texts and labels are ignored."""
        self._predictor()
        return self

    @without_inner_frames("transform")
    def transform(self, texts: Iterable[str]) -> Float32[np.ndarray, "texts D"]:
        """A vector for each text; any list, array or column of texts. Notes say how many were cut, or are empty."""
        check_texts("texts", texts)  # before `list`, which makes letters of a string and names of a data frame
        return self._predictor().embed(list(texts), self.pooling, self.normalize, prompt=self.prompt)

    @without_inner_frames("get_feature_names_out")
    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """`albert0`, `albert1`, ...: one name per dimension."""
        return np.array([f"albert{index}" for index in range(self._predictor().vector_width)], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __getstate__(self) -> dict[str, Any]:
        inherited: Any = super().__getstate__()
        state: dict[str, Any] = dict(inherited)
        opened: _Opened | None = state.pop("_open", None)
        if opened is not None and opened.settings == self._settings():
            state["model"] = opened.model
            state["_pickled"] = (opened.model, self.depth, opened.predictor.fingerprint())
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> "AlbertEmbedding":
        copied = type(self)(**self.get_params(deep=False))
        vars(copied).update(deepcopy(vars(self), memo))
        return copied

    def _settings(self) -> tuple[Any, ...]:
        return self.model, self.device, self.precision, self.depth

    def _predictor(self) -> Predictor:
        """The predictor for the current settings, opened once."""
        settings = self._settings()
        opened: _Opened | None = getattr(self, "_open", None)
        if opened is None or opened.settings != settings:
            require_name(self.model)
            path = Path(self.model)
            model = str(path.absolute()) if path.exists() else self.model
            how: dict[str, Any] = {"precision": self.precision, "depth": self.depth}
            pickled_model, pickled_depth, fingerprint = getattr(self, "_pickled", (None, None, ""))
            if (pickled_model, pickled_depth) == (self.model, self.depth):
                predictor = Predictor.open_the_same(fingerprint, path_or_id=model, device=self.device, **how)
            else:
                predictor = Predictor.open(model, self.device, **how)
            opened = _Opened(settings, model, predictor)
            self._open = opened
        return opened.predictor


class _Opened(NamedTuple):
    """An open model: the settings that it was opened with, and its absolute path, or its name."""

    settings: tuple[Any, ...]
    model: str
    predictor: Predictor
