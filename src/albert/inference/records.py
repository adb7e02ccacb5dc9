"""Input rows of predictions: text, JSON lines, CSV, TSV, Parquet, packed or not; and the fields an ability needs.

Only empty lines of JSON and of tables are skipped; what cannot be read is an error that names file and line."""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Literal, cast

from albert.inference.predictor import Pooling, Predictor
from albert.inference.tasks import UnansweredTexts
from albert.runtime.environment import load_by_name
from albert.runtime.errors import DamagedData, MissingInput, UsageError, did_you_mean
from albert.runtime.input_files import refuse_special_file
from albert.runtime.json_files import each_key_once
from albert.text.readers import PACKINGS, CorpusFile, open_corpus_file
from albert.text.text_readers import quoted_rows, unquoted_rows

LONGEST_RECORD = 128_000_000
"""Bytes; a longer one is most likely a file of another kind."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Record:
    """One row: where it stands ("reviews.csv:3"), and its fields as they are written."""

    where: str
    fields: dict[str, Any]


def read_records(file: CorpusFile, text_field: str) -> Iterator[Record]:
    """Every row of a file, in its order.

    Args:
        file: what to read.
        text_field: what the text of a plain line is called.

    Raises:
        MissingInput: it cannot be read.
        DamagedData: it is not what its name says, or changes while it is read.
        Unavailable: Parquet, without pyarrow.
    """
    if file.kind == "Parquet":
        yield from load_by_name("albert.inference.parquet_files", "data").read_parquet(file)
        return
    with open_corpus_file(file) as (content, _):
        match file.kind:
            case "CSV" | "TSV":
                yield from _table_rows(file, content)
            case "JSON lines":
                yield from _json_rows(file, content)
            case _:
                for where, line in _lines(file, content):
                    yield Record(where, {text_field: decoded(line, where)})


def decoded(data: bytes, where: str) -> str:
    """The text of some bytes.

    Raises:
        DamagedData: they are not UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedData(where, f"is not UTF-8: byte {error.start}", "convert the file to UTF-8") from error


def _lines(file: CorpusFile, content: BufferedIOBase) -> Iterator[tuple[str, bytes]]:
    """The lines without their ends; other Unicode line ends are text."""
    for number, line in enumerate(iter(lambda: content.readline(LONGEST_RECORD + 1), b""), start=1):
        where = f"{file.name}:{number}"
        if len(line) > LONGEST_RECORD:
            raise DamagedData(where, f"is longer than {LONGEST_RECORD / 1e6:,.0f} MB")
        line = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
        yield where, line.removesuffix(b"\n").removesuffix(b"\r")


def _json_rows(file: CorpusFile, content: BufferedIOBase) -> Iterator[Record]:
    for where, line in _lines(file, content):
        if not line.strip():
            continue
        text = decoded(line, where)
        try:
            fields = json.loads(text, object_pairs_hook=each_key_once)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", None) or "too deep or too large a value"
            raise DamagedData(where, f"is not JSON ({reason})", "one object a line is expected") from error
        if not isinstance(fields, dict):
            raise DamagedData(where, f"is {type(fields).__name__}, a JSON object is expected")
        if "\\u" in text:
            _refuse_half_characters(fields, where)
        yield Record(where, fields)


def _refuse_half_characters(fields: dict[str, Any], where: str) -> None:
    """JSON's escapes may leave half of a surrogate pair, which nothing can write."""
    try:
        json.dumps(fields, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise DamagedData(where, "holds half of a surrogate pair", "write the file as UTF-8 again") from error


def _table_rows(file: CorpusFile, content: BufferedIOBase) -> Iterator[Record]:
    rows = (quoted_rows if file.kind == "CSV" else unquoted_rows)(content, file, LONGEST_RECORD)
    columns: list[str] = []
    for line, fields in rows:
        where = f"{file.name}:{line}"
        if not columns:
            fields[0] = fields[0].removeprefix(_BYTE_ORDER_MARK)
            columns = [decoded(field, where) for field in fields]
            if len(set(columns)) != len(columns):
                raise DamagedData(where, "two columns have the same name")
        elif len(fields) != len(columns):
            raise DamagedData(where, f"has {len(fields)} fields where the header has {len(columns)}")
        else:
            yield Record(where, {name: decoded(field, where) for name, field in zip(columns, fields, strict=True)})


# --------------------------------------------------------------------------------------------------------------------
# The file whose rows are predicted on: what kind it is, and standard input as a file.

InputKind = Literal["text", "JSON lines", "CSV", "TSV", "Parquet"]
KINDS: dict[str, InputKind] = {
    ".txt": "text",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".csv": "CSV",
    ".tsv": "TSV",
    ".parquet": "Parquet",
}
STANDARD_INPUT = "-"
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
        yield _described(path, source, kind)
        return
    with tempfile.NamedTemporaryFile(prefix="albert-") as file:
        beginning = b""
        while data := sys.stdin.buffer.read(_CHUNK):
            beginning += data[: 64 - len(beginning)] if len(beginning) < 64 else b""
            file.write(data)
        file.flush()
        is_json = beginning.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
        yield _described(Path(file.name), "standard input", "JSON lines" if is_json else "text")


def _described(path: Path, name: str, kind: InputKind) -> CorpusFile:
    try:
        status = path.stat()
    except OSError as error:
        raise MissingInput(name, error.strerror or "cannot be read") from error
    refuse_special_file(name, status.st_mode, "pipe it into standard input: --input -")
    return CorpusFile(path, name, status.st_size, status.st_mtime_ns, cast(InputKind, kind))


# --------------------------------------------------------------------------------------------------------------------
# The fields of a row that something is asked about, each checked.

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
        raise DamagedData(record.where, f"field {field!r} must be a list of at least two strings")
    return context, options, question


# --------------------------------------------------------------------------------------------------------------------
# One way to ask the rows of a file: the fields that it needs, and the fields that it gives.

ERROR = "error"
"""The field that says why a row has no answer, null where it has one."""
Value = str | list[Any] | dict[str, Any]
"""What a field of an answer holds: "text", "number", "count"; a list of such; or names with such."""


@dataclass(frozen=True)
class Settings:
    """How a row is answered: guesses for a mask, answers to a question, how vectors are pooled, what the words are."""

    top_k: int | None = None
    pooling: Pooling = "mean"
    normalize: bool = False
    words: bool = False
    """Whether the words to be tagged stand between blanks."""


@dataclass(frozen=True)
class InferenceTask:
    """One way to ask.

    Attributes:
        name: on the command line.
        ability: that a model must have, None where any has it.
        inputs: takes from a row what is asked about; raises DamagedData.
        predict: answers to many of them, each with the fields that `gives` names.
        gives: the fields of an answer, and what each holds.
    """

    name: str
    ability: str | None
    inputs: Callable[[Record, Fields], Inputs]
    predict: Callable[[Predictor, Sequence[Inputs], Settings], list[dict[str, Any]]]
    gives: Callable[[Predictor, Settings], dict[str, Value]]


def answers_to(
    asking: InferenceTask, predictor: Predictor, inputs: Sequence[Inputs], settings: Settings
) -> list[dict[str, Any]]:
    """An answer to each row; one that cannot be given has all fields null but the one that says why."""
    names = asking.gives(predictor, settings)
    refused: dict[int, tuple[str, str | None]] = {}
    try:
        found = asking.predict(predictor, inputs, settings)
    except UnansweredTexts as error:
        refused = error.reasons
        others = [each for number, each in enumerate(inputs) if number not in refused]
        answered = iter(asking.predict(predictor, others, settings) if others else [])
        nothing: dict[str, Any] = dict.fromkeys(names)
        found = [nothing if number in refused else next(answered) for number in range(len(inputs))]
    if ERROR not in names:
        return found
    return [{**answer, ERROR: refused[number][0] if number in refused else None} for number, answer in enumerate(found)]
