"""Words to pieces: where each word's label sits, and overlapping windows in which every word is judged once.

A word is encoded by itself, so that its pieces do not depend on its neighbours, and judged at its first piece (Devlin
et al. 2019, §5.3). One that yields no piece, a lone combining mark say, is read as the unknown piece: it is learnt,
judged and scored like any other. A sentence longer than the model reads goes through in windows that overlap by half; a
word is judged in the one where its first piece has most context.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.progress import progress
from albert.tasks.examples import Example
from albert.tasks.features import ENCODING_CHUNK, Sequences, join_sequences
from albert.tasks.windows import best_windows, cut_windows
from albert.text.tokenizer import Tokenizer

NOT_JUDGED = -100
"""The target of tokens that have none: torch and transformers leave it out of the loss."""


@dataclass(frozen=True)
class WordSequences:
    """Sentences as a model reads them.

    Attributes:
        sequences: the windows of all sentences in order; a short sentence is one, an empty one `[CLS] [SEP]`.
        first_pieces: for every word of all sentences, in order, where it is judged: an index into all tokens of
            `sequences`, end to end (int64 [words]).
        n_words: words of each sentence (int64 [sentences]).
        counts: `words`, `words_without_pieces`, `sentences_without_words`, `sentences_in_several_windows`.
    """

    sequences: Sequences
    first_pieces: np.ndarray
    n_words: np.ndarray
    counts: dict[str, int]

    def judged(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """[words, labels] of what a model gave for each sequence: [length, labels]."""
        return np.concatenate(rows)[self.first_pieces] if rows else np.zeros((0, 0))

    def by_sentence(self, words: np.ndarray) -> list[np.ndarray]:
        """What there is for every word, sentence by sentence."""
        return np.split(words, np.cumsum(self.n_words)[:-1]) if len(self.n_words) else []


@dataclass(frozen=True)
class TagFeatures:
    """Sentences, and for every token of their sequences the id of the label to learn there (int64 [tokens]),
    `NOT_JUDGED` at all but the words' first pieces in the windows that judge them.
    """

    words: WordSequences
    targets: np.ndarray

    @property
    def sequences(self) -> Sequences:
        """All windows."""
        return self.words.sequences

    @property
    def learnable(self) -> np.ndarray:
        """Indices of the sequences in which a word is judged."""
        judged = np.zeros(len(self.targets) + 1, np.int64)
        judged[1:] = np.cumsum(self.targets != NOT_JUDGED)
        return np.flatnonzero(np.diff(judged[self.sequences.starts]))


def tag_features(examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> TagFeatures:
    """The windows of every example, whose texts are its words; without labels no token has a target.

    Raises:
        InvalidConfiguration: `max_length` leaves no room for text.
    """
    words = word_sequences([example.texts for example in examples], tokenizer, max_length)
    tags = chain.from_iterable(_tags_of(example) for example in examples)
    targets = np.full(len(words.sequences.tokens), NOT_JUDGED, np.int64)
    targets[words.first_pieces] = np.fromiter(tags, np.int64, len(words.first_pieces))
    return TagFeatures(words, targets)


def word_sequences(sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, max_length: int) -> WordSequences:
    """Sentences, which come in words, as sequences of at most `max_length` tokens with `[CLS]` and `[SEP]`.

    Raises:
        InvalidConfiguration: `max_length` leaves no room for text.
    """
    room = max_length - 2
    if room < 1:
        raise InvalidConfiguration("max_length", f"{max_length} leaves no room for text", "use a larger value")
    pieces = _pieces_of_words(chain.from_iterable(sentences), tokenizer)
    unread = {word for word, ids in pieces.items() if not ids}
    parts: list[tuple[list[int], int]] = []
    judged: list[np.ndarray] = []
    counts = dict.fromkeys(("words_without_pieces", "sentences_without_words", "sentences_in_several_windows"), 0)
    end = 0
    for words in sentences:
        ids: list[int] = []
        firsts = np.zeros(len(words), np.int64)
        for place, word in enumerate(words):
            firsts[place] = len(ids)
            ids += pieces[word] or [tokenizer.unk_id]
            counts["words_without_pieces"] += word in unread
        windows = cut_windows(len(ids), room, max(1, room // 2))
        places = np.zeros(len(ids), np.int64)  # of each piece, among all tokens, where it is judged
        for (start, stop), best in zip(windows, best_windows(windows, len(ids)), strict=True):
            parts.append(([tokenizer.cls_id, *ids[start:stop], tokenizer.sep_id], stop - start + 2))
            places[start:stop][best] = end + 1 + np.flatnonzero(best)
            end += stop - start + 2
        judged.append(places[firsts])
        counts["sentences_without_words"] += not words
        counts["sentences_in_several_windows"] += len(windows) > 1
    n_words = np.fromiter(map(len, sentences), np.int64, len(sentences))
    first_pieces = np.concatenate([np.zeros(0, np.int64), *judged])
    return WordSequences(join_sequences(parts), first_pieces, n_words, {"words": len(first_pieces), **counts})


def _pieces_of_words(words: Iterable[str], tokenizer: Tokenizer) -> dict[str, list[int]]:
    """The ids of each word that occurs."""
    known = list(dict.fromkeys(words))
    pieces: dict[str, list[int]] = {}
    with progress("Encoding", total=len(known), unit="words") as bar:
        for start in range(0, len(known), ENCODING_CHUNK):
            chunk = known[start : start + ENCODING_CHUNK]
            pieces.update(zip(chunk, tokenizer.encode_batch(chunk), strict=True))
            bar.advance(len(chunk))
    return pieces


def _tags_of(example: Example) -> Iterable[int]:
    return example.target if isinstance(example.target, tuple) else [NOT_JUDGED] * len(example.texts)
