"""Texts as a `Predictor` takes them: what is refused, and what is noted."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

from albert.runtime.errors import UsageError
from albert.runtime.words import counted, kind_of_value

_logger = logging.getLogger(__name__)

MEANINGLESS_ANSWER = "an answer to an empty text means nothing"
MEANINGLESS_VECTOR = "the vector of an empty text means nothing"


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


def check_text(name: str, text: Any) -> None:
    """Raises UsageError for anything but a string, such as a list."""
    if not isinstance(text, str):
        remedy = "methods that end in _batch take lists" if isinstance(text, list | tuple) else None
        raise UsageError(name, f"is {kind_of_value(text)}, a text is expected", remedy)


def check_texts(name: str, texts: Iterable[Any]) -> None:
    """Raises UsageError for a string, an iterator or a table in place of a list, and for items that are not strings
    (for example NaN from pandas)."""
    if isinstance(texts, str):
        raise UsageError(name, "is one text, a list of them is expected", "put it into brackets")
    if isinstance(texts, dict) or not hasattr(texts, "__getitem__") or getattr(texts, "ndim", 1) != 1:
        remedy = "make a list of it, or give one column"
        raise UsageError(name, f"is {kind_of_value(texts)}, a list of texts is expected", remedy)
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
        raise UsageError(name, f"is {kind_of_value(lists)}, a list of lists of texts is expected")
    for number, texts in enumerate(lists, start=1):
        check_texts(f"{name}, number {number}", texts)


def check_options(options: Sequence[Sequence[str]], contexts: Sequence[str]) -> None:
    """Raises UsageError unless there is a list of at least two options for each context, none of them empty."""
    check_lists("options", options)
    if len(options) != len(contexts):
        lists = counted(len(options), "lists")
        raise UsageError("options", f"{lists} for {counted(len(contexts), 'contexts')}", "give one for each")
    for of_context in options:
        if len(of_context) < 2:
            raise UsageError("options", f"{len(of_context)} of them", "give at least two to choose from")
        if not all(of_context):
            raise UsageError("options", "one of them is empty", "leave it out")


def check_top_k(top_k: int) -> None:
    """Raises UsageError for anything but a whole number of at least 1."""
    if isinstance(top_k, bool) or not isinstance(top_k, Integral) or top_k < 1:
        raise UsageError("top_k", f"is {top_k!r}, a whole number of at least 1 is needed")
