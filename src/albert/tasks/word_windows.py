"""Words to pieces, in overlapping windows in which every word is predicted once, at its first piece."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from albert.runtime.errors import InvalidConfiguration
from albert.tasks.examples import IGNORE_INDEX, Features, best_windows, cut_windows, encode_all, join_sequences
from albert.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class TagFeatures(Features):
    """The windows of all sentences in order; an empty sentence is `[CLS] [SEP]`.

    `targets` has a label id for every token (int64 [tokens]): `IGNORE_INDEX` except at `first_pieces`.

    Attributes:
        first_pieces: for every word of all sentences, the index into `sequences.tokens` at which it is predicted
            (int64 [words]).
        n_words: words of each sentence (int64 [sentences]).
    """

    first_pieces: np.ndarray
    n_words: np.ndarray

    @property
    def learnable(self) -> np.ndarray:
        """Indices of the sequences in which a word is predicted."""
        labelled = np.concatenate([[0], np.cumsum(self.targets != IGNORE_INDEX)])
        return np.flatnonzero(np.diff(labelled[self.sequences.starts]))

    def word_outputs(self, rows: Iterable[np.ndarray]) -> np.ndarray:
        """Outputs by word [words, labels], from those of each sequence [length, labels]."""
        arrays = list(rows)
        return np.concatenate(arrays)[self.first_pieces] if arrays else np.zeros((0, 0))

    def split_by_sentence(self, words: np.ndarray) -> list[np.ndarray]:
        """An array over all words, split into sentences."""
        return np.split(words, np.cumsum(self.n_words)[:-1]) if len(self.n_words) else []


def tag_features(
    sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, max_length: int, tags: Sequence[Any] | None = None
) -> TagFeatures:
    """Sentences of words as sequences of at most `max_length` tokens with `[CLS]` and `[SEP]`.

    Args:
        tags: label ids of the words of each sentence; None, also for a single sentence, if they are unknown.
    """
    room = max_length - 2
    if room < 1:
        raise InvalidConfiguration("max_length", f"{max_length} leaves no room for text", "use a larger value")
    vocabulary = list(dict.fromkeys(chain.from_iterable(sentences)))
    pieces = dict(zip(vocabulary, encode_all(vocabulary, tokenizer, "words"), strict=True))
    parts: list[tuple[list[int], int]] = []
    example_of: list[int] = []
    slot_of: list[int] = []
    positions: list[np.ndarray] = [np.zeros(0, np.int64)]
    counts = dict.fromkeys(("words_without_pieces", "sentences_without_words", "sentences_in_several_windows"), 0)
    end = 0
    for number, words in enumerate(sentences):
        word_pieces = [pieces[word] or [tokenizer.unk_id] for word in words]
        ids = [*chain.from_iterable(word_pieces)]
        windows = cut_windows(len(ids), room, max(1, room // 2))
        best_positions = np.zeros(len(ids), np.int64)  # of each piece among all tokens, in the window with most context
        for (start, stop), best in zip(windows, best_windows(windows, len(ids)), strict=True):
            parts.append(([tokenizer.cls_id, *ids[start:stop], tokenizer.sep_id], stop - start + 2))
            best_positions[start:stop][best] = end + 1 + np.flatnonzero(best)
            end += stop - start + 2
        example_of += [number] * len(windows)
        slot_of += range(len(windows))
        positions.append(best_positions[np.cumsum([0, *map(len, word_pieces)])[:-1]])
        counts["words_without_pieces"] += sum(not pieces[word] for word in words)
        counts["sentences_without_words"] += len(words) == 0
        counts["sentences_in_several_windows"] += len(windows) > 1
    n_words = np.fromiter(map(len, sentences), np.int64, len(sentences))
    first_pieces = np.concatenate(positions)
    sequences = join_sequences(parts)
    counts = {"words": len(first_pieces), **counts}
    targets = np.full(len(sequences.tokens), IGNORE_INDEX, np.int64)
    for words, own in zip(np.split(first_pieces, np.cumsum(n_words)[:-1]), tags or (), strict=False):
        targets[words] = IGNORE_INDEX if own is None else own
    return TagFeatures(
        sequences=sequences,
        targets=targets,
        counts=counts,
        example_of=np.array(example_of, np.int64),
        slot_of=np.array(slot_of, np.int64),
        cut=np.zeros(len(sequences), np.int64),
        first_pieces=first_pieces,
        n_words=n_words,
    )
