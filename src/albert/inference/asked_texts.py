"""What is handed to a predictor must be texts, as many here as there."""

from collections.abc import Sequence
from typing import Any

from albert.runtime.errors import UsageError


def check_texts(name: str, texts: Sequence[Any]) -> None:
    """Refuse one text in place of many, and what is no text among them.

    Raises:
        UsageError: with the place of the first that is none; it is what pandas makes of an empty cell, say.
    """
    if isinstance(texts, str):
        raise UsageError(name, "is one text, a list of them is expected", "put it into brackets")
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            remedy = "methods that end in _batch take lists" if isinstance(text, list | tuple) else None
            raise UsageError(f"{name}, number {number}", f"is {type(text).__name__}, a text is expected", remedy)


def check_pairs(name: str, texts: Sequence[Any], other: str, others: Sequence[Any]) -> None:
    """Refuse two lists that do not go together.

    Raises:
        UsageError: one holds more than the other, or something that is no text.
    """
    check_texts(name, texts)
    check_texts(other, others)
    if len(texts) != len(others):
        raise UsageError(name, f"{len(texts)} for {len(others)} {other}", "give one for each")
