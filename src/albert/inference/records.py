"""Input rows of predictions: which file they are in, and the fields an ability needs."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData, UsageError, did_you_mean
from albert.text.readers import PACKINGS, CorpusFile, Record, one_file

# --------------------------------------------------------------------------------------------------------------------
# The file whose rows are predicted on: what kind it is, and standard input as a file.

KINDS = {
    ".txt": "text",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".csv": "CSV",
    ".tsv": "TSV",
    ".parquet": "Parquet",
}
STANDARD_INPUT = "-"
PIPE_REMEDY = "pipe it into standard input: --input -"
_CHUNK = 1 << 20


@contextmanager
def opened_input(source: str) -> Iterator[CorpusFile]:
    """The file for a path, or for `-` what comes on standard input, kept in a file of its own until it is read.

    Lines of standard input are JSON when the first one begins with `{`, else texts.

    Raises:
        UsageError: the name does not say what it is.
        MissingInput: it cannot be read.
    """
    if source != STANDARD_INPUT:
        path = Path(source)
        suffix = path.with_suffix("").suffix if path.suffix.lower() in PACKINGS else path.suffix
        kind = KINDS.get(suffix.lower())
        if kind is None or (kind == "Parquet" and path.suffix.lower() in PACKINGS):
            known = ", ".join(KINDS)
            raise UsageError(source, "unknown kind of file", f"use {known} (all but Parquet packed too: .gz), or -")
        yield one_file(path, kind, source, PIPE_REMEDY)
        return
    with tempfile.NamedTemporaryFile(prefix="albert-") as file:
        beginning = b""
        while data := sys.stdin.buffer.read(_CHUNK):
            beginning += data[: 64 - len(beginning)] if len(beginning) < 64 else b""
            file.write(data)
        file.flush()
        is_json = beginning.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
        yield one_file(Path(file.name), "JSON lines" if is_json else "text", "standard input")


# --------------------------------------------------------------------------------------------------------------------
# Rows of files: their fields, and the inputs that are taken from them.

Inputs = tuple[Any, ...]
"""The texts of one question to the model."""


@dataclass(frozen=True)
class Fields:
    """The names of a row's fields."""

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
        kind = "null" if value is None else type(value).__name__
        raise DamagedData(record.where, f"field {field!r} is {kind}, a text is expected")
    return value


def one_text(record: Record, fields: Fields) -> Inputs:
    """A text."""
    return (text_of(record, fields.text, "--text-field"),)


def text_or_words(record: Record, fields: Fields) -> Inputs:
    """A text, or a list of words."""
    value = record.fields.get(fields.text)
    is_words = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return (value,) if is_words else one_text(record, fields)


def text_and_pair(record: Record, fields: Fields) -> Inputs:
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
        raise DamagedData(record.where, f"field {field!r} must be a list of at least two strings")
    return context, options, question
