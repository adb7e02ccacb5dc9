"""Text in, answers out: fill a mask, judge an order, classify, answer a question.

Results have the keys of transformers' pipelines. Sequences are packed, so texts of any lengths go through
together without padding. Nothing is cut in silence: a result that saw only a part of its text says so.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from albert.checkpoints.config_file import labels_of
from albert.checkpoints.location import find_model
from albert.checkpoints.model_directory import (
    Kind,
    OpenedModel,
    kind_of,
    open_model,
    read_config,
)
from albert.checkpoints.model_tokenizer import refuse_foreign_tokenizer
from albert.inference.encoding import encode_texts, encode_with_masks, words
from albert.inference.spans import probability_of_spans
from albert.model.albert import PreTrainingLogits
from albert.model.packed_sequences import pack
from albert.runtime.devices import pick_device
from albert.runtime.errors import InvalidConfiguration, UsageError
from albert.tasks.answers import best_answers
from albert.tasks.examples import Example
from albert.tasks.windows import span_features
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_directory import load_tokenizer

CLASSIFYING = "classify texts"
FILLING = "fill masks"
ORDERING = "judge the order of segments"
ANSWERING = "answer questions"
_ABILITIES: dict[Kind, dict[str, tuple[str, ...]]] = {
    "pretraining": {FILLING: ("predictions.",), ORDERING: ("sop_classifier.", "albert.pooler.")},
    "masked_lm": {FILLING: ("predictions.",)},
    "classification": {CLASSIFYING: ("classifier.", "albert.pooler.")},
    "question_answering": {ANSWERING: ("qa_outputs.",)},
    "token_classification": {},
    "multiple_choice": {},
    "encoder": {},
}
_ORDERS = {
    "sop": ("in order", "swapped", "probability_in_order"),
    "nsp": ("next", "foreign", "probability_next"),
}
# Lengths of the paper's SQuAD recipe (Table 14), where the model has that many positions.
ANSWER_LENGTH, QUESTION_LENGTH, STRIDE, ANSWER_TOKENS = 384, 64, 128, 30

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
        self._model: Any = opened.model.eval().to(device)
        self._micro_batch_tokens = micro_batch_tokens
        refuse_foreign_tokenizer(tokenizer, opened)
        drawn = opened.loading_report.newly_initialised
        self.abilities = tuple(
            ability
            for ability, tensors in _ABILITIES[kind].items()
            if not any(name.startswith(tensors) for name in drawn)
            and not (ability == ORDERING and self.extra.get("sentence_objective") == "none")
        )
        """What it can do, in words; a head that the file lacks, or that was never trained, does not count."""
        self.max_length = _max_length(opened)
        """Tokens in a sequence, `[CLS]` and `[SEP]` included."""

    @classmethod
    def open(cls, path_or_id: str | Path, device: str = "auto") -> "Predictor":
        """Open a model directory, a run directory, or a Hub id, for whatever its head can do.

        Raises:
            MissingInput, Unavailable, DamagedData: it cannot be had, or is damaged.
            InvalidConfiguration: it is of a kind that nothing is predicted with.
        """
        directory = find_model(path_or_id)
        _, extra = read_config(directory)
        kind = kind_of(extra)
        opened = open_model(directory, kind)
        return cls(opened, kind, load_tokenizer(directory), pick_device(device))

    @property
    def labels(self) -> list[str]:
        """The names of the classes, or of the one number that is predicted."""
        self._require(CLASSIFYING)
        return labels_of(self.extra, self._model.classifier.out_features)

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
        ids = encode_with_masks(self.tokenizer, text, self.max_length)
        masked = np.flatnonzero(ids == self.tokenizer.mask_id)
        with torch.inference_mode():
            packed = pack([ids], [np.zeros_like(ids)]).to(self.device)
            found = self._model(packed, torch.from_numpy(masked).to(self.device))
            logits = found.masked_tokens if isinstance(found, PreTrainingLogits) else found
            probabilities = logits.float().softmax(dim=-1)[:, : self.tokenizer.vocab_size]
            scores, tokens = probabilities.topk(min(top_k, self.tokenizer.vocab_size), dim=-1)
        results = [
            [self._filled(ids, place, token, score) for token, score in zip(*row, strict=True)]
            for place, *row in zip(masked.tolist(), tokens.tolist(), scores.tolist(), strict=True)
        ]
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
        with torch.inference_mode():
            packed = pack([encoded.ids], [encoded.token_types]).to(self.device)
            nowhere = torch.zeros(0, dtype=torch.long, device=self.device)
            first_class = float(self._model(packed, nowhere).sentence_order.float().softmax(dim=-1)[0, 0])
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
        results: list[list[Prediction]] = [[] for _ in texts]
        for members in self._micro_batches([len(each.ids) for each in encoded]):
            parts = [encoded[member] for member in members]
            with torch.inference_mode():
                packed = pack([part.ids for part in parts], [part.token_types for part in parts])
                scores = self._scores(self._model(packed.to(self.device)).float()).cpu().tolist()
            for member, row, part in zip(members, scores, parts, strict=True):
                ranked = sorted(zip(row, names, strict=True), key=lambda entry: -entry[0])
                results[member] = [{"label": label, "score": score, **_said(part.cut)} for score, label in ranked]
        return results

    def answer(self, question: str, context: str, top_k: int = 1) -> Prediction | list[Prediction]:
        """The parts of a context that answer a question best, as exact slices of it.

        Long contexts are read in overlapping windows. `score` is the probability among all spans of at most
        30 tokens in all windows; `start` and `end` count characters, `answer == context[start:end]`.

        Returns:
            The best answer, or a list of the `top_k` best when more than one is asked for.

        Raises:
            InvalidConfiguration: the model cannot answer questions.
            UsageError: the context holds no text.
        """
        self._require(ANSWERING)
        length = min(ANSWER_LENGTH, self.max_length)
        question_length = min(QUESTION_LENGTH, max(1, (length - 3) // 3))
        stride = max(1, min(STRIDE, (length - 3 - question_length) // 2))
        examples = [Example("question", "question", (question, context))]
        features = span_features(examples, self.tokenizer, length, question_length, stride)
        sequences = features.sequences
        starts: list[np.ndarray] = [np.zeros(0)] * len(sequences)
        ends = list(starts)
        for members in self._micro_batches(sequences.lengths.tolist()):
            packed = pack(
                [sequences.token_ids(member) for member in members],
                [sequences.token_type_ids(member) for member in members],
            )
            with torch.inference_mode():
                rows = [logits.float().cpu().split(packed.lengths) for logits in self._model(packed.to(self.device))]
            for place, member in enumerate(members):
                starts[member], ends[member] = rows[0][place].numpy(), rows[1][place].numpy()
        candidates = best_answers(examples, features, starts, ends, ANSWER_TOKENS, max(20, top_k))[0]
        if not candidates:
            raise UsageError("context", "holds no text to answer from")
        probability = probability_of_spans(features, starts, ends, ANSWER_TOKENS)
        cut = len(self.tokenizer.encode(question)) - question_length
        answers = [
            {"score": probability(found.score), "start": found.start, "end": found.end, "answer": found.text}
            | _said(max(cut, 0))
            for found in candidates[:top_k]
        ]
        return answers[0] if top_k == 1 else answers

    def _require(self, ability: str) -> None:
        if ability not in self.abilities:
            can = " and ".join(self.abilities) or "nothing yet: fine-tune it first"
            raise InvalidConfiguration(self.name, f"has no trained head to {ability}", f"this model can {can}")

    def _micro_batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """Places of sequences that go through together, of like length."""
        batches: list[list[int]] = []
        total = 0
        for place in sorted(range(len(lengths)), key=lambda place: lengths[place]):
            total += lengths[place]
            if not batches or total > self._micro_batch_tokens:
                batches.append([])
                total = lengths[place]
            batches[-1].append(place)
        return batches

    def _scores(self, logits: Tensor) -> Tensor:
        problem = self.extra.get("problem_type")
        if problem == "multi_label_classification":
            return logits.sigmoid()
        return logits if problem == "regression" or logits.shape[1] == 1 else logits.softmax(dim=-1)

    def _filled(self, ids: np.ndarray, place: int, token: int, score: float) -> Prediction:
        special = self.tokenizer.special_ids
        masked = [i for i in np.flatnonzero(ids == self.tokenizer.mask_id).tolist() if i != place]
        filled = [*ids[:place].tolist(), token, *ids[place + 1 :].tolist()]
        shown = [piece for i, piece in enumerate(filled) if i in masked or piece not in special]
        return {
            "score": score,
            "token": token,
            "token_str": words(self.tokenizer, [token]),
            "sequence": words(self.tokenizer, shown),
        }


def _max_length(opened: OpenedModel) -> int:
    positions = opened.config.max_position_embeddings
    asked = opened.extra.get("max_sequence_length", positions)
    if not isinstance(asked, int) or asked < SHORTEST:
        why = f"is {asked!r}, a length of at least {SHORTEST} tokens is needed"
        raise InvalidConfiguration(opened.directory / "config.json: max_sequence_length", why)
    return min(asked, positions)


def _said(cut: int) -> Prediction:
    return {"tokens_cut": cut} if cut else {}
