"""Text in, answers out: fill a mask, judge an order, classify, answer a question, tag words, choose.

Results have the keys of transformers' pipelines. Sequences are packed, so texts of any lengths go through
together without padding. Nothing is cut in silence: a result that saw only a part of its text says so.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from albert.checkpoints.config_file import labels_of
from albert.checkpoints.location import find_model
from albert.checkpoints.model_directory import Kind, OpenedModel, kind_of, open_model, read_config
from albert.checkpoints.model_tokenizer import refuse_foreign_tokenizer
from albert.inference.abilities import (
    ANSWERING,
    CHOOSING,
    CLASSIFYING,
    FILLING,
    ORDERING,
    TAGGING,
    abilities_of,
)
from albert.inference.answering import find_answers
from albert.inference.choosing import score_options
from albert.inference.encoding import encode_texts
from albert.inference.filling import fill_masks
from albert.inference.packed_model import PackedModel
from albert.inference.tagging import tag_words
from albert.runtime.devices import pick_device
from albert.runtime.errors import InvalidConfiguration, UsageError
from albert.tasks.null_threshold import THRESHOLD_KEY, stated_threshold
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_directory import load_tokenizer

_ORDERS = {
    "sop": ("in order", "swapped", "probability_in_order"),
    "nsp": ("next", "foreign", "probability_next"),
}
SHORTEST = 5  # [CLS] a [SEP] b [SEP]

Prediction = dict[str, Any]


class Predictor:
    """A trained model with its tokenizer.

    Args:
        opened: the model.
        kind: which heads it was opened with.
        tokenizer: the tokenizer it was trained with.
        device: where it computes.
        micro_batch_tokens: tokens that go through the model at once; a longer single sequence goes alone.

    Raises:
        DamagedData: the tokenizer is not the one that the model was trained with.
    """

    def __init__(
        self,
        opened: OpenedModel,
        kind: Kind,
        tokenizer: Tokenizer,
        device: torch.device,
        micro_batch_tokens: int = 8192,
    ) -> None:
        self.name, self.config, self.extra = str(opened.directory), opened.config, opened.extra
        self.loading_report, self.tokenizer, self.device = opened.loading_report, tokenizer, device
        self._model = PackedModel(opened.model, device, micro_batch_tokens)
        refuse_foreign_tokenizer(tokenizer, opened.directory, opened.config, opened.extra)
        self.abilities = abilities_of(kind, opened)
        """What it can do, in words; a head that the file lacks, or that was never trained, does not count."""
        self.max_length = _max_length(opened)
        """Tokens in a sequence, `[CLS]` and `[SEP]` included."""
        may_be_absent = kind == "joint_question_answering" or THRESHOLD_KEY in self.extra
        self._null_threshold = stated_threshold(self.extra, self.name) if may_be_absent else None

    @classmethod
    def open(
        cls,
        path_or_id: str | Path,
        device: str = "auto",
        *,
        revision: str | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> "Predictor":
        """Open a model directory, a run directory, or a Hub id, for whatever its head can do.

        Args:
            path_or_id: where the model is.
            device: where to compute.
            revision: a branch, tag or commit, when it is a Hub id.
            overrides: fields of the configuration to set anew, `{"hidden_act": "gelu_new"}` say.

        Raises:
            MissingInput, Unavailable, DamagedData: it cannot be had, or is damaged.
            InvalidConfiguration: a shape or a setting does not fit.
        """
        directory = find_model(path_or_id, revision)
        config, extra = read_config(directory)
        tokenizer = load_tokenizer(directory)
        refuse_foreign_tokenizer(tokenizer, directory, config, extra)  # before any weight is read
        kind = kind_of(extra)
        return cls(open_model(directory, kind, overrides=overrides), kind, tokenizer, pick_device(device))

    @property
    def labels(self) -> list[str]:
        """The names of the classes, of a word's tags, or of the one number that is predicted."""
        self._require(TAGGING if TAGGING in self.abilities else CLASSIFYING)
        return labels_of(self.extra, self._model.model.classifier.out_features)

    @cached_property
    def _word_starts(self) -> np.ndarray:
        return self.tokenizer.word_starts()

    def fill_mask(self, text: str, top_k: int = 5) -> list[Prediction] | list[list[Prediction]]:
        """The likeliest pieces for each `[MASK]` in a text.

        Returns:
            For one mask, its `top_k` predictions with `score` (probability), `token`, `token_str` and
            `sequence`; for several, a list of such lists, each mask judged with the others still masked.

        Raises:
            UsageError: no mask, or more text than fits.
            InvalidConfiguration: the model cannot fill masks.
        """
        self._require(FILLING)
        results = fill_masks(self._model, self.tokenizer, self.max_length, text, top_k)
        return results[0] if len(results) == 1 else results

    def order(self, first: str, second: str) -> Prediction:
        """Whether two adjacent segments are in order: `label`, its `score`, `probability_in_order`.

        A model that learnt next-sentence prediction says instead whether the second follows the first in their
        text or comes from another one, with `probability_next`.

        Raises:
            InvalidConfiguration: the model cannot judge an order.
        """
        self._require(ORDERING)
        encoded = encode_texts(self.tokenizer, (first, second), self.max_length)
        nowhere = np.zeros(0, np.int64)
        logits = self._model.at(encoded.ids, encoded.token_types, nowhere).sentence_order
        first_class = float(logits.float().softmax(dim=-1)[0, 0])
        yes, no, key = _ORDERS["nsp" if self.extra.get("sentence_objective") == "nsp" else "sop"]
        label, score = (yes, first_class) if first_class >= 0.5 else (no, 1 - first_class)
        return {"label": label, "score": score, key: first_class, **_said(encoded.cut)}

    def classify(self, text: str, pair: str | None = None) -> list[Prediction]:
        """`classify_batch` of one text."""
        return self.classify_batch([text], None if pair is None else [pair])[0]

    def classify_batch(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[list[Prediction]]:
        """Every label with its probability, the likeliest first, for each text (or text and pair).

        A regression model gives one entry, whose `score` is the predicted number. A text that was cut has
        `tokens_cut` beside its scores.

        Raises:
            InvalidConfiguration: the model has no classifier.
            UsageError: not as many pairs as texts.
        """
        self._require(CLASSIFYING)
        if pairs is not None and len(pairs) != len(texts):
            raise UsageError("pairs", f"{len(pairs)} for {len(texts)} texts", "give one for each text")
        names = self.labels
        encoded = [
            encode_texts(self.tokenizer, (text,) if pairs is None else (text, pairs[i]), self.max_length)
            for i, text in enumerate(texts)
        ]
        rows = self._model.rows([each.ids for each in encoded], [each.token_types for each in encoded])
        results = []
        for row, each in zip(rows, encoded, strict=True):
            ranked = sorted(
                zip(self._scores(torch.from_numpy(row)).tolist(), names, strict=True), key=lambda entry: -entry[0]
            )
            results.append([{"label": label, "score": score, **_said(each.cut)} for score, label in ranked])
        return results

    def answer(self, question: str, context: str, top_k: int = 1) -> Prediction | list[Prediction]:
        """The parts of a context that answer a question best, as exact slices of it.

        Long contexts are read in overlapping windows. `score` is the probability among all spans of at most
        30 tokens in all windows; `start` and `end` count characters, `answer == context[start:end]`. A model that
        learnt that a question may have no answer says so by an empty one, as its threshold decides.

        Returns:
            The best answer, or a list of the `top_k` best when more than one is asked for.

        Raises:
            InvalidConfiguration: the model cannot answer questions.
            UsageError: the context holds no text.
        """
        self._require(ANSWERING)
        found, cut = find_answers(
            self._model, self.tokenizer, self.max_length, question, context, top_k, self._null_threshold
        )
        answers = [
            {"score": each.probability, "start": each.start, "end": each.end, "answer": each.text, **_said(cut)}
            for each in found
        ]
        return answers[0] if top_k == 1 else answers

    def tag(self, text: str) -> list[Prediction]:
        """The likeliest label of every word: `word`, `entity`, `score`, and its characters `start`..`end`.

        A word is judged by its first piece; long texts are read in overlapping windows.

        Raises:
            InvalidConfiguration: the model does not tag words.
        """
        self._require(TAGGING)
        names = self.labels
        return [
            {
                "word": word.word,
                "entity": names[int(word.probabilities.argmax())],
                "score": float(word.probabilities.max()),
                "start": word.start,
                "end": word.end,
            }
            for word in tag_words(self._model, self.tokenizer, self._word_starts, self.max_length, text)
        ]

    def choose(self, context: str, options: Sequence[str], question: str = "") -> list[Prediction]:
        """The options, the likeliest first: `option`, its `index` among those given, and its `score`.

        Each is read after the context, behind the question or in the place of a blank `_` in it; the scores are
        probabilities among the options.

        Raises:
            InvalidConfiguration: the model does not choose.
            UsageError: fewer than two options.
        """
        self._require(CHOOSING)
        if len(options) < 2:
            raise UsageError("options", f"{len(options)} of them", "give at least two to choose from")
        scored = score_options(self._model, self.tokenizer, self.max_length, context, question, options)
        ranked = sorted(range(len(options)), key=lambda index: -scored[index][0])
        return [
            {"option": options[index], "index": index, "score": scored[index][0], **_said(scored[index][1])}
            for index in ranked
        ]

    def _require(self, ability: str) -> None:
        if ability not in self.abilities:
            can = " and ".join(self.abilities) or "nothing yet: fine-tune it first"
            raise InvalidConfiguration(self.name, f"has no trained head to {ability}", f"this model can {can}")

    def _scores(self, logits: Tensor) -> Tensor:
        problem = self.extra.get("problem_type")
        if problem == "multi_label_classification":
            return logits.sigmoid()
        return logits if problem == "regression" or len(logits) == 1 else logits.softmax(dim=-1)


def _max_length(opened: OpenedModel) -> int:
    positions = opened.config.max_position_embeddings
    asked = opened.extra.get("max_sequence_length", positions)
    if not isinstance(asked, int) or asked < SHORTEST:
        why = f"is {asked!r}, a length of at least {SHORTEST} tokens is needed"
        raise InvalidConfiguration(opened.directory / "config.json: max_sequence_length", why)
    return min(asked, positions)


def _said(cut: int) -> Prediction:
    return {"tokens_cut": cut} if cut else {}
