"""A label for every word of a text, with the word's place in it."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from albert.inference.packed_model import PackedModel
from albert.tasks.windows import best_windows, cut_windows
from albert.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TaggedWord:
    """A word, its characters `start`..`end` in the text, and the probability of every label, float64 [labels]."""

    word: str
    start: int
    end: int
    probabilities: np.ndarray


def tag_words(
    model: PackedModel,
    tokenizer: Tokenizer,
    word_starts: Bool[np.ndarray, " pieces"],
    max_length: int,
    text: str,
) -> list[TaggedWord]:
    """Judge every word by its first piece, as token classifiers are trained (Devlin et al. 2019, §5.3).

    A text longer than the model reads goes through in overlapping windows; a piece is judged in the one where it has
    most context.

    Args:
        model: a token classifier.
        tokenizer: its tokenizer.
        word_starts: which of its pieces begin a word.
        max_length: tokens of a sequence, `[CLS]` and `[SEP]` included.
        text: any text; one without words has none to tag.
    """
    ids, spans = tokenizer.encode_with_offsets(text)
    room = max_length - 2
    pieces = cut_windows(len(ids), room, max(1, room // 2))
    sequences = [np.asarray([tokenizer.cls_id, *ids[start:stop], tokenizer.sep_id], np.int64) for start, stop in pieces]
    rows = model.rows(sequences, [np.zeros_like(sequence) for sequence in sequences])
    logits = np.zeros((len(ids), rows[0].shape[1]))
    for (start, stop), best, row in zip(pieces, best_windows(pieces, len(ids)), rows, strict=True):
        logits[start:stop][best] = row[1:-1][best]
    shown = [place for place, (start, end) in enumerate(spans) if end > start]  # a blank alone is no part of a word
    begins = word_starts[np.asarray(ids, np.int64)]
    words: list[list[int]] = []
    for place in shown:
        blank_before = place > 0 and spans[place - 1][0] == spans[place - 1][1]
        if not words or begins[place] or blank_before:
            words.append([])
        words[-1].append(place)
    return [_tagged(text, [spans[place] for place in word], logits[word[0]]) for word in words]


def _tagged(text: str, spans: list[tuple[int, int]], logits: np.ndarray) -> TaggedWord:
    start, end = spans[0][0], spans[-1][1]
    exponentials = np.exp(logits - logits.max())
    return TaggedWord(text[start:end], start, end, exponentials / exponentials.sum())
