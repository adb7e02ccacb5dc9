"""Sentence vectors elsewhere: `AlbertEmbedding` for scikit-learn, and directories for sentence-transformers."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32
from sklearn.base import BaseEstimator, TransformerMixin

from albert.checkpoints.hub import find_model
from albert.checkpoints.model_directory import kind_of, open_model, read_config, tokenizer_of
from albert.checkpoints.tensor_files import QUANTIZATION_KEY
from albert.inference.engine import PrecisionAsked
from albert.inference.predictor import Pooling, Predictor, check_pooling
from albert.inference.tasks import lengths_of
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.files import new_directory, note_written
from albert.runtime.json_files import save_json
from albert.runtime.manifest import MANIFEST_NAME, files_below


class AlbertEmbedding(TransformerMixin, BaseEstimator):
    """Texts to vectors: `make_pipeline(AlbertEmbedding("runs/mine"), LogisticRegression())`.

    Nothing is learnt: `fit` only opens the model. What scikit-learn copies and pickles are the settings; the weights
    are read again from where they are.

    Args:
        model: a model directory, a run directory, or a Hub id.
        pooling: "mean" over all tokens, or "cls".
        normalize: to length 1.
        device, precision, depth: as of `Predictor.open`.
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


# --------------------------------------------------------------------------------------------------------------------
# A model directory that sentence-transformers opens: what it needs beside the files of transformers.
#
# As its documentation says of saved models: `modules.json` lists the steps, each with a folder of settings. The
# vectors are those of `Predictor.embed`.

_MODES = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}
_ALL_MODES = (
    "pooling_mode_cls_token",
    "pooling_mode_mean_tokens",
    "pooling_mode_max_tokens",
    "pooling_mode_mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens",
    "pooling_mode_lasttoken",
)


class Vectors(NamedTuple):
    """What an exported model gives: numbers of a vector, and the tokens of a text that it reads at most."""

    width: int
    longest: int


def save_for_sentence_transformers(
    model: str | Path,
    output: Path,
    pooling: Pooling = "mean",
    normalize: bool = False,
    *,
    revision: str | None = None,
    replace: bool = False,
) -> Vectors:
    """Copy a model to a directory that `SentenceTransformer(output)` opens, and so does everything else.

    Args:
        model: a model directory, a run directory, or a Hub id.
        output: the new directory, whole or absent.
        pooling, normalize: how tokens become a vector.
        revision: a branch, tag or commit, when it is a Hub id.
        replace: whether an existing `output` may give way.

    Raises:
        MissingInput, Unavailable, DamagedData: the model cannot be had, or is damaged.
        InvalidConfiguration: transformers, and with it sentence-transformers, does not open such a model.
        CannotCreate: `output` exists.
    """
    check_pooling(pooling)
    directory = find_model(model, revision)
    config, extra = read_config(directory)
    if QUANTIZATION_KEY in extra:
        why = "its matrices are integers, which sentence-transformers does not read"
        raise InvalidConfiguration(directory, why, "export the model that it was made of")
    if config.attention_window is not None:
        why = f"its tokens see {config.attention_window} tokens to either side, which sentence-transformers does not do"
        raise InvalidConfiguration(directory, why, "use albert.load(...).embed")
    kind = kind_of(extra)
    opened = open_model(directory, kind)  # whoever is handed the copy gets one that was checked
    tokenizer_of(opened)
    with new_directory(output, replace=replace) as copy:
        for name in files_below(directory):
            if name != MANIFEST_NAME:
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(directory / name, copy / name)
                note_written(copy / name)
        vectors = Vectors(opened.config.hidden_size, lengths_of(kind, opened).max_length)
        for name, content in _settings(vectors, pooling, normalize).items():
            (copy / name).parent.mkdir(exist_ok=True)
            save_json(copy / name, content)
    return vectors


def _settings(vectors: Vectors, pooling: Pooling, normalize: bool) -> dict[str, Any]:
    """The further files, by name."""
    steps = [("", "Transformer"), ("1_Pooling", "Pooling")] + ([("2_Normalize", "Normalize")] if normalize else [])
    files: dict[str, Any] = {
        "modules.json": [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for number, (path, kind) in enumerate(steps)
        ],
        # The tokenizer's own files say whether letters are lower-cased.
        "sentence_bert_config.json": {"max_seq_length": vectors.longest, "do_lower_case": False},
        "1_Pooling/config.json": {
            "word_embedding_dimension": vectors.width,
            **{mode: mode == _MODES[pooling] for mode in _ALL_MODES},
            "include_prompt": True,
        },
    }
    return files | ({"2_Normalize/config.json": {}} if normalize else {})
