"""Computation of each inference task, and the abilities of a model.

Also: texts to token ids, maximum lengths, and validation of inputs."""

from collections.abc import Iterable, Sequence
from functools import cache, partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float

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
    tokens_cut_field,
)
from albert.inference.early_exit import EarlyExit
from albert.inference.engine import PackedModel
from albert.runtime.errors import InvalidConfiguration, UsageError
from albert.tasks.answers import NullThreshold
from albert.tasks.examples import Example, keep_longest_first
from albert.tasks.kinds.choice import join_option, question_with_option
from albert.tasks.kinds.span import Answers, best_answers, decide, span_features
from albert.tasks.kinds.tagging import tag_features
from albert.tasks.label_threshold import LabelThreshold
from albert.text.tokenizer import Tokenizer
from albert.text.word_split import word_spans

Prediction = dict[str, Any]  # One result, with the keys of transformers' pipelines


def abilities_of(kind: Kind, opened: OpenedModel) -> tuple[str, ...]:
    """What a model opened as this kind can do; a randomly initialised or untrained head does not count."""
    initialised = opened.loading_report.drawn
    untrained = {ORDERING} if opened.extra.get(OBJECTIVE_KEY) == "none" else set()
    can = tuple(
        task.needs
        for task in ABILITIES.values()
        if task.needs and kind in task.heads and task.needs not in untrained
        if not any(name.startswith(task.heads[kind]) for name in initialised)
    )
    model: Any = opened.model  # several numbers are given like classes, by their names, as by transformers' pipeline
    if can == (CLASSIFYING,) and model.classifier.out_features == 1 and is_number(1, opened.extra.get("problem_type")):
        return (SCORING,)
    return can


def is_number(n_labels: int, problem_type: str | None) -> bool:
    """Return whether a head is a regression head: by its `problem_type`, or by default if it has one output."""
    return problem_type == "regression" or (n_labels == 1 and problem_type != "multi_label_classification")


# --------------------------------------------------------------------------------------------------------------------
# Texts to batches of token ids, and ids back to text.


class EncodedTexts(NamedTuple):
    """`[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` for each text or pair.

    `ids` and `token_types` are int64 [length]; `cut` counts the tokens that did not fit.
    """

    ids: list[np.ndarray]
    token_types: list[np.ndarray]
    cut: list[int]


def encode_texts(
    tokenizer: Tokenizer,
    parts: Sequence[Sequence[str]],
    max_length: int,
    masked: bool = False,
    separators: int | None = None,
) -> EncodedTexts:
    """Encode texts (one list) or pairs (two lists), cut longest-first to `max_length` tokens including special ones.

    With `masked`, a literal `[MASK]` or the tokenizer's own mask becomes the mask token, and blanks around it are
    ignored. `separators` is the number of `[SEP]` between two texts; None: as many as the tokenizer has."""
    encode = _encode_masked if masked else _encode
    encoded_parts = [encode(tokenizer, texts) for texts in parts]
    cls, sep = (np.array([number], np.int64) for number in (tokenizer.cls_id, tokenizer.sep_id))
    between = 1 if len(parts) == 1 else separators or tokenizer.separators
    encoded = EncodedTexts([], [], [])
    for texts in zip(*encoded_parts, strict=True):
        lengths = keep_longest_first([len(text) for text in texts], max_length - len(texts) - between)
        pieces = [cls, texts[0][: lengths[0]], np.repeat(sep, between)]
        if len(texts) > 1:
            pieces += [texts[1][: lengths[1]], sep]
        ids = np.concatenate(pieces)
        encoded.ids.append(ids)
        encoded.token_types.append((np.arange(len(ids)) >= lengths[0] + 1 + between).astype(np.int64))
        encoded.cut.append(sum(map(len, texts)) - sum(lengths))
    return encoded


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    joined, counts = tokenizer.encode_joined(texts)
    return np.split(joined.astype(np.int64), np.cumsum(counts)[:-1]) if len(counts) else []


def _encode_masked(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    own = tokenizer.piece(tokenizer.mask_id)
    split_texts = [text.replace(own, MASK).split(MASK) for text in texts]
    for parts in split_texts:
        parts[:-1] = [part.rstrip() for part in parts[:-1]]  # byte-level pieces would hold the blank before a mask
    encoded = iter(_encode(tokenizer, [part for parts in split_texts for part in parts]))
    mask = np.array([tokenizer.mask_id], np.int64)
    joined = []
    for parts in split_texts:
        pieces = [next(encoded)]
        for _ in parts[1:]:
            pieces += [mask, next(encoded)]
        joined.append(np.concatenate(pieces))
    return joined


def encode_with_masks(tokenizer: Tokenizer, texts: Sequence[str], max_length: int) -> list[np.ndarray]:
    """Ids (int64 [length]) of texts; raises UnansweredTexts for those without a mask or with too many tokens."""
    encoded = encode_texts(tokenizer, (texts,), max_length, masked=True)
    reasons: dict[int, tuple[str, str | None]] = {}
    for number, text in enumerate(texts):
        if MASK not in text and tokenizer.piece(tokenizer.mask_id) not in text:
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
# Maximum lengths: those of fine-tuning, from `config.json`.

MIN_LENGTH = 5  # [CLS] a [SEP] b [SEP]


class Lengths(NamedTuple):
    """Tokens of a sequence (with special ones), of a question, and of the step between windows of a context."""

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
    """The lengths that a model was fine-tuned with, by default the paper's; at most its number of positions."""
    positions = opened.config.max_position_embeddings
    default = _DEFAULTS.get(kind, Lengths(positions, 64, 128))
    stated = dict(opened.extra.get("finetuning") or {})
    if "max_sequence_length" in opened.extra:
        stated["max_length"] = opened.extra["max_sequence_length"]
    lengths = default._asdict()
    for name in lengths:
        value = stated.get(name, lengths[name])
        least = MIN_LENGTH if name == "max_length" else 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            key = "max_sequence_length" if name == "max_length" else f"finetuning: {name}"
            subject = f"{opened.directory / 'config.json'}: {key}"
            raise InvalidConfiguration(subject, f"is {value!r}, at least {least} tokens are needed")
        lengths[name] = value
    return Lengths(**lengths | {"max_length": min(lengths["max_length"], positions)})


class Network(NamedTuple):
    """A model, the same model with early exit if it is set, its tokenizer and lengths."""

    model: PackedModel
    classifier: PackedModel | EarlyExit
    tokenizer: Tokenizer
    lengths: Lengths

    @property
    def max_length(self) -> int:
        return self.lengths.max_length

    def rows(
        self, ids: Sequence[np.ndarray], types: Sequence[np.ndarray], sizes: Sequence[int] | None = None
    ) -> tuple[list[Any], list[Prediction]]:
        """The head's output for each sequence, and with early exit the `depth` in layers (otherwise empty dicts).

        `sizes` are the numbers of sequences that are decided together; None: one each.
        """
        if not isinstance(self.classifier, EarlyExit):
            return self.classifier.rows(ids, types), [{} for _ in ids]
        exits = self.classifier.rows(ids, types, sizes)
        return [row for row, _ in exits], [{"depth": depth} for _, depth in exits]


ANSWER_TOKENS = 30


def find_answers(
    network: Network, questions: Sequence[str], contexts: Sequence[str], top_k: int, threshold: NullThreshold | None
) -> list[list[Prediction]]:
    """The best `top_k` answers to each question, with their probabilities and the number of question tokens cut.

    An empty answer, from 0 to 0, means that there is none. Probabilities are over all spans of at most 30 tokens in all
    windows, and over no answer if `threshold` is given, which decides whether that comes first; None: every question
    has an answer.
    """
    tokenizer = network.tokenizer
    (length, question_length, stride) = network.lengths
    if question_length + stride > length - 3:  # no run accepts these
        question_length = min(question_length, max(1, (length - 3) // 3))
        stride = max(1, min(stride, (length - 3 - question_length) // 2))
    examples = [Example("question", "question", texts) for texts in zip(questions, contexts, strict=True)]
    features = span_features(examples, tokenizer, length, question_length, stride)
    readers = (features.sequences.token_ids, features.sequences.token_type_ids)
    ids, types = ([read(index) for index in range(len(features.sequences))] for read in readers)
    rows = network.model.rows(ids, types)
    answers = best_answers(examples, features, rows, ANSWER_TOKENS, top_k, threshold is not None)
    empty = {i: ("holds no text to answer from", None) for i, spans in enumerate(answers) if not spans.candidates}
    if empty:
        raise UnansweredTexts("context", empty)
    cut = [tokens_cut_field(max(len(ids) - question_length, 0)) for ids in tokenizer.encode_batch(questions)]
    return [
        [answer | field for answer in _ranked(spans, threshold)[:top_k]]
        for spans, field in zip(answers, cut, strict=True)
    ]


def _ranked(answers: Answers, threshold: NullThreshold | None) -> list[Prediction]:
    spans = [
        {"score": span.probability, "start": span.start, "end": span.end, "answer": span.text}
        for span in answers.candidates
    ]
    if threshold is None:
        return spans
    no_answer = {"score": answers.no_answer_probability, "start": 0, "end": 0, "answer": ""}
    if not decide([answers], threshold)[0].answered:
        return [no_answer, *spans]
    others = [no_answer, *spans[1:]]
    return [spans[0], *sorted(others, key=lambda answer: -answer["score"])]


def rank_options(
    network: Network, contexts: Sequence[str], questions: Sequence[str], options: Sequence[Sequence[str]]
) -> list[list[Prediction]]:
    """The options of each question, most likely first: `option`, its `index`, and its probability, `score`.

    If no run accepts the question length, question and option take at most half of the maximum length."""
    tokenizer = network.tokenizer
    (max_length, question_length, _) = network.lengths
    question_length = question_length if question_length < max_length - 3 else (max_length - 3) // 2
    passages = tokenizer.encode_batch(contexts)
    option_texts = [
        question_with_option(question, option)
        for question, own in zip(questions, options, strict=True)
        for option in own
    ]
    bounds = list(pairwise(accumulate(map(len, options), initial=0)))
    passage_of = [passage for passage, own in zip(passages, options, strict=True) for _ in own]
    joined = [
        join_option(passage, text, tokenizer, max_length, question_length)
        for passage, text in zip(passage_of, tokenizer.encode_batch(option_texts), strict=True)
    ]
    ids = [np.asarray(ids, np.int64) for ids, *_ in joined]
    types = [(np.arange(len(ids)) >= first).astype(np.int64) for ids, first, *_ in joined]
    rows, depths = network.rows(ids, types, [stop - start for start, stop in bounds])
    fields = [tokens_cut_field(sum(cut)) | depth for (_, _, *cut), depth in zip(joined, depths, strict=True)]
    scores = np.array(rows, np.float64)
    ranked: list[list[Prediction]] = []
    for own, (start, stop) in zip(options, bounds, strict=True):
        parts = zip(own, range(len(own)), _softmax(scores[start:stop]).tolist(), fields[start:stop], strict=True)
        entries = [{"option": option, "index": index, "score": score, **more} for option, index, score, more in parts]
        ranked.append(sorted(entries, key=lambda entry: -entry["score"]))
    return ranked


def _softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def classify_texts(
    network: Network, parts: Sequence[Sequence[str]], n_labels: int, problem_type: str | None
) -> tuple[Float[np.ndarray, "texts labels"], list[Prediction]]:
    """Classify texts (one list) or pairs of texts (two lists); `problem_type` is that of `config.json`.

    Returns:
        Probabilities, or predicted numbers for regression; and further fields of each text.
    """
    encoded = encode_texts(network.tokenizer, parts, network.max_length)
    rows, depths = network.rows(encoded.ids, encoded.token_types)
    logits = torch.from_numpy(np.stack(rows) if rows else np.zeros((0, n_labels), np.float32))
    if problem_type == "multi_label_classification":
        logits = logits.sigmoid()
    elif not is_number(n_labels, problem_type):
        logits = logits.softmax(dim=-1)
    return logits.numpy(), [tokens_cut_field(cut) | depth for cut, depth in zip(encoded.cut, depths, strict=True)]


def ranked_labels(
    scores: Float[np.ndarray, "texts labels"],
    fields: Sequence[Prediction],
    names: Sequence[str],
    threshold: LabelThreshold | None = None,
) -> list[list[Prediction]]:
    """The labels of each text, most likely first, with its further fields; `predicted` if there is a threshold."""
    orders = np.argsort(-scores, axis=1, kind="stable").tolist()
    ranked: list[list[Prediction]] = [
        [{"label": names[label], "score": row[label], **more} for label in order]
        for order, row, more in zip(orders, scores.tolist(), fields, strict=True)
    ]
    if threshold is not None:
        for entries, order, predicted in zip(ranked, orders, threshold.predicted(scores).tolist(), strict=True):
            for entry, label in zip(entries, order, strict=True):
                entry["predicted"] = predicted[label]
    return ranked


def fill_masks(network: Network, texts: Sequence[str], top_k: int) -> list[list[list[Prediction]]]:
    """The `top_k` tokens for each mask of each text, named as by transformers; the other masks stay masked."""
    tokenizer = network.tokenizer
    ids = encode_with_masks(tokenizer, texts, network.max_length)
    masked = [np.flatnonzero(row == tokenizer.mask_id) for row in ids]
    decoded = cache(partial(_piece_text, tokenizer))
    filled: list[list[list[Prediction]]] = [[] for _ in texts]
    for number, logits, _ in network.model.at(ids, [np.zeros_like(row) for row in ids], masked):
        probabilities = logits.float().softmax(dim=-1)[:, : tokenizer.vocab_size]
        scores, tokens = probabilities.topk(min(top_k, tokenizer.vocab_size), dim=-1)
        for position, *row in zip(masked[number].tolist(), tokens.tolist(), scores.tolist(), strict=True):
            left, right, unfilled = _around(tokenizer, ids[number].tolist(), position)
            predictions = []
            for token, score in zip(*row, strict=True):
                special, text, first, later = decoded(token)
                sequence = unfilled if special else f"{left}{later if left else first}{right}".strip()
                predictions.append({"score": score, "token": token, "token_str": text, "sequence": sequence})
            filled[number].append(predictions)
    return filled


def _around(tokenizer: Tokenizer, ids: Sequence[int], position: int) -> tuple[str, str, str]:
    """The text before a mask, after it, and both joined.

    Decoded once per mask: decoding the whole text for every candidate took almost all of the time.
    """
    dropped = {*tokenizer.special_ids} - {tokenizer.mask_id}
    parts = (ids[:position], ids[position + 1 :])
    before, after = ([piece for piece in part if piece not in dropped] for part in parts)
    mask = tokenizer.piece(tokenizer.mask_id)
    left = words(tokenizer, [*before, tokenizer.mask_id]).removesuffix(mask).removesuffix(" ")
    right = words(tokenizer, [tokenizer.mask_id, *after]).removeprefix(mask)
    return left, right, words(tokenizer, [*before, *after])


def _piece_text(tokenizer: Tokenizer, piece: int) -> tuple[bool, str, str, str]:
    """Return whether a piece is special, and its text alone, at the start of a text, and after other words."""
    mask_id = tokenizer.mask_id
    mask = tokenizer.piece(tokenizer.mask_id)
    first = words(tokenizer, [piece, mask_id]).removesuffix(mask).removesuffix(" ")
    later = words(tokenizer, [mask_id, piece, mask_id]).removeprefix(mask).removesuffix(mask).removesuffix(" ")
    return piece in tokenizer.special_ids, words(tokenizer, [piece]), first, later


_ORDERS = {"sop": ("in order", "swapped", "probability_in_order"), "nsp": ("next", "foreign", "probability_next")}


def order_labels(objective: object) -> tuple[str, str]:
    """The names of the head's two classes; `objective` is "nsp" or sentence order (any other value)."""
    return _ORDERS["nsp" if objective == "nsp" else "sop"][:2]


def predict_orders(
    network: Network, firsts: Sequence[str], seconds: Sequence[str], objective: object
) -> list[Prediction]:
    """The prediction for each pair: `label`, its `score`, and the probability of the head's first class."""
    # Pre-training puts one [SEP] between segments, whatever the tokenizer.
    encoded = encode_texts(network.tokenizer, (firsts, seconds), network.max_length, separators=1)
    no_masks = [np.zeros(0, np.int64)] * len(firsts)
    yes, no, key = _ORDERS["nsp" if objective == "nsp" else "sop"]
    predictions: list[Prediction] = [{}] * len(firsts)
    for number, _, order in network.model.at(encoded.ids, encoded.token_types, no_masks):
        assert order is not None, "the model has no sentence-order head"
        first_class = float(order.float().softmax(dim=-1)[0])
        label, score = (yes, first_class) if first_class >= 0.5 else (no, 1 - first_class)
        predictions[number] = {"label": label, "score": score, key: first_class}
        predictions[number] |= tokens_cut_field(encoded.cut[number])
    return predictions


def tag_words(network: Network, texts: Sequence[str], names: Sequence[str]) -> list[list[Prediction]]:
    """Label every word of plain texts, split as `albert.text.word_split` does, with its characters `start`..`end`.

    The words are labelled as those of sentences that are split into words.
    """
    spans = [word_spans(text) for text in texts]
    sentences = [[text[start:end] for start, end in own] for text, own in zip(texts, spans, strict=True)]
    tagged = tag_given_words(network, sentences, names)
    return [
        [{**word, "start": start, "end": end} for word, (start, end) in zip(words, own, strict=True)]
        for words, own in zip(tagged, spans, strict=True)
    ]


def tag_given_words(
    network: Network, sentences: Sequence[Sequence[str]], names: Sequence[str]
) -> list[list[Prediction]]:
    """Label every word of sentences split into words by its first piece, as in evaluation (Devlin et al. 2019, §5.3).

    Long sentences are read in overlapping windows; a word's label comes from the window where it has most context.
    """
    encoded = tag_features(sentences, network.tokenizer, network.max_length)
    sequences = [encoded.sequences.token_ids(index) for index in range(len(encoded.sequences))]
    logits = encoded.word_outputs(network.model.rows(sequences, [np.zeros_like(sequence) for sequence in sequences]))
    tagged = []
    for words, rows in zip(sentences, encoded.split_by_sentence(logits.astype(np.float64)), strict=True):
        probabilities = _softmax(rows)
        labels = probabilities.argmax(axis=1).tolist()
        scores = probabilities.max(axis=1).tolist()
        entries = zip(words, labels, scores, strict=True)
        tagged.append([{"word": word, "entity": names[label], "score": score} for word, label, score in entries])
    return tagged


def check_texts(name: str, texts: Iterable[Any]) -> None:
    """Raises UsageError for a string, an iterator or a table in place of a list, and for items that are not strings
    (for example NaN from pandas)."""
    if isinstance(texts, str):
        raise UsageError(name, "is one text, a list of them is expected", "put it into brackets")
    if isinstance(texts, dict) or not hasattr(texts, "__getitem__") or getattr(texts, "ndim", 1) != 1:
        remedy = "make a list of it, or give one column"
        raise UsageError(name, f"is {type(texts).__name__}, a list of texts is expected", remedy)
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            remedy = "methods that end in _batch take lists" if isinstance(text, list | tuple) else None
            raise UsageError(f"{name}, number {number}", f"is {type(text).__name__}, a text is expected", remedy)


def check_pairs(name: str, texts: Sequence[Any], other: str, others: Sequence[Any]) -> None:
    """Raises UsageError for lists of different lengths, or with items that are not strings."""
    check_texts(name, texts)
    check_texts(other, others)
    if len(texts) != len(others):
        raise UsageError(name, f"{len(texts)} for {len(others)} {other}", "give one for each")
