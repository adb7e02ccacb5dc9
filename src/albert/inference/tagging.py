"""A label for every word of a text, with the word's place in it; or of a sentence that comes in words."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool

from albert.inference.abilities import Prediction
from albert.inference.packed_model import PackedModel
from albert.tasks.windows import best_windows, cut_windows
from albert.tasks.words import word_sequences
from albert.text.tokenizer import Tokenizer


def tag_words(
    model: PackedModel,
    tokenizer: Tokenizer,
    word_starts: Bool[np.ndarray, " pieces"],
    max_length: int,
    texts: Sequence[str],
    names: Sequence[str],
) -> list[list[Prediction]]:
    """Judge every word by its first piece, as token classifiers are trained (Devlin et al. 2019, §5.3).

    A text longer than the model reads goes through in overlapping windows; a piece is judged in the one where it has
    most context.

    Args:
        model: a token classifier.
        tokenizer: its tokenizer.
        word_starts: which of its pieces begin a word.
        max_length: tokens of a sequence, `[CLS]` and `[SEP]` included.
        texts: any texts; one without words has none to tag.
        names: of the labels.
    """
    room = max_length - 2
    encoded = tokenizer.encode_batch_with_offsets(texts)
    windows = [cut_windows(len(ids), room, max(1, room // 2)) for ids, _ in encoded]
    sequences = [
        np.asarray([tokenizer.cls_id, *ids[start:stop], tokenizer.sep_id], np.int64)
        for (ids, _), pieces in zip(encoded, windows, strict=True)
        for start, stop in pieces
    ]
    rows = iter(model.rows(sequences, [np.zeros_like(sequence) for sequence in sequences]))
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
    model: PackedModel,
    tokenizer: Tokenizer,
    max_length: int,
    sentences: Sequence[Sequence[str]],
    names: Sequence[str],
) -> list[list[Prediction]]:
    """Judge every word of sentences that come in words, as an evaluation does (see `albert.tasks.words`)."""
    read = word_sequences(sentences, tokenizer, max_length)
    sequences = [read.sequences.token_ids(index) for index in range(len(read.sequences))]
    logits = read.judged(model.rows(sequences, [np.zeros_like(sequence) for sequence in sequences]))
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
    """The best label of each word, and its probability."""
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    return probabilities.argmax(axis=1).tolist(), probabilities.max(axis=1).tolist()
