"""Many texts to pieces, by way of their words: what is done for each word is a look-up, the rest is done for all."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice, pairwise

import numpy as np
from jaxtyping import Int, Int32, Int64

from albert.text.unigram.word_cache import WordIds, WordSpans

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
