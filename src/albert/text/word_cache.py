"""Encoding of many texts word by word, with a cache of the pieces of each word.

No piece crosses a blank, so a text is encoded word by word: the ids of a word never depend on its neighbours (scores
summed over a long text in single precision break ties by chance), they equal those of the `tokenizers` library, which
does the same, and most words of a text have been met before. Words are remembered as they are written, so that
normalising them, too, is done once for each."""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
import sentencepiece
from jaxtyping import Int, Int32, Int64

from albert.text.normalization import keeps_places, long_word_alignment, long_word_parts, normalize_words
from albert.text.tokenizer import BLANK

LONGEST_WORD = 48  # characters; longer ones are hardly ever met again
MOST_WORDS = 1 << 17  # of English, 19 MB with their ids and 23 MB with their places
FEW_WORDS = 16  # SentencePiece starts a thread for a list, which takes as long as so many words
LONG_WORD = 1 << 12  # characters; from here on a word is normalised in chunks, since it may become 18 times as long
MOST_PARTS = 1 << 12  # of one word, that are remembered while it is encoded
NO_LETTERS = "\n"  # which is in no word


class WordCache(dict[str, bytes], ABC):
    """From a word as written to what is to be known about it; fills itself, and starts anew when it is full.

    Threads may share one: what another thread threw away is found again.
    """

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, normalization: tuple[bool, bool, bool]) -> None:
        super().__init__()
        self._processor, self._normalization = processor, normalization

    def __missing__(self, word: str) -> bytes:
        (found,) = self._found([word])
        if len(word) <= LONGEST_WORD:
            if len(self) >= MOST_WORDS:
                self.clear()
            self[word] = found
        return found

    def look_up(self, words: Sequence[str]) -> list[bytes]:
        """What is known about each of some words; new ones are met together, in less time than one by one."""
        found: list[Any] = list(map(self.get, words))
        if not all(found):
            new = [index for index, value in enumerate(found) if value is None]
            self._meet({words[index] for index in new})
            for index in new:
                found[index] = self[words[index]]
        return found

    def _meet(self, words: Iterable[str]) -> None:
        new = [word for word in words if len(word) <= LONGEST_WORD][:MOST_WORDS]
        if len(self) + len(new) > MOST_WORDS:
            self.clear()
        self.update(zip(new, self._found(new), strict=True))

    def _found(self, words: Sequence[str]) -> Iterator[bytes]:
        """What is to be known about each of some words."""
        if not any(map(_may_grow, words)):
            yield from self._of_words(words)
            return
        for word in words:
            yield from [array("i", self._in_parts(word)).tobytes()] if _may_grow(word) else self._of_words([word])

    @abstractmethod
    def _of_words(self, words: Sequence[str]) -> Iterator[bytes]:
        """The same of words that are normalised at once."""

    @abstractmethod
    def _in_parts(self, word: str) -> Iterator[int]:
        """The same of any word, in memory for some of it at a time."""

    def _ids(self, normalized: Sequence[str]) -> list[list[int]]:
        """Ids of what `normalize_words` gives."""
        if len(normalized) < FEW_WORDS:
            ids = [self._processor.encode(word) for word in normalized]
        else:
            ids = self._processor.encode(list(normalized), num_threads=1)
        for index, word in enumerate(normalized):
            if " " in word:
                ids[index] = [number for part in word.split() for number in self._processor.encode(part)]
        return ids


class WordIds(WordCache):
    """From a word to the ids of its pieces, int32 [pieces]."""

    def _of_words(self, words: Sequence[str]) -> Iterator[bytes]:
        for ids in self._ids(normalize_words(words, *self._normalization)):
            yield array("i", ids).tobytes()

    def _in_parts(self, word: str) -> Iterator[int]:
        known: dict[str, array] = {}
        for part in long_word_parts(word, *self._normalization):
            found = known.get(part)
            if found is None:
                found = array("i", self._processor.encode(part))
                if len(part) <= LONGEST_WORD and len(known) < MOST_PARTS:
                    known[part] = found
            yield from found


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
        self._invisible: dict[str, bool] = {" ": True, BLANK: True}

    def _of_words(self, words: Sequence[str]) -> Iterator[bytes]:
        normalized = normalize_words(words, *self._normalization)
        for word, text, (pieces, letters) in zip(
            words, normalized, self._side_by_side(self._ids(normalized)), strict=True
        ):
            if letters == text and len(text) == len(word) and keeps_places(word, *self._normalization):
                yield pieces
            else:
                yield array("i", self._in_parts(word)).tobytes()

    def _side_by_side(self, ids: Sequence[Sequence[int]]) -> Iterator[tuple[bytes, str]]:
        """What is to be known about words that consist of the letters of their pieces, and those letters."""
        bounds = np.cumsum([0, *map(len, ids)])
        numbers = np.fromiter(chain.from_iterable(ids), np.int32, bounds[-1])
        lengths = self._lengths[numbers]
        ends = np.cumsum(lengths)
        word_bounds = np.append(0, ends)[bounds]
        origins = np.repeat(word_bounds[:-1], np.diff(bounds))
        pieces = np.stack([numbers, ends - lengths - origins, ends - origins], axis=1).astype(np.int32)
        packed, letters = pieces.tobytes(), "".join(map(self._letters.__getitem__, numbers.tolist()))
        places = pairwise((bounds * pieces.strides[0]).tolist())
        for (first, last), (start, end) in zip(places, pairwise(word_bounds.tolist()), strict=True):
            yield packed[first:last], letters[start:end]

    def _in_parts(self, word: str) -> Iterator[int]:
        """Id, start and end of each piece of any word, by way of the alignments of both normalisations."""
        known: dict[str, list[tuple[int, tuple[int, int]]]] = {}
        last_end = 0
        for part, starts, ends in long_word_alignment(word, *self._normalization):
            spans = known.get(part)
            if spans is None:
                spans = list(self._spans(part))
                if len(part) <= LONGEST_WORD and len(known) < MOST_PARTS:
                    known[part] = spans
            for number, (start, end) in spans:
                place = starts[start]
                # A blank ends where it stands, but it can also be part of a decomposed character.
                last_end = ends[end - 1] if end > start else max(place, last_end)
                yield from (number, place, last_end)

    def _spans(self, word: str) -> Iterator[tuple[int, tuple[int, int]]]:
        """The ids of one normalised word, and the characters of the word that each piece covers."""
        found: Any = self._processor.encode(word, return_type="offset_mapping")
        spans: list[tuple[int, int]] = []
        following = len(word)
        for piece, (start, end) in zip(reversed(found["pieces"]), reversed(found["offsets"]), strict=True):
            if piece != BLANK:
                end = min(max(end, start + 1), len(word))  # the rest of a character that SentencePiece expanded
            while start < end and self._is_invisible(word[start]):
                start += 1
            while start < end and self._is_invisible(word[end - 1]):
                end -= 1
            if start >= end:  # a blank alone stands where the next piece begins
                start = end = following
            following = start
            spans.append((start, end))
        return zip(found["ids"], spans[::-1], strict=True)

    def _is_invisible(self, character: str) -> bool:
        """Whether SentencePiece drops a character or takes it for a blank."""
        known = self._invisible.get(character)
        if known is None:
            left = self._processor.normalize(character)
            known = self._invisible[character] = not left.strip(" " + BLANK)
        return known


def _may_grow(word: str) -> bool:
    return len(word) >= LONG_WORD and not word.isascii()


# --------------------------------------------------------------------------------------------------------------------
# Encoding many texts at once: one look-up for each word, everything else vectorised.

GROUP = 1 << 14  # characters: few enough that words are still at hand when they are looked up
_END_ID = -1  # of a text: no piece has it
_END = np.int32(_END_ID).tobytes()
_IS_BLANK = np.array([chr(code).isspace() for code in range(0x3002)])  # U+3000 is the last one


def encode_texts(texts: Sequence[str], known: WordIds) -> Iterator[Int32[np.ndarray, " pieces"]]:
    """The ids of each text."""
    for group in _groups(texts):
        words = [text.split() for text in group]
        found = iter(known.look_up(list(chain.from_iterable(words))))
        for each in words:
            yield np.frombuffer(b"".join(islice(found, len(each))), np.int32)


def encode_joined(
    texts: Sequence[str], known: WordIds
) -> tuple[Int32[np.ndarray, " pieces"], Int64[np.ndarray, " texts"]]:
    """The ids of all texts, one text after the other, and how many each has."""
    ids: list[bytes] = []
    for group in _groups(texts):
        words = [text.split() for text in group]
        found = iter(known.look_up(list(chain.from_iterable(words))))
        for each in words:
            ids += islice(found, len(each))
            ids.append(_END)
    joined = np.frombuffer(b"".join(ids), np.int32)
    ends = np.flatnonzero(joined == _END_ID)
    return np.delete(joined, ends), np.diff(ends, prepend=-1) - 1


def encode_texts_with_places(
    texts: Sequence[str], known: WordSpans
) -> Iterator[tuple[Int32[np.ndarray, " pieces"], Int64[np.ndarray, "pieces 2"]]]:
    """The ids of each text, and where each piece begins and ends in it."""
    for group in _groups(texts):
        split = [text.split() for text in group]
        words = list(chain.from_iterable(split))
        found = known.look_up(words)
        pieces = np.frombuffer(b"".join(found), np.int32).reshape(-1, 3)
        pieces_of_words = np.fromiter(map(len, found), np.int64, len(found)) // pieces.strides[0]
        word_bounds = np.cumsum([0, *map(len, split)])
        piece_bounds = np.append(0, np.cumsum(pieces_of_words))[word_bounds]
        places = pieces[:, 1:] + np.repeat(word_places(group, np.diff(word_bounds)), pieces_of_words)[:, None]
        for start, end in pairwise(piece_bounds.tolist()):
            yield pieces[start:end, 0], places[start:end]


def word_places(texts: Sequence[str], words: Int[np.ndarray, " texts"]) -> Int64[np.ndarray, " words"]:
    """Where each word begins in its text, for texts that `str.split` divides into so many words."""
    codes = np.frombuffer(" ".join(["", *texts]).encode("utf-32-le", "surrogatepass"), "<i4")
    is_blank = _IS_BLANK.take(codes, mode="clip")
    begins = np.flatnonzero(is_blank[:-1] & ~is_blank[1:])
    lengths = np.array([len(text) + 1 for text in texts], np.int64)
    return begins - np.repeat(np.cumsum(lengths) - lengths, words)


def _groups(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    first = size = 0
    for index, text in enumerate(texts, 1):
        size += len(text)
        if size >= GROUP or index == len(texts):
            yield texts[first:index]
            first, size = index, 0
