"""Texts as a `Predictor` takes them: validated, and encoded as token ids."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from albert.runtime.errors import UsageError
from albert.runtime.words import counted

if TYPE_CHECKING:
    from albert.text.tokenizer import Tokenizer

_logger = logging.getLogger(__name__)

MASK = "[MASK]"
MEANINGLESS_ANSWER = "an answer to an empty text means nothing"
MEANINGLESS_VECTOR = "the vector of an empty text means nothing"


class EncodedTexts(NamedTuple):
    """`[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` for each text or pair.

    `ids` and `token_types` are int64 [length]; `cut` counts the tokens that did not fit.
    """

    ids: list[np.ndarray]
    token_types: list[np.ndarray]
    cut: list[int]


def encode_texts(
    tokenizer: "Tokenizer",
    parts: Sequence[Sequence[str]],
    max_length: int,
    masked: bool = False,
    separators: int | None = None,
) -> EncodedTexts:
    """Encode texts (one list) or pairs (two lists), cut longest-first to `max_length` tokens including special ones.

    With `masked`, a literal `[MASK]` or the tokenizer's own mask becomes the mask token, and blanks around it are
    ignored. `separators` is the number of `[SEP]` between two texts; None: as many as the tokenizer has."""
    from albert.tasks.examples import keep_longest_first

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


def note_cut(cut: Sequence[int], longest: int, remedy: str) -> None:
    """Log how many texts of a call were cut, where its result has no place for it."""
    texts = sum(map(bool, cut))
    if texts:
        verb = "was" if texts == 1 else "were"
        count = f"{texts:,} of {len(cut):,} texts {verb} cut ({sum(cut):,} tokens)"
        _logger.warning("albert: note: %s: at most %s tokens are read; %s", count, f"{longest:,}", remedy)


def note_empty(texts: Sequence[str], pairs: Sequence[str] | None = None, meaningless: str = MEANINGLESS_ANSWER) -> None:
    """Log how many texts of a call, or pairs of texts, have no character that is not blank."""
    parts = (texts,) if pairs is None else (texts, pairs)
    empty = sum(not any(text.strip() for text in row) for row in zip(*parts, strict=True))
    if empty:
        verb = "is" if empty == 1 else "are"
        what = "the text is empty" if len(texts) == 1 else f"{empty:,} of {len(texts):,} texts {verb} empty"
        _logger.warning("albert: note: %s; %s", what, meaningless)


def _encode(tokenizer: "Tokenizer", texts: Sequence[str]) -> list[np.ndarray]:
    joined, counts = tokenizer.encode_joined(texts)
    return np.split(joined.astype(np.int64), np.cumsum(counts)[:-1]) if len(counts) else []


def _encode_masked(tokenizer: "Tokenizer", texts: Sequence[str]) -> list[np.ndarray]:
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


def check_text(name: str, text: Any) -> None:
    """Raises UsageError for anything but a string, such as a list."""
    if not isinstance(text, str):
        remedy = "methods that end in _batch take lists" if isinstance(text, list | tuple) else None
        raise UsageError(name, f"is {type(text).__name__}, a text is expected", remedy)


def check_texts(name: str, texts: Iterable[Any]) -> None:
    """Raises UsageError for a string, an iterator or a table in place of a list, and for items that are not strings
    (for example NaN from pandas)."""
    if isinstance(texts, str):
        raise UsageError(name, "is one text, a list of them is expected", "put it into brackets")
    if isinstance(texts, dict) or not hasattr(texts, "__getitem__") or getattr(texts, "ndim", 1) != 1:
        remedy = "make a list of it, or give one column"
        raise UsageError(name, f"is {type(texts).__name__}, a list of texts is expected", remedy)
    for number, text in enumerate(texts, start=1):
        check_text(f"{name}, number {number}", text)


def check_pairs(name: str, texts: Sequence[Any], other: str, others: Sequence[Any]) -> None:
    """Raises UsageError for lists of different lengths, or with items that are not strings."""
    check_texts(name, texts)
    check_texts(other, others)
    if len(texts) != len(others):
        raise UsageError(name, f"{len(texts)} for {counted(len(others), other)}", "give one for each")


def check_second_texts(name: str, are_given: bool, are_expected: bool | None) -> None:
    """Raises UsageError for second texts where the model was trained on single ones, and for pairs without them;
    `are_expected` is `Predictor.reads_pairs`."""
    several = name == "pairs"
    if are_given and are_expected is False:
        texts = "texts" if several else "text"
        raise UsageError(name, "the model was trained on single texts", f"leave out the second {texts}")
    if not are_given and are_expected is True:
        of_each = " of each" if several else ""
        raise UsageError(name, "the model was trained on pairs of texts", f"give the second text{of_each}")


def check_lists(name: str, lists: Sequence[Sequence[str]]) -> None:
    """Raises UsageError for anything but a list of lists of strings."""
    if not hasattr(lists, "__getitem__") or isinstance(lists, str | Mapping):
        raise UsageError(name, f"is {type(lists).__name__}, a list of lists of texts is expected")
    for number, texts in enumerate(lists, start=1):
        check_texts(f"{name}, number {number}", texts)


def check_top_k(top_k: int) -> None:
    """Raises UsageError for anything but a whole number of at least 1."""
    if isinstance(top_k, bool) or not isinstance(top_k, Integral) or top_k < 1:
        raise UsageError("top_k", f"is {top_k!r}, a whole number of at least 1 is needed")
