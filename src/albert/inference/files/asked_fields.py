"""The fields of a row that something is asked about, each checked."""

from dataclasses import dataclass
from typing import Any

from albert.inference.files.records import Record
from albert.runtime.errors import DamagedData, did_you_mean

Inputs = tuple[Any, ...]
"""What is asked about, taken from one row."""


@dataclass(frozen=True)
class Fields:
    """How the fields of a row are called."""

    text: str = "text"
    pair: str = "text_pair"
    question: str = "question"
    context: str = "context"
    options: tuple[str, ...] = ("options",)
    """One field with a list, or a field for each option."""


def text_of(record: Record, field: str, flag: str) -> str:
    """A field that must be a text.

    Raises:
        DamagedData: it is absent or something else; the row is named.
    """
    if field not in record.fields:
        hint = did_you_mean(field, record.fields)
        raise DamagedData(record.where, f"has no field {field!r}", f"{hint} ({flag} names another)")
    value = record.fields[field]
    if not isinstance(value, str):
        raise DamagedData(record.where, f"field {field!r} is {_kind(value)}, a text is expected")
    return value


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__


def one_text(record: Record, fields: Fields) -> Inputs:
    """A text."""
    return (text_of(record, fields.text, "--text-field"),)


def text_or_words(record: Record, fields: Fields) -> Inputs:
    """A text, or a list of words."""
    value = record.fields.get(fields.text)
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return (value,)
    return one_text(record, fields)


def text_and_perhaps_pair(record: Record, fields: Fields) -> Inputs:
    """A text, and a second one or None."""
    pair = text_of(record, fields.pair, "--pair-field") if fields.pair in record.fields else None
    return text_of(record, fields.text, "--text-field"), pair


def two_texts(record: Record, fields: Fields) -> Inputs:
    """A text and a second one."""
    return text_of(record, fields.text, "--text-field"), text_of(record, fields.pair, "--pair-field")


def question_in_context(record: Record, fields: Fields) -> Inputs:
    """A question and its context."""
    return text_of(record, fields.question, "--question-field"), text_of(record, fields.context, "--context-field")


def options_in_context(record: Record, fields: Fields) -> Inputs:
    """A context, two options or more, and a question, which may be empty."""
    question = text_of(record, fields.question, "--question-field") if fields.question in record.fields else ""
    context = text_of(record, fields.context, "--context-field")
    field, *others = fields.options
    if others:
        return context, [text_of(record, each, "--options-field") for each in fields.options], question
    if field not in record.fields:
        hint = did_you_mean(field, record.fields)
        raise DamagedData(
            record.where, f"has no field {field!r}", f"{hint} (--options-field names another, or several)"
        )
    options = record.fields[field]
    if not isinstance(options, list) or len(options) < 2 or not all(isinstance(option, str) for option in options):
        raise DamagedData(record.where, f"field {field!r} is no list of two or more texts")
    return context, options, question
