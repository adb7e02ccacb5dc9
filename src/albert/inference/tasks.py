"""How each ability is computed from texts, and which of `ABILITIES` a model has.

Also: texts to token ids, the lengths that a model reads, and the checks of what callers hand in."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float

from albert.checkpoints.huggingface import OBJECTIVE_KEY, Kind
from albert.checkpoints.model_directory import OpenedModel
from albert.inference.abilities import (
    ABILITIES,
    CLASSIFYING,
    MASK,
    NO_MASK,
    ORDERING,
    SCORING,
    UnansweredTexts,
    said_of_cut,
)
from albert.inference.early_exit import EarlyExit
from albert.inference.engine import PackedModel
from albert.runtime.errors import InvalidConfiguration, UsageError
from albert.tasks.answers import Answers, NullThreshold, best_answers, decide
from albert.tasks.examples import Example, best_windows, cut_windows, keep_longest_first, span_features, word_sequences
from albert.tasks.race import join_option, question_with_option
from albert.text.tokenizer import Tokenizer

Prediction = dict[str, Any]
"""One answer, under the keys of transformers' pipelines."""


def abilities_of(kind: Kind, opened: OpenedModel) -> tuple[str, ...]:
    """What a model opened as this kind can do; a head that was drawn at random, or never trained, does not count."""
    drawn = opened.loading_report.newly_initialised
    untrained = {ORDERING} if opened.extra.get(OBJECTIVE_KEY) == "none" else set()
    can = tuple(
        each.needs
        for each in ABILITIES.values()
        if each.needs and kind in each.heads and each.needs not in untrained
        if not any(name.startswith(each.heads[kind]) for name in drawn)
    )
    model: Any = opened.model
    if can == (CLASSIFYING,) and is_number(model.classifier.out_features, opened.extra.get("problem_type")):
        return (SCORING,)
    return can


def is_number(n_labels: int, problem_type: str | None) -> bool:
    """Whether a head's outputs are numbers to predict: it says so, or it has one output and says nothing else."""
    return problem_type == "regression" or (n_labels == 1 and problem_type != "multi_label_classification")


# --------------------------------------------------------------------------------------------------------------------
# Texts to the ids that a model reads, many at once, and ids back to words.


@dataclass(frozen=True)
class EncodedTexts:
    """`[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, one for each text or pair.

    `ids` and `token_types` are int64 [length]; `cut` counts the tokens that did not fit.
    """

    ids: list[np.ndarray]
    token_types: list[np.ndarray]
    cut: list[int]


def encode_texts(
    tokenizer: Tokenizer, parts: Sequence[Sequence[str]], max_length: int, masked: bool = False
) -> EncodedTexts:
    """Many texts (one list), or pairs (two lists), cut longest-first to `max_length` tokens with the special ones; with
    `masked`, a literal `[MASK]` in them is the mask, and blanks around it say nothing."""
    runs = [(_masked_runs if masked else _runs)(tokenizer, texts) for texts in parts]
    cls, sep = (np.array([number], np.int64) for number in (tokenizer.cls_id, tokenizer.sep_id))
    encoded = EncodedTexts([], [], [])
    for texts in zip(*runs, strict=True):
        kept = keep_longest_first([len(text) for text in texts], max_length - 1 - len(texts))
        pieces = [cls]
        for text, count in zip(texts, kept, strict=True):
            pieces += [text[:count], sep]
        ids = np.concatenate(pieces)
        encoded.ids.append(ids)
        encoded.token_types.append((np.arange(len(ids)) >= kept[0] + 2).astype(np.int64))
        encoded.cut.append(sum(map(len, texts)) - sum(kept))
    return encoded


def _runs(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    joined, counts = tokenizer.encode_joined(texts)
    return np.split(joined.astype(np.int64), np.cumsum(counts)[:-1]) if len(counts) else []


def _masked_runs(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    divided = [text.split(MASK) for text in texts]
    runs = iter(_runs(tokenizer, [part for parts in divided for part in parts]))
    mask = np.array([tokenizer.mask_id], np.int64)
    joined = []
    for parts in divided:
        pieces = [next(runs)]
        for _ in parts[1:]:
            pieces += [mask, next(runs)]
        joined.append(np.concatenate(pieces))
    return joined


def encode_with_masks(tokenizer: Tokenizer, texts: Sequence[str], max_length: int) -> list[np.ndarray]:
    """Ids (int64 [length]) of texts with masks, none of which is cut.

    Raises:
        UnansweredTexts: no mask, or more tokens than fit.
    """
    encoded = encode_texts(tokenizer, (texts,), max_length, masked=True)
    reasons: dict[int, tuple[str, str | None]] = {}
    for number, text in enumerate(texts):
        if MASK not in text:
            reasons[number] = (f"has no {MASK} to fill", NO_MASK)
        elif encoded.cut[number]:
            why = f"has {len(encoded.ids[number]) + encoded.cut[number]} tokens, the model reads {max_length}"
            reasons[number] = (why, f"leave only what is near the {MASK}")
    if reasons:
        raise UnansweredTexts("text", reasons)
    return encoded.ids


def words(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The normalised text of some ids, special pieces written out."""
    return tokenizer.decode(ids, skip_special_tokens=False)


# --------------------------------------------------------------------------------------------------------------------
# How many tokens of what a model reads: as many as when it was fine-tuned, which `config.json` says.

SHORTEST = 5  # [CLS] a [SEP] b [SEP]


@dataclass(frozen=True)
class Lengths:
    """Tokens of a sequence with its special ones, of a question in it, and from one window of a context to the next."""

    max_length: int
    question_length: int
    stride: int


_QUESTIONS = Lengths(384, 64, 128)  # of the paper's recipe for SQuAD (Table 14)
_DEFAULTS: dict[Kind, Lengths] = {
    "question_answering": _QUESTIONS,
    "joint_question_answering": _QUESTIONS,
    "multiple_choice": Lengths(512, 128, 128),  # and for RACE
}


def lengths_of(kind: Kind, opened: OpenedModel) -> Lengths:
    """The lengths that a model was fine-tuned with, or the paper's where it does not say, and no more than it has
    positions.

    Raises:
        InvalidConfiguration: a length that is none, or too short for any text.
    """
    positions = opened.config.max_position_embeddings
    default = _DEFAULTS.get(kind, Lengths(positions, 64, 128))
    stated = dict(opened.extra.get("finetuning") or {})
    if "max_sequence_length" in opened.extra:
        stated["max_length"] = opened.extra["max_sequence_length"]
    place = opened.directory / "config.json"
    lengths = Lengths(
        _length(stated, "max_length", default.max_length, SHORTEST, place),
        _length(stated, "question_length", default.question_length, 1, place),
        _length(stated, "stride", default.stride, 1, place),
    )
    return replace(lengths, max_length=min(lengths.max_length, positions))


def _length(stated: dict[str, Any], name: str, default: int, least: int, place: object) -> int:
    value = stated.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        shown = "max_sequence_length" if name == "max_length" else f"finetuning: {name}"
        raise InvalidConfiguration(f"{place}: {shown}", f"is {value!r}, at least {least} tokens are needed")
    return value


class Network(NamedTuple):
    """What every ability computes with: a model, the same ending early where it may, its tokenizer and lengths."""

    model: PackedModel
    deciding: PackedModel | EarlyExit
    tokenizer: Tokenizer
    lengths: Lengths

    @property
    def max_length(self) -> int:
        return self.lengths.max_length

    def decided(
        self, ids: Sequence[np.ndarray], types: Sequence[np.ndarray], sizes: Sequence[int] | None = None
    ) -> tuple[list[Any], list[Prediction]]:
        """What the head gives for each sequence, and the `depth` in layers that it went through; nothing of that where
        all go through all.

        `sizes` counts the sequences that are decided together; None: one each.
        """
        if not isinstance(self.deciding, EarlyExit):
            return self.deciding.rows(ids, types), [{} for _ in ids]
        found = self.deciding.rows(ids, types, sizes)
        return [row for row, _ in found], [{"depth": depth} for _, depth in found]


ANSWER_TOKENS = 30


def find_answers(
    network: Network, questions: Sequence[str], contexts: Sequence[str], top_k: int, threshold: NullThreshold | None
) -> list[list[Prediction]]:
    """For each question its best `top_k` answers with their probabilities and how many of its tokens were cut.

    An empty answer, from 0 to 0, says that there is none. The probability is among all spans of at most 30 tokens in
    all windows, and no answer where there may be none. A threshold decides whether that comes first; None: every
    question has an answer.

    Raises:
        UnansweredTexts: contexts without text.
    """
    tokenizer, lengths, length = network.tokenizer, network.lengths, network.max_length
    question_length = min(lengths.question_length, max(1, (length - 3) // 3))
    stride = max(1, min(lengths.stride, (length - 3 - question_length) // 2))
    examples = [Example("question", "question", texts) for texts in zip(questions, contexts, strict=True)]
    features = span_features(examples, tokenizer, length, question_length, stride)
    sequences = features.sequences
    everything = range(len(sequences))
    ids, types = ([read(i) for i in everything] for read in (sequences.token_ids, sequences.token_type_ids))
    rows = network.model.rows(ids, types)
    found = best_answers(examples, features, rows, ANSWER_TOKENS, top_k, threshold is not None)
    empty = {number: ("holds no text to answer from", None) for number, each in enumerate(found) if not each.candidates}
    if empty:
        raise UnansweredTexts("context", empty)
    asked = tokenizer.encode_batch(questions)
    cut = [said_of_cut(max(len(ids) - question_length, 0)) for ids in asked]
    return [
        [answer | said for answer in _ranked(each, threshold)[:top_k]] for each, said in zip(found, cut, strict=True)
    ]


def _ranked(answers: Answers, threshold: NullThreshold | None) -> list[Prediction]:
    found = [_answer(each.text, each.start, each.end, each.probability) for each in answers.candidates]
    if threshold is None:
        return found
    none = _answer("", 0, 0, answers.no_answer_probability)
    answered = decide([answers], threshold)[0].answered
    first, *others = found
    likeliest = sorted([none, *others], key=lambda each: -each["score"])
    return [first, *likeliest] if answered else [none, *found]


def _answer(text: str, start: int, end: int, probability: float) -> Prediction:
    return {"score": probability, "start": start, "end": end, "answer": text}


def rank_options(
    network: Network, contexts: Sequence[str], questions: Sequence[str], options: Sequence[Sequence[str]]
) -> list[list[Prediction]]:
    """The options of each question, the likeliest first: `option`, its `index`, and its probability, `score`.

    Question and option take at most half of what the model reads. A question that was decided early has its `depth`."""
    tokenizer, max_length = network.tokenizer, network.max_length
    question_length = min(network.lengths.question_length, max(1, (max_length - 3) // 2))
    passages = tokenizer.encode_batch(contexts)
    read = [
        question_with_option(question, option)
        for question, own in zip(questions, options, strict=True)
        for option in own
    ]
    bounds = list(pairwise(accumulate(map(len, options), initial=0)))
    passage_of = [passage for passage, own in zip(passages, options, strict=True) for _ in own]
    joined = [
        join_option(passage, text, tokenizer, max_length, question_length)
        for passage, text in zip(passage_of, tokenizer.encode_batch(read), strict=True)
    ]
    ids = [np.asarray(ids, np.int64) for ids, *_ in joined]
    types = [(np.arange(len(ids)) >= first).astype(np.int64) for ids, first, *_ in joined]
    rows, depths = network.decided(ids, types, [stop - start for start, stop in bounds])
    said = [said_of_cut(sum(cut)) | depth for (_, _, *cut), depth in zip(joined, depths, strict=True)]
    scores = np.array(rows, np.float64)
    ranked: list[list[Prediction]] = []
    for own, (start, stop) in zip(options, bounds, strict=True):
        parts = zip(own, range(len(own)), _softmax(scores[start:stop]).tolist(), said[start:stop], strict=True)
        each = [{"option": option, "index": index, "score": score, **more} for option, index, score, more in parts]
        ranked.append(sorted(each, key=lambda entry: -entry["score"]))
    return ranked


def _softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def classify_texts(
    network: Network, parts: Sequence[Sequence[str]], n_labels: int, problem_type: str | None
) -> tuple[Float[np.ndarray, "texts labels"], list[Prediction]]:
    """Judge every text (one list), or pair of texts (two lists); `problem_type` is that of `config.json`.

    Returns:
        Probabilities, or the numbers of a regression; and what else is to be said of each text.
    """
    encoded = encode_texts(network.tokenizer, parts, network.max_length)
    rows, depths = network.decided(encoded.ids, encoded.token_types)
    logits = torch.from_numpy(np.stack(rows) if rows else np.zeros((0, n_labels), np.float32))
    if problem_type == "multi_label_classification":
        logits = logits.sigmoid()
    elif not is_number(n_labels, problem_type):
        logits = logits.softmax(dim=-1)
    return logits.numpy(), [said_of_cut(cut) | depth for cut, depth in zip(encoded.cut, depths, strict=True)]


def ranked_labels(
    scores: Float[np.ndarray, "texts labels"], said: Sequence[Prediction], names: Sequence[str]
) -> list[list[Prediction]]:
    """The labels of each text, the likeliest first, with what else is to be said of it."""
    orders = np.argsort(-scores, axis=1, kind="stable").tolist()
    return [
        [{"label": names[label], "score": row[label], **more} for label in order]
        for order, row, more in zip(orders, scores.tolist(), said, strict=True)
    ]


def fill_masks(network: Network, texts: Sequence[str], top_k: int) -> list[list[list[Prediction]]]:
    """For each mask of each text its `top_k` pieces, under the keys of transformers' pipeline; other masks stay masked.

    Raises:
        UnansweredTexts: no mask, or more text than fits.
    """
    tokenizer = network.tokenizer
    ids = encode_with_masks(tokenizer, texts, network.max_length)
    masked = [np.flatnonzero(each == tokenizer.mask_id) for each in ids]
    decoded = cache(partial(_piece_text, tokenizer))
    filled: list[list[list[Prediction]]] = [[] for _ in texts]
    for number, logits, _ in network.model.at(ids, [np.zeros_like(each) for each in ids], masked):
        probabilities = logits.float().softmax(dim=-1)[:, : tokenizer.vocab_size]
        scores, tokens = probabilities.topk(min(top_k, tokenizer.vocab_size), dim=-1)
        for place, *row in zip(masked[number].tolist(), tokens.tolist(), scores.tolist(), strict=True):
            left, right, unfilled = _around(tokenizer, ids[number].tolist(), place)
            predictions = []
            for token, score in zip(*row, strict=True):
                special, shown, first, later = decoded(token)
                sequence = unfilled if special else f"{left}{later if left else first}{right}".strip()
                predictions.append({"score": score, "token": token, "token_str": shown, "sequence": sequence})
            filled[number].append(predictions)
    return filled


def _around(tokenizer: Tokenizer, ids: Sequence[int], place: int) -> tuple[str, str, str]:
    """The text before a mask and after it, and both without anything between.

    They are decoded once for all pieces that may fill the mask: decoding whole texts anew took almost all of the time.
    """
    dropped = {*tokenizer.special_ids} - {tokenizer.mask_id}
    before, after = ([piece for piece in part if piece not in dropped] for part in (ids[:place], ids[place + 1 :]))
    mask = tokenizer.piece(tokenizer.mask_id)
    left = words(tokenizer, [*before, tokenizer.mask_id]).removesuffix(mask).removesuffix(" ")
    right = words(tokenizer, [tokenizer.mask_id, *after]).removeprefix(mask)
    return left, right, words(tokenizer, [*before, *after])


def _piece_text(tokenizer: Tokenizer, piece: int) -> tuple[bool, str, str, str]:
    """Of a piece: whether it is special, its text alone, at the beginning of a text, and after other words."""
    mask_id, mask = tokenizer.mask_id, tokenizer.piece(tokenizer.mask_id)
    first = words(tokenizer, [piece, mask_id]).removesuffix(mask).removesuffix(" ")
    later = words(tokenizer, [mask_id, piece, mask_id]).removeprefix(mask).removesuffix(mask).removesuffix(" ")
    return piece in tokenizer.special_ids, words(tokenizer, [piece]), first, later


_ORDERS = {
    "sop": ("in order", "swapped", "probability_in_order"),
    "nsp": ("next", "foreign", "probability_next"),
}


def order_labels(objective: object) -> tuple[str, str]:
    """The names of the head's two classes; `objective` is what it learnt, "nsp" or sentence order."""
    return _ORDERS["nsp" if objective == "nsp" else "sop"][:2]


def judge_orders(
    network: Network, firsts: Sequence[str], seconds: Sequence[str], objective: object
) -> list[Prediction]:
    """For each pair what the head says: `label`, its `score`, the probability of the head's first class."""
    encoded = encode_texts(network.tokenizer, (firsts, seconds), network.max_length)
    nowhere = [np.zeros(0, np.int64)] * len(firsts)
    yes, no, key = _ORDERS["nsp" if objective == "nsp" else "sop"]
    found: list[Prediction] = [{}] * len(firsts)
    for number, _, order in network.model.at(encoded.ids, encoded.token_types, nowhere):
        assert order is not None, "built without a head for the order"
        first_class = float(order.float().softmax(dim=-1)[0])
        label, score = (yes, first_class) if first_class >= 0.5 else (no, 1 - first_class)
        found[number] = {"label": label, "score": score, key: first_class, **said_of_cut(encoded.cut[number])}
    return found


def tag_words(
    network: Network, word_starts: Bool[np.ndarray, " pieces"], texts: Sequence[str], names: Sequence[str]
) -> list[list[Prediction]]:
    """Judge every word by its first piece, as token classifiers are trained (Devlin et al. 2019, §5.3).

    A text longer than the model reads goes through in overlapping windows; a piece is judged in the one where it has
    most context. `word_starts` says which pieces of the vocabulary begin a word, `names` are those of the labels."""
    tokenizer, room = network.tokenizer, network.max_length - 2
    encoded = tokenizer.encode_batch_with_offsets(texts)
    windows = [cut_windows(len(ids), room, max(1, room // 2)) for ids, _ in encoded]
    sequences = [
        np.asarray([tokenizer.cls_id, *ids[start:stop], tokenizer.sep_id], np.int64)
        for (ids, _), pieces in zip(encoded, windows, strict=True)
        for start, stop in pieces
    ]
    rows = iter(network.model.rows(sequences, [np.zeros_like(sequence) for sequence in sequences]))
    found = []
    for text, (ids, spans), pieces in zip(texts, encoded, windows, strict=True):
        own = [next(rows)[1:-1] for _ in pieces]
        logits = np.zeros((len(ids), own[0].shape[1]))
        for (start, stop), best, row in zip(pieces, best_windows(pieces, len(ids)), own, strict=True):
            logits[start:stop][best] = row[best]
        begins = word_starts[np.asarray(ids, np.int64)]
        found.append(_tagged(text, np.asarray(spans, np.int64).reshape(-1, 2), begins, logits, names))
    return found


def tag_given_words(
    network: Network, sentences: Sequence[Sequence[str]], names: Sequence[str]
) -> list[list[Prediction]]:
    """Judge every word of sentences that come in words, as an evaluation does (see `albert.tasks.examples`)."""
    read = word_sequences(sentences, network.tokenizer, network.max_length)
    sequences = [read.sequences.token_ids(index) for index in range(len(read.sequences))]
    logits = read.judged(network.model.rows(sequences, [np.zeros_like(sequence) for sequence in sequences]))
    found = []
    for words, rows in zip(sentences, read.by_sentence(logits.astype(np.float64)), strict=True):
        said = zip(words, *_likeliest(rows), strict=True)
        found.append([{"word": word, "entity": names[label], "score": score} for word, label, score in said])
    return found


def _tagged(
    text: str, spans: np.ndarray, begins: np.ndarray, logits: np.ndarray, names: Sequence[str]
) -> list[Prediction]:
    """Pieces to words: one begins with a piece that says so, and after a blank, which alone is no part of a word."""
    shown = spans[:, 1] > spans[:, 0]
    blank_before = np.append(True, ~shown[:-1])[: len(shown)]
    first = np.flatnonzero(shown & (begins | blank_before))
    ends = np.maximum.reduceat(np.where(shown, spans[:, 1], 0), first) if len(first) else first
    judged = np.where((first > 0) & ~shown[first - 1], first - 1, first)  # its blank, where that is a piece of its own
    words = zip(spans[first, 0].tolist(), ends.tolist(), *_likeliest(logits[judged]), strict=True)
    return [
        {"word": text[start:end], "entity": names[label], "score": score, "start": start, "end": end}
        for start, end, label, score in words
    ]


def _likeliest(logits: np.ndarray) -> tuple[list[int], list[float]]:
    probabilities = _softmax(logits)
    return probabilities.argmax(axis=1).tolist(), probabilities.max(axis=1).tolist()


def check_texts(name: str, texts: Sequence[Any]) -> None:
    """Raises UsageError for one text in place of many, and for what is no text among them (pandas' empty cell, say)."""
    if isinstance(texts, str):
        raise UsageError(name, "is one text, a list of them is expected", "put it into brackets")
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            remedy = "methods that end in _batch take lists" if isinstance(text, list | tuple) else None
            raise UsageError(f"{name}, number {number}", f"is {type(text).__name__}, a text is expected", remedy)


def check_pairs(name: str, texts: Sequence[Any], other: str, others: Sequence[Any]) -> None:
    """Raises UsageError for two lists that do not go together, or hold something that is no text."""
    check_texts(name, texts)
    check_texts(other, others)
    if len(texts) != len(others):
        raise UsageError(name, f"{len(texts)} for {len(others)} {other}", "give one for each")
