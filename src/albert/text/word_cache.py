"""Encoding of many texts word by word, with a cache of the pieces of each word.

No piece crosses a blank, so a text is encoded word by word. The ids of a word then never depend on its neighbours
(scores of a long text, summed in single precision, break ties by chance), they equal those of the `tokenizers`
library, and most words are in the cache. The cache is keyed by the word before normalisation."""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
import sentencepiece
from jaxtyping import Int, Int32, Int64

from albert.text.normalization import align_word, maps_one_to_one, normalize_words
from albert.text.tokenizer import BLANK

MAX_WORD_LENGTH = 48  # characters; longer words rarely recur
MAX_WORDS = 1 << 17  # of English, 19 MB with their ids and 23 MB with their offsets
MIN_BATCH = 16  # SentencePiece starts a thread for a list, which takes as long as so many words
MAX_PARTS = 1 << 12  # parts of one word that are cached while it is encoded
NO_LETTERS = "\n"  # is in no word


class WordCache(dict[str, bytes], ABC):
    """From a word to its encoding; filled on demand, and emptied when it is full.

    Threads may share one: an entry that another thread removed is computed again.
    """

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, normalization: tuple[bool, bool, bool]) -> None:
        super().__init__()
        self._processor = processor
        self._normalization = normalization

    def __missing__(self, word: str) -> bytes:
        (entry,) = self._encode([word])
        if len(word) <= MAX_WORD_LENGTH:
            if len(self) >= MAX_WORDS:
                self.clear()
            self[word] = entry
        return entry

    def look_up(self, words: Sequence[str]) -> list[bytes]:
        """Return the encodings of words; new words are encoded together, which is faster."""
        entries: list[Any] = list(map(self.get, words))
        if not all(entries):
            missing = [index for index, entry in enumerate(entries) if entry is None]
            new = [word for word in {words[index] for index in missing} if len(word) <= MAX_WORD_LENGTH][:MAX_WORDS]
            if len(self) + len(new) > MAX_WORDS:
                self.clear()
            self.update(zip(new, self._encode(new), strict=True))
            for index in missing:
                entries[index] = self[words[index]]
        return entries

    @abstractmethod
    def _encode(self, words: Sequence[str]) -> Iterator[bytes]:
        """Return the encoding of each word."""

    def _ids(self, normalized: Sequence[str]) -> list[list[int]]:
        """Return the ids of each result of `normalize_words`."""
        if len(normalized) < MIN_BATCH:
            ids = [self._processor.encode(word) for word in normalized]
        else:
            ids = self._processor.encode(list(normalized), num_threads=1)
        for index, word in enumerate(normalized):
            if " " in word:
                ids[index] = list(chain.from_iterable(self._processor.encode(word.split(), num_threads=1)))
        return ids


class WordIds(WordCache):
    """From a word to the ids of its pieces, int32 [pieces]."""

    def _encode(self, words: Sequence[str]) -> Iterator[bytes]:
        return (array("i", ids).tobytes() for ids in self._ids(normalize_words(words, *self._normalization)))


class WordSpans(WordCache):
    """From a word to its pieces, int32 [pieces, 3]: id, start and end in characters of the word."""

    def __init__(
        self,
        processor: sentencepiece.SentencePieceProcessor,
        normalization: tuple[bool, bool, bool],
        pieces: Iterable[str],
        unk_id: int,
    ) -> None:
        super().__init__(processor, normalization)
        self._letters = [piece.replace(BLANK, "") for piece in pieces]
        self._letters[unk_id] = NO_LETTERS
        self._lengths = np.array(list(map(len, self._letters)))
        # whether SentencePiece drops a character, or takes it for a blank
        self._is_invisible = cache(lambda character: not processor.normalize(character).strip(" " + BLANK))

    def _encode(self, words: Sequence[str]) -> Iterator[bytes]:
        normalized = normalize_words(words, *self._normalization)
        spans = self._spans_by_length(self._ids(normalized))
        for word, text, (pieces, letters) in zip(words, normalized, spans, strict=True):
            if letters == text and len(text) == len(word) and maps_one_to_one(word, *self._normalization):
                yield pieces
            else:
                yield array("i", self._encode_by_alignment(word)).tobytes()

    def _spans_by_length(self, ids: Sequence[Sequence[int]]) -> Iterator[tuple[bytes, str]]:
        """Yield for each word its entry by the lengths of its pieces, and the letters for which this is right."""
        bounds = np.cumsum([0, *map(len, ids)])
        numbers = np.fromiter(chain.from_iterable(ids), np.int32, bounds[-1])
        lengths = self._lengths[numbers]
        ends = np.cumsum(lengths)
        word_bounds = np.append(0, ends)[bounds]
        origins = np.repeat(word_bounds[:-1], np.diff(bounds))
        pieces = np.stack([numbers, ends - lengths - origins, ends - origins], axis=1).astype(np.int32)
        packed = pieces.tobytes()
        letters = "".join(map(self._letters.__getitem__, numbers.tolist()))
        byte_bounds = pairwise((bounds * pieces.strides[0]).tolist())
        for (first, last), (start, end) in zip(byte_bounds, pairwise(word_bounds.tolist()), strict=True):
            yield packed[first:last], letters[start:end]

    def _encode_by_alignment(self, word: str) -> Iterator[int]:
        """Yield id, start and end of each piece, from the alignments of both normalisations."""
        spans_of = lru_cache(MAX_PARTS)(lambda part: list(self._spans(part)))
        last_end = 0
        for part, starts, ends in align_word(word, *self._normalization):
            for number, (start, end) in spans_of(part):
                # An empty span ends where it begins, unless it is part of a decomposed character.
                last_end = ends[end - 1] if end > start else max(starts[start], last_end)
                yield from (number, starts[start], last_end)

    def _spans(self, word: str) -> Iterator[tuple[int, tuple[int, int]]]:
        """Return the ids of a normalised word, each with the characters that it covers."""
        encoded: Any = self._processor.encode(word, return_type="offset_mapping")
        spans: list[tuple[int, int]] = []
        following = len(word)
        for piece, (start, end) in zip(reversed(encoded["pieces"]), reversed(encoded["offsets"]), strict=True):
            if piece != BLANK:
                end = min(max(end, start + 1), len(word))  # for characters that SentencePiece expanded
            while start < end and self._is_invisible(word[start]):
                start += 1
            while start < end and self._is_invisible(word[end - 1]):
                end -= 1
            if start >= end:  # a blank: empty, where the next piece begins
                start = following
                end = following
            following = start
            spans.append((start, end))
        return zip(encoded["ids"], spans[::-1], strict=True)


# ---- Encoding many texts at once: one look-up for each word, everything else vectorised ----------------------------

GROUP = 1 << 14  # characters: few enough that words are still in the processor's cache when they are looked up
_END_ID = -1  # of a text; no piece has it
_END = np.int32(_END_ID).tobytes()
_IS_BLANK = np.array([chr(code).isspace() for code in range(0x3002)])  # U+3000 is the last one


def encode_joined(
    texts: Sequence[str], cache: WordIds
) -> tuple[Int32[np.ndarray, " pieces"], Int64[np.ndarray, " texts"]]:
    """Return the ids of all texts in one array, and how many each text has."""
    ids: list[bytes] = []
    for group in _groups(texts):
        split = [text.split() for text in group]
        entries = iter(cache.look_up(list(chain.from_iterable(split))))
        for words in split:
            ids += islice(entries, len(words))
            ids.append(_END)
    joined = np.frombuffer(b"".join(ids), np.int32)
    ends = np.flatnonzero(joined == _END_ID)
    return np.delete(joined, ends), np.diff(ends, prepend=-1) - 1


def encode_texts_with_offsets(
    texts: Sequence[str], cache: WordSpans
) -> Iterator[tuple[Int32[np.ndarray, " pieces"], Int64[np.ndarray, "pieces 2"]]]:
    """Yield the ids of each text, and start and end of each piece in it."""
    for group in _groups(texts):
        split = [text.split() for text in group]
        entries = cache.look_up(list(chain.from_iterable(split)))
        pieces = np.frombuffer(b"".join(entries), np.int32).reshape(-1, 3)
        pieces_of_words = np.fromiter(map(len, entries), np.int64, len(entries)) // pieces.strides[0]
        word_bounds = np.cumsum([0, *map(len, split)])
        piece_bounds = np.append(0, np.cumsum(pieces_of_words))[word_bounds]
        offsets = pieces[:, 1:] + np.repeat(word_positions(group, np.diff(word_bounds)), pieces_of_words)[:, None]
        for start, end in pairwise(piece_bounds.tolist()):
            yield pieces[start:end, 0], offsets[start:end]


def word_positions(texts: Sequence[str], words: Int[np.ndarray, " texts"]) -> Int64[np.ndarray, " words"]:
    """Return where each word begins in its text, given the number of words that `str.split` finds in each."""
    codes = np.frombuffer(" ".join(["", *texts]).encode("utf-32-le", "surrogatepass"), "<i4")
    is_blank = _IS_BLANK.take(codes, mode="clip")
    begins = np.flatnonzero(is_blank[:-1] & ~is_blank[1:])
    lengths = np.array([len(text) + 1 for text in texts], np.int64)
    return begins - np.repeat(np.cumsum(lengths) - lengths, words)


def _groups(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    first = 0
    size = 0
    for index, text in enumerate(texts, 1):
        size += len(text)
        if size >= GROUP or index == len(texts):
            yield texts[first:index]
            first = index
            size = 0
